"""The corpora that a recipe names: what their bytes are known by, how they are got and read."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from nmtkit import artifacts
from nmtkit.errors import UserError
from nmtkit.recipe import FilePair, HubSource, Source, TmxFile, TsvFile
from nmtkit.sources.catalog import CatalogText, RemoteFile, load_catalog
from nmtkit.sources.download import identity as download_identity
from nmtkit.sources.download import known_bytes, known_sha256
from nmtkit.sources.text import (
    HubDataset,
    ParallelText,
    TextFile,
    TmxText,
    TsvText,
)

# Bytes that `prepare` writes for each byte that is stored: clean text while it works, and ids.
# 24,000 pairs of news as plain text take 1.7; packed text takes more, archives of many languages
# less.
PREPARED_PER_STORED_BYTE = 2

AnyText = ParallelText | TsvText | TmxText | HubDataset


@dataclass(frozen=True)
class Corpus:
    """A corpus in the recipe's direction."""

    name: str
    source: Source
    src_lang: str
    tgt_lang: str
    n_pairs: int | None  # None: nobody published a count
    files: tuple[CatalogText, ...]  # both sides, or the one file that holds them

    @property
    def downloads(self) -> list[RemoteFile]:
        """What has to come from elsewhere before it can be read."""
        return [text.file for text in self.files if isinstance(text.file, RemoteFile)]

    def downloads_of_unknown_hash(self, downloads_dir: Path) -> list[RemoteFile]:
        """What has to come before it is known what it is: nobody published its hash."""
        return [file for file in self.downloads if known_sha256(file, downloads_dir) is None]

    def prepared_bytes(self, downloads_dir: Path) -> int:
        """About how many bytes `prepare` writes of it, as far as its files' sizes are known."""
        own = [text.file for text in self.files if isinstance(text.file, Path)]
        remote = {file.url: known_bytes(file, downloads_dir) or 0 for file in self.downloads}
        stored = sum(path.stat().st_size for path in own if path.is_file()) + sum(remote.values())
        return PREPARED_PER_STORED_BYTE * stored

    def identity(self, downloads_dir: Path) -> list[str]:
        """What its text is known by: hashes and members, or a repository and its commit.

        Raises:
            UserError: a file is missing, or was never downloaded and nobody published its hash.
        """
        hashes = [self._identity(text, downloads_dir) for text in self.files]
        match self.source:
            case TsvFile(columns=columns):
                return ["tsv", *hashes, *columns]
            case TmxFile():
                return ["tmx", *hashes]
            case HubSource() as hub:
                return ["huggingface", hub.huggingface, hub.subset, hub.split, hub.revision]
        return hashes

    def text(self, path_of: Callable[[RemoteFile], Path]) -> AnyText:
        """What `read_pairs` reads; `path_of` gets a download."""

        def located(text: CatalogText) -> TextFile:
            file = text.file
            if isinstance(file, RemoteFile):
                return TextFile(path_of(file), text.member)
            return TextFile(file, sha256=self._sha256s[file])

        files = [located(text) for text in self.files]
        langs = self.src_lang, self.tgt_lang
        match self.source:
            case TsvFile(columns=columns):
                src_column, tgt_column = (columns.index(lang) for lang in langs)
                return TsvText(self.name, files[0], src_column, tgt_column)
            case TmxFile():
                return TmxText(self.name, files[0], *langs)
            case HubSource() as hub:
                return HubDataset(
                    self.name, hub.huggingface, hub.subset, hub.split, hub.revision, *langs
                )
        return ParallelText(self.name, *files)

    def _identity(self, text: CatalogText, downloads_dir: Path) -> str:
        if isinstance(text.file, RemoteFile):
            return f"{download_identity(text.file, downloads_dir)}:{text.member or ''}"
        return self._sha256s[text.file]

    @cached_property
    def _sha256s(self) -> dict[Path, str]:
        """The hashes of a user's own files, taken once: reading compares with them."""
        paths = [text.file for text in self.files if isinstance(text.file, Path)]
        for path in paths:
            if not path.is_file():
                raise UserError(f"there is no file {path}; correct [corpus] in the recipe")
        return {path: artifacts.sha256_of(path) for path in paths}


def find_corpus(source: Source, src_lang: str, tgt_lang: str) -> Corpus:
    """The corpus that a recipe names in this way.

    Raises:
        UserError: the catalog has no such corpus, or not in these languages.
    """
    match source:
        case FilePair(src=src, tgt=tgt):
            name, paths = Path(src).name, [src, tgt]
        case TsvFile(tsv=path) | TmxFile(tmx=path):
            name, paths = Path(path).name, [path]
        case HubSource() as hub:
            name, paths = f"{hub.huggingface} {hub.subset} {hub.split}", []
        case str():
            entry = load_catalog().corpus(source, src_lang, tgt_lang)
            sides = entry.src, entry.tgt
            return Corpus(entry.name, source, src_lang, tgt_lang, entry.n_pairs, sides)
    files = tuple(CatalogText(file=Path(path), member=None) for path in paths)
    return Corpus(name, source, src_lang, tgt_lang, None, files)
