"""The catalog of public corpora: the addresses, sizes and hashes of their files."""

import hashlib
import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError, model_validator

from nmtkit.sources.kinds import parse_source
from nmtkit.sources.source import Row, Source
from nmtkit.store.records import Record, first_problem
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import TREE, Language
from nmtkit.utils.section import did_you_mean

Sha1 = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]


class Selection(Record):
    """The lines of a text that form a corpus, in this order."""

    # Numbers from 1 and ranges, such as "7-9, 3".
    lines: Annotated[str, Field(pattern=r"^\d+(-\d+)?(,\s*\d+(-\d+)?)*$")]
    sha1: dict[str, Sha1]  # published hashes of the selected lines, by language

    def numbers(self) -> list[int]:
        """Return the numbers of the lines: 7, 8, 9, 3 for "7-9, 3"."""
        numbers: list[int] = []
        for first, last in re.findall(r"(\d+)(?:-(\d+))?", self.lines):
            numbers += range(int(first), int(last or first) + 1)
        return numbers

    def select(self, rows: Iterable[Row], langs: Sequence[Language], name: str) -> Iterator[Row]:
        """Yield the selected rows of a text.

        Args:
            langs: The languages of source and target.
            name: The corpus, for messages.

        Raises:
            UserError: They are not the published ones.
        """
        numbers = self.numbers()
        wanted = set(numbers)
        found = {number: row for number, row in enumerate(rows, 1) if number in wanted}
        selected = [found[number] for number in numbers if number in found]
        # Another version of the text could have other sentences at the same numbers.
        for side, lang in enumerate(langs):
            sha1 = hashlib.sha1(usedforsecurity=False)
            for row in selected:
                sha1.update(f"{row[side]}\n".encode())
            published = self.sha1[lang.canonical]
            if sha1.hexdigest() != published:
                raise UserError(
                    f"the {len(numbers):,} selected lines of {name} in {lang} have the SHA-1 "
                    f"{sha1.hexdigest()}, not the published {published}; remove its files from the "
                    "folder of downloads"
                )
        yield from selected


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
    # Other archives of the same texts. They are tried if no url has this one.
    others: Annotated[tuple["RemoteFile", ...], Field(strict=False)] = ()

    @property
    def url(self) -> str:
        """The first address. It names the file."""
        return self.urls[0]

    @property
    def digest(self) -> str:
        """The identity of the file: the published hash, or the address if there is none."""
        return self.sha256 or self.md5 or self.url

    @property
    def archives(self) -> tuple["RemoteFile", ...]:
        """All archives of the texts, this one first."""
        return (self, *self.others)


class CatalogText(Record):
    """A text and its translation: the keys of a source in a recipe, and perhaps a selection.

    Where a recipe has paths, `source` has names of downloads or paths relative to the catalog.
    """

    source: Source
    selection: Selection | None = None
    n_pairs: int | None = None  # before cleaning, if it is known

    @model_validator(mode="before")
    @classmethod
    def _parse(cls, table: dict[str, Any]) -> dict[str, Any]:
        """Divide the keys of an entry between its parts.

        Raises:
            ValueError: A key of recipes has no effect in the catalog.
        """
        for key in ("name", "weight"):
            if key in table:
                raise ValueError(f"{key} has no effect in the catalog; set it in a recipe")
        selection = {key: table[key] for key in table if key in Selection.model_fields}
        source = {key: table[key] for key in table if key not in selection}
        return {"source": parse_source(source), "selection": selection or None}


class _Corpus(Record):
    """A corpus in the catalog file. Its keys are pairs of languages, such as "de-en"."""

    licence: str
    n_pairs: dict[str, int] = Field(default={})
    texts: dict[str, CatalogText]

    @model_validator(mode="after")
    def _check_languages(self) -> Self:
        for pair, text in self.texts.items():
            src, tgt = _parse_pair(pair)
            text.source.check(src, tgt)
            if (tgt == TREE) not in text.source.trees:
                raise ValueError(f"{pair} cannot be {text.source.title}")
            langs = {src.canonical, tgt.canonical}
            if text.selection is not None and set(text.selection.sha1) != langs:
                raise ValueError(f"sha1 of {pair} must have the keys {src} and {tgt}")
        return self


