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


class RemoteFile(Record):
    """A download, and what was published about its bytes: one hash, and perhaps the length."""

    # Each serves the same bytes.
    urls: Annotated[
        tuple[Annotated[str, Field(pattern=r"^https?://[^/]+/.*[^/]$")], ...],
        Field(min_length=1, strict=False),
    ]
    n_bytes: Annotated[int, Field(gt=0)] | None = None
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    md5: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")] | None = None
    # Other archives of the same texts, for when no url has this one.
    others: Annotated[tuple["RemoteFile", ...], Field(strict=False)] = ()

    @property
    def url(self) -> str:
        """The first address, which names the file."""
        return self.urls[0]

    @property
    def digest(self) -> str:
        """What identifies the file: the published hash, or the address if there is none."""
        return self.sha256 or self.md5 or self.url

    @property
    def archives(self) -> tuple["RemoteFile", ...]:
        return (self, *self.others)


class _Text(Record):
    """One side in the catalog file: the name of a download, or a path relative to the catalog."""

    file: str | None = None
    path: str = ""
    member: str | None = None


class _Corpus(Record):
    licence: str
    n_pairs: dict[str, int] = Field(default={})
    texts: dict[str, dict[str, _Text]]
    sections: Annotated[tuple[str, ...], Field(strict=False)] = ()


CatalogText = tuple[RemoteFile | Path, str | None]  # a download or a local file, and its member


class CatalogCorpus(NamedTuple):
    """A corpus in one direction; `n_pairs` is None if its count is unknown."""

    name: str
    licence: str
    n_pairs: int | None
    sides: tuple[CatalogText, CatalogText]
    sections: tuple[str, ...]  # of a treebank, which is both sides


class Catalog(Record):
    """The catalog file; tests check that it is consistent."""

    files: dict[str, RemoteFile]
    corpora: dict[str, _Corpus]

    def pairs(self, name: str) -> list[tuple[Language, Language]]:
        pairs = (pair.split("-") for pair in self.corpora[name].texts)
        return [
            (Language.of(src), TREE if tgt == str(TREE) else Language.of(tgt)) for src, tgt in pairs
        ]

    def corpus(self, name: str, src: Language, tgt: Language) -> CatalogCorpus:
        if name not in self.corpora:
            hint = did_you_mean(name, self.corpora) or f" (catalog: {', '.join(self.corpora)})"
            raise UserError(
                f"neither the catalog nor sacreBLEU has {name!r}{hint}; a corpus of OPUS is called "
                "as in opus:TED2020/v1"
            )
        entry = self.corpora[name]
        for pair in (f"{src.canonical}-{tgt.canonical}", f"{tgt.canonical}-{src.canonical}"):
            if src != TREE and (sides := entry.texts.get(pair)):
                both = self._resolve(sides[src.canonical]), self._resolve(sides[tgt.canonical])
                n_pairs = entry.n_pairs.get(pair)
                return CatalogCorpus(name, entry.licence, n_pairs, both, entry.sections)
        raise UserError(f"the corpus {name} has no {src}-{tgt}; it has {', '.join(entry.texts)}")

    def _resolve(self, text: _Text) -> CatalogText:
        return self.files[text.file] if text.file else data_dir() / text.path, text.member


def load_catalog() -> Catalog:
    return _read(data_dir() / "catalog.toml")


@cache
def _read(path: Path) -> Catalog:
    return Catalog.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))


def data_dir() -> Path:
    """Return the folder of the catalog and the demo corpora, in a checkout or in a wheel."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "data"
    return installed if installed.is_dir() else package.parent / "data"
