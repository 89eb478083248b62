"""The catalog of public corpora: the addresses, sizes and hashes of their files."""

import tomllib
from functools import cache
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import Field

from nmtkit.store.records import Record
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import TREE, Language
from nmtkit.utils.section import did_you_mean

Sha1 = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]


class RemoteFile(Record):
    """A download, and the published facts about its bytes: one hash, and perhaps the length."""

    # Each serves the same bytes.
    urls: Annotated[
        tuple[Annotated[str, Field(pattern=r"^https?://[^/]+/.*[^/]$")], ...],
        Field(min_length=1, strict=False),
    ]
    n_bytes: Annotated[int, Field(gt=0)] | None = None
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    md5: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")] | None = None
    # Other archives of the same texts, which are tried if no url has this one.
    others: Annotated[tuple["RemoteFile", ...], Field(strict=False)] = ()

    @property
    def url(self) -> str:
        """The first address, which names the file."""
        return self.urls[0]

    @property
    def digest(self) -> str:
        """The identity of the file: the published hash, or the address if there is none."""
        return self.sha256 or self.md5 or self.url

    @property
    def archives(self) -> tuple["RemoteFile", ...]:
        """All archives of the texts, this one first."""
        return (self, *self.others)


class _Text(Record):
    """One side in the catalog file: the name of a download, or a path relative to the catalog."""

    file: str | None = None
    path: str = ""
    member: str | None = None


class Selection(Record):
    """The lines of two texts that a corpus consists of."""

    lines: str  # numbers and ranges, such as "7-9, 3"
    sha1: dict[str, Sha1]  # of the selected lines, by language


class _Corpus(Record):
    """A corpus in the catalog file. Its keys are pairs of languages, such as "de-en"."""

    licence: str
    n_pairs: dict[str, int] = Field(default={})
    texts: dict[str, dict[str, _Text]]
    sections: Annotated[tuple[str, ...], Field(strict=False)] = ()
    selections: dict[str, Selection] = Field(default={})


class PublishedText(Record):
    """Published facts about a prepared text. Keys are languages."""

    plain: dict[str, Sha1] = Field(default={})
    subwords: dict[str, Sha1] = Field(default={})
    n_lines: int | None = None
    n_tokens: dict[str, int] = Field(default={})


class PublishedCorpus(Record):
    """Published facts about a corpus that others prepared; the catalog describes the keys."""

    title: str
    source: str
    langs: Annotated[tuple[str, str], Field(strict=False)]
    train: Annotated[tuple[str, ...], Field(strict=False)]
    bpe_version: str
    codes_sha1: Sha1 | None = None
    n_subwords: int | None = None
    vocabulary_sha1: Sha1 | None = None
    files: dict[str, str] = Field(default={})
    texts: dict[str, PublishedText]


CatalogText = tuple[RemoteFile | Path, str | None]  # a download or a local file, and its member


class CatalogCorpus(NamedTuple):
    """A corpus in one direction; `n_pairs` is None if its count is unknown."""

    name: str
    licence: str
    n_pairs: int | None
    sides: tuple[CatalogText, CatalogText]
    sections: tuple[str, ...]  # of a treebank, which is both sides
    selection: Selection | None


class Catalog(Record):
    """The catalog file; tests check that it is consistent."""

    files: dict[str, RemoteFile]
    corpora: dict[str, _Corpus]
    published: dict[str, PublishedCorpus] = Field(default={})

    def pairs(self, name: str) -> list[tuple[Language, Language]]:
        """Return the pairs of languages of a corpus, as the catalog lists them."""
        pairs = []
        for pair in self.corpora[name].texts:
            src, tgt = pair.split("-")
            tgt_lang = TREE if tgt == str(TREE) else Language.of(tgt)
            pairs.append((Language.of(src), tgt_lang))
        return pairs

    def corpus(self, name: str, src: Language, tgt: Language) -> CatalogCorpus:
        """Find a corpus by name and direction.

        Args:
            name: The name of the corpus.
            src: The source language.
            tgt: The target language.

        Raises:
            UserError: The catalog does not have the corpus, or not in these languages.
        """
        if name not in self.corpora:
            hint = did_you_mean(name, self.corpora) or f" (catalog: {', '.join(self.corpora)})"
            raise UserError(
                f"neither the catalog nor sacreBLEU has {name!r}{hint}; run `nmtkit corpora` to "
                "list the catalog, or use a corpus of OPUS, such as opus:TED2020/v1"
            )
        entry = self.corpora[name]
        # The catalog has one entry for both directions of a pair.
        for pair in (f"{src.canonical}-{tgt.canonical}", f"{tgt.canonical}-{src.canonical}"):
            sides = entry.texts.get(pair)
            if src != TREE and sides is not None:
                return CatalogCorpus(
                    name,
                    entry.licence,
                    entry.n_pairs.get(pair),
                    (self._resolve(sides[src.canonical]), self._resolve(sides[tgt.canonical])),
                    entry.sections,
                    entry.selections.get(pair),
                )
        raise UserError(f"the corpus {name} has no {src}-{tgt}; it has {', '.join(entry.texts)}")

    def _resolve(self, text: _Text) -> CatalogText:
        """Return the file of a side, and its member of an archive."""
        file = self.files[text.file] if text.file else data_dir() / text.path
        return file, text.member


def load_catalog() -> Catalog:
    """Read the catalog, once."""
    return _read(data_dir() / "catalog.toml")


@cache
def _read(path: Path) -> Catalog:
    return Catalog.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))


def data_dir() -> Path:
    """Return the folder of the catalog and the demo corpora, in a checkout or in a wheel."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "data"
    return installed if installed.is_dir() else package.parent / "data"