class PublishedText(Record):
    """Published facts about a prepared text. Keys are languages."""

    plain: dict[str, Sha1] = Field(default={})
    tokens_blob: dict[str, Sha1] = Field(default={})
    subwords: dict[str, Sha1] = Field(default={})
    n_lines: int | None = None
    n_tokens: dict[str, int] = Field(default={})


class PublishedCorpus(Record):
    """Published facts about a corpus that others prepared; the catalog describes the keys."""

    title: str
    source: str
    langs: Annotated[tuple[str, str], Field(strict=False)]
    train: Annotated[tuple[str, ...], Field(strict=False)]
    bpe_version: str | None = None
    codes_sha1: Sha1 | None = None
    n_subwords: int | None = None
    vocabulary_sha1: Sha1 | None = None
    files: dict[str, str] = Field(default={})
    texts: dict[str, PublishedText]


class Catalog(Record):
    """The catalog file; tests check that it is consistent."""

    files: dict[str, RemoteFile]
    corpora: dict[str, _Corpus]
    published: dict[str, PublishedCorpus] = Field(default={})

    def pairs(self, name: str) -> list[tuple[Language, Language]]:
        """Return the pairs of languages of a corpus, as the catalog lists them."""
        return [_parse_pair(pair) for pair in self.corpora[name].texts]

    def text(self, name: str, src: Language, tgt: Language) -> CatalogText:
        """Find a corpus by name and direction.

        Args:
            tgt: The target language; `TREE` for parsing.

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
        pair = f"{src.canonical}-{tgt.canonical}"
        is_reversed = pair not in entry.texts and src != TREE
        if is_reversed:
            pair = f"{tgt.canonical}-{src.canonical}"
        if pair not in entry.texts:
            raise UserError(
                f"the corpus {name} has no {src}-{tgt}; it has {', '.join(entry.texts)}"
            )
        text = entry.texts[pair]
        source = text.source
        # The languages of a file cannot be read before it is downloaded.
        if is_reversed and not source.has_languages:
            source = source.reversed()
        source = source.model_copy(update={"name": name})
        return text.model_copy(update={"source": source, "n_pairs": entry.n_pairs.get(pair)})

    def file(self, path: str) -> tuple[RemoteFile | Path, str | None]:
        """Return the download or the local file that an entry names, and its member of an archive.

        Args:
            path: A value of the entry, such as "wmt-dev:dev/newstest2013.de".

        Raises:
            UserError: There is no such file.
        """
        name, _, member = path.partition(":")
        file = self.files.get(name) or data_dir() / name
        if isinstance(file, Path) and not file.exists():
            raise UserError(
                f"the catalog names {name!r}{did_you_mean(name, self.files)}, which is neither in "
                f"[files] nor in {data_dir()}; add it"
            )
        return file, member or None


def load_catalog() -> Catalog:
    """Read the catalog, once."""
    return _read(data_dir() / "catalog.toml")


@cache
def _read(path: Path) -> Catalog:
    try:
        return Catalog.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        raise UserError(f"{path}: {first_problem(error)}; correct the entry") from None


def _parse_pair(pair: str) -> tuple[Language, Language]:
    """Return the languages of a key such as "de-en" or "en-tree"."""
    src, tgt = pair.split("-")
    return Language.of(src), TREE if tgt == TREE.tag else Language.of(tgt)


def data_dir() -> Path:
    """Return the folder of the catalog and the demo corpora, in a checkout or in a wheel."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "data"
    return installed if installed.is_dir() else package.parent / "data"
