"""The catalog of public corpora: the addresses, sizes and hashes of their files."""

import difflib
import tomllib
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from nmtkit.errors import UserError
from nmtkit.languages import TREE, Language

Count = Annotated[int, Field(gt=0)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Md5 = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class RemoteFile(_Entry):
    """A download, and what was published about its bytes: one hash, and perhaps the length."""

    url: Annotated[str, Field(pattern=r"^https?://[^/]+/.*[^/]$")]
    n_bytes: Count | None = None
    sha256: Sha256 | None = None
    md5: Md5 | None = None

    @model_validator(mode="after")
    def _one_hash(self) -> Self:
        if (self.sha256 is None) == (self.md5 is None):
            raise ValueError("a file has either a `sha256` or an `md5`")
        return self

    @property
    def digest(self) -> str:
        """Return the published hash, which identifies the file."""
        return self.sha256 or self.md5 or ""


class _Text(_Entry):
    """One side in the catalog file: the name of a download, or a path relative to the catalog."""

    file: str | None = None
    path: str | None = None
    member: str | None = None

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.file is None) == (self.path is None):
            raise ValueError("a text has either a `file` or a `path`")
        return self


class _Trees(_Text):
    """Trees in the catalog file: one text, which holds the sentences too."""

    lang: str
    sections: Annotated[tuple[str, ...], Field(strict=False)] = ()


class _Corpus(_Entry):
    licence: str
    n_pairs: dict[str, Count] = {}
    texts: dict[str, dict[str, _Text]] = {}
    trees: _Trees | None = None

    @model_validator(mode="after")
    def _two_languages(self) -> Self:
        for pair, sides in self.texts.items():
            if sorted(sides) != sorted(pair.split("-")) or len(sides) != 2:
                raise ValueError(f"the texts of {pair} are {', '.join(sides)}")
        if bool(self.texts) == (self.trees is not None):
            raise ValueError("a corpus has either `texts` or `trees`")
        for pair in self.n_pairs:
            if pair not in (self.texts or [self.tree_pair]):
                raise ValueError(f"{pair} has n_pairs, but no texts")
        return self

    @property
    def tree_pair(self) -> str:
        """Return the languages of a treebank, in the form of the keys of `texts`."""
        return f"{self.trees.lang}-{TREE.tag}" if self.trees else ""

    @property
    def all_texts(self) -> list[_Text]:
        """Return every text of the corpus."""
        sides = [text for pair in self.texts.values() for text in pair.values()]
        return [self.trees] if self.trees else sides


class _File(_Entry):
    files: dict[str, RemoteFile]
    corpora: dict[str, _Corpus]

    @model_validator(mode="after")
    def _known_files(self) -> Self:
        for name, entry in self.corpora.items():
            for text in entry.all_texts:
                if text.file is not None and text.file not in self.files:
                    raise ValueError(f"{name} names the file {text.file}, which is not listed")
        return self


class CatalogText(_Entry):
    """One side of a corpus: a download or a local file, or one member of such an archive."""

    file: RemoteFile | Path
    member: str | None


class CatalogCorpus(_Entry):
    """A corpus in one direction; `n_pairs` is None if its count is unknown."""

    name: str
    licence: str
    n_pairs: int | None
    src: CatalogText
    tgt: CatalogText
    sections: tuple[str, ...] | None = None  # of a treebank, which is both src and tgt


class Catalog:
    """The corpora of one catalog file."""

    def __init__(self, path: Path) -> None:
        """Read and check the file.

        Raises:
            UserError: it is missing or malformed.
        """
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
            file = _File.model_validate(content)
        except OSError as error:
            raise UserError(f"cannot read the catalog {path}: {error.strerror}") from None
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise UserError(f"the catalog {path} is wrong at {place}: {first['msg']}") from None
        except ValueError as error:  # not TOML, or not UTF-8
            raise UserError(f"the catalog {path} is not a TOML file: {error}") from None
        self._folder = path.parent
        self._files = file.files
        self._corpora = file.corpora

    @property
    def names(self) -> list[str]:
        """Return the names of all corpora."""
        return list(self._corpora)

    def pairs(self, name: str) -> list[tuple[Language, Language]]:
        """Return the language pairs of a corpus, as the catalog writes them."""
        entry = self._corpora[name]
        if entry.trees:
            return [(Language.of(entry.trees.lang), TREE)]
        return [Language.pair_of(pair) for pair in entry.texts]

    def corpus(self, name: str, src: Language, tgt: Language) -> CatalogCorpus:
        """Return a corpus in one direction.

        Raises:
            UserError: the name is unknown, or the corpus lacks one of the languages.
        """
        if name not in self._corpora:
            near = difflib.get_close_matches(name, self._corpora, n=1)
            hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(self._corpora)}"
            raise UserError(f"the catalog has no corpus {name!r} ({hint})")
        entry = self._corpora[name]
        for pair in (f"{src.canonical}-{tgt.canonical}", f"{tgt.canonical}-{src.canonical}"):
            if sides := entry.texts.get(pair):
                return CatalogCorpus(
                    name=name,
                    licence=entry.licence,
                    n_pairs=entry.n_pairs.get(pair),
                    src=self._resolve(sides[src.canonical]),
                    tgt=self._resolve(sides[tgt.canonical]),
                )
        if entry.trees and (src.canonical, tgt) == (entry.trees.lang, TREE):
            text = self._resolve(entry.trees)
            return CatalogCorpus(
                name=name,
                licence=entry.licence,
                n_pairs=entry.n_pairs.get(entry.tree_pair),
                src=text,
                tgt=text,
                sections=entry.trees.sections,
            )
        pairs = ", ".join(entry.texts) or entry.tree_pair
        raise UserError(f"the corpus {name} has no {src}-{tgt}; it has {pairs}")

    def _resolve(self, text: _Text) -> CatalogText:
        if text.file is not None:
            return CatalogText(file=self._files[text.file], member=text.member)
        assert text.path is not None
        return CatalogText(file=self._folder / text.path, member=text.member)


def load_catalog() -> Catalog:
    """Read the catalog that comes with nmtkit."""
    return Catalog(data_dir() / "catalog.toml")


def data_dir() -> Path:
    """Return the folder of the catalog and the demo corpora, in a checkout or in a wheel."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "data"
    return installed if installed.is_dir() else package.parent / "data"
