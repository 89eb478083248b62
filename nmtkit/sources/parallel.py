"""Parallel text: the corpora that a recipe names, one class for each way of storing one."""

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, zip_longest
from pathlib import Path
from typing import ClassVar

from nmtkit import artifacts
from nmtkit.errors import UserError
from nmtkit.recipe import (
    TREE,
    FilePair,
    HubSource,
    Source,
    SourceFile,
    TestSource,
    TmxFile,
    Treebank,
    TsvFile,
    name_of,
)
from nmtkit.sources.catalog import CatalogCorpus, CatalogText, RemoteFile, load_catalog
from nmtkit.sources.download import identity as download_identity
from nmtkit.sources.download import known_bytes, known_sha256
from nmtkit.sources.hub import read_rows
from nmtkit.sources.text import TextFile, read_lines
from nmtkit.sources.tmx import read_units
from nmtkit.sources.treebank import files_of, normalize, read_trees

# Bytes that `prepare` writes for each stored byte: the clean text while it works, and ids. Plain
# text of 24,000 pairs of news takes 1.7; compressed text takes more, archives of many languages
# less.
PREPARED_PER_STORED_BYTE = 2

Pair = tuple[str, str]
Fetch = Callable[[RemoteFile], Path]


@dataclass(frozen=True, kw_only=True)
class Corpus(ABC):
    """A corpus in the recipe's direction."""

    has_reference: ClassVar[bool] = True  # or else the second side of its pairs is empty

    name: str
    n_pairs: int | None = None  # None: nobody published a count
    files: tuple[CatalogText, ...] = ()  # both sides, or the one file that holds them

    @property
    def downloads(self) -> list[RemoteFile]:
        """Return the files that have to be downloaded."""
        return [text.file for text in self.files if isinstance(text.file, RemoteFile)]

    def downloads_of_unknown_hash(self, downloads_dir: Path) -> list[RemoteFile]:
        """Return the downloads without which `identity` cannot be known yet."""
        return [file for file in self.downloads if known_sha256(file, downloads_dir) is None]

    def prepared_bytes(self, downloads_dir: Path) -> int:
        """Estimate how many bytes `prepare` writes, from the file sizes that are known."""
        own = [text.file for text in self.files if isinstance(text.file, Path)]
        remote = {file.url: known_bytes(file, downloads_dir) or 0 for file in self.downloads}
        stored = sum(path.stat().st_size for path in own if path.is_file()) + sum(remote.values())
        return PREPARED_PER_STORED_BYTE * stored

    def identity(self, downloads_dir: Path) -> list[str]:
        """Return what determines the text: hashes and members, or a repository and its commit.

        The hash of a user's own file of SGML is marked: as plain text, the same bytes are others.

        Raises:
            UserError: a file is missing, or was never downloaded and has no published hash.
        """
        return [
            f"{download_identity(text.file, downloads_dir)}:{text.member or ''}"
            if isinstance(text.file, RemoteFile)
            else self._sha256s[text.file] + (":sgml" if TextFile(text.file).is_sgml else "")
            for text in self.files
        ]

    @abstractmethod
    def pairs(self, fetch: Fetch) -> Iterator[Pair]:
        """Fetch the files at once, and return an iterator over their (src, tgt) pairs.

        The pairs keep the order of the corpus and take bounded memory; no side holds a line feed.

        Args:
            fetch: downloads a file and returns its path.

        Raises:
            UserError: a file is missing, damaged, unsafe, changed or malformed, or there is no
                pair. If the sides differ in length, it is raised after the last whole pair.
        """

    def _texts(self, fetch: Fetch) -> list[TextFile]:
        return [
            TextFile(fetch(text.file), text.member)
            if isinstance(text.file, RemoteFile)
            else TextFile(text.file, text.member, self._sha256s[text.file])
            for text in self.files
        ]

    @cached_property
    def _sha256s(self) -> dict[Path, str]:
        """Return the hashes of the user's own files, computed once: reading compares with them."""
        paths = [text.file for text in self.files if isinstance(text.file, Path)]
        for path in paths:
            if not path.is_file():
                raise UserError(f"there is no file {path}; correct the recipe")
        return {path: artifacts.sha256_of(path) for path in paths}


class FilePairCorpus(Corpus):
    """Two texts with the same number of lines."""

    def pairs(self, fetch: Fetch) -> Iterator[Pair]:
        src, tgt = self._texts(fetch)
        return read_parallel(self.name, src, tgt)


class SourceCorpus(Corpus):
    """A text without a reference."""

    has_reference = False

    def pairs(self, fetch: Fetch) -> Iterator[Pair]:
        [text] = self._texts(fetch)
        lines = ((line, "") for line in read_lines(text))
        return _not_empty(lines, self.name, f"{text} has no line")


@dataclass(frozen=True, kw_only=True)
class TsvCorpus(Corpus):
    """One text, each line of which has columns with a tab between them."""

    columns: tuple[str, ...]  # the names of all
    header: bool  # the first line has names instead of text
    langs: tuple[str, str]  # the names of the two that are read

    def identity(self, downloads_dir: Path) -> list[str]:
        kind = "tsv with header" if self.header else "tsv"
        return [kind, *super().identity(downloads_dir), *self.columns]

    def pairs(self, fetch: Fetch) -> Iterator[Pair]:
        [text] = self._texts(fetch)
        return _not_empty(self._pairs(text), self.name, f"{text} has no line of text")

    def _pairs(self, text: TextFile) -> Iterator[Pair]:
        src, tgt = map(self.columns.index, self.langs)
        for number, line in enumerate(read_lines(text), 1):
            n_columns = line.count("\t") + 1
            if n_columns != len(self.columns):
                raise UserError(
                    f"{text}, line {number:,}: {n_columns:,} columns, but the recipe names "
                    f"{len(self.columns):,} ({', '.join(self.columns)}); correct the line, or name "
                    "all columns of the file in `columns`"
                )
            if number > 1 or not self.header:
                cells = line.split("\t")
                yield cells[src], cells[tgt]


@dataclass(frozen=True, kw_only=True)
class TmxCorpus(Corpus):
    """A translation memory, from which the units in both languages are taken."""

    langs: tuple[str, str]

    def identity(self, downloads_dir: Path) -> list[str]:
        return ["tmx", *super().identity(downloads_dir)]

    def pairs(self, fetch: Fetch) -> Iterator[Pair]:
        [text] = self._texts(fetch)
        units = read_units(text.blocks(), str(text), *self.langs)
        return _not_empty(
            units, self.name, f"{text} has no unit in both {' and '.join(self.langs)}"
        )


@dataclass(frozen=True, kw_only=True)
class TreebankCorpus(Corpus):
    """Trees, each of which is paired with its words."""

    place: str | None = None  # the user's own folder, archive or file; else there is one download
    sections: tuple[str, ...]

    def identity(self, downloads_dir: Path) -> list[str]:
        if self.place is None:
            return ["treebank", *self.sections, *super().identity(downloads_dir)]
        hashes = hashlib.sha256()
        for sha256 in self._own_sha256s.values():
            hashes.update(sha256.encode())
        return ["treebank", *self.sections, hashes.hexdigest()]

    def prepared_bytes(self, downloads_dir: Path) -> int:
        own = sum(path.stat().st_size for path in self._own_sha256s)
        return PREPARED_PER_STORED_BYTE * own or super().prepared_bytes(downloads_dir)

    def pairs(self, fetch: Fetch) -> Iterator[Pair]:
        if self.place is None:
            [text] = self._texts(fetch)
            files = [
                replace(file, sha256=text.sha256) for file in files_of(text.path, self.sections)
            ]
        else:
            files = [replace(file, sha256=self._own_sha256s[file.path]) for file in self._own_files]
        trees = chain.from_iterable(map(read_trees, files))
        return _not_empty(trees, self.name, f"{self.place or files[0].path} has no tree")

    @cached_property
    def _own_files(self) -> list[TextFile]:
        if self.place is None:
            return []
        return files_of(_own_path(self.place), self.sections)

    @cached_property
    def _own_sha256s(self) -> dict[Path, str]:
        return {file.path: artifacts.sha256_of(file.path) for file in self._own_files}


@dataclass(frozen=True, kw_only=True)
class HubCorpus(Corpus):
    """A data set of the Hugging Face Hub."""

    source: HubSource
    langs: tuple[str, str]

    def identity(self, downloads_dir: Path) -> list[str]:  # noqa: ARG002 - it has no file
        hub = self.source
        return ["huggingface", hub.huggingface, hub.subset, hub.split, hub.revision]

    def pairs(self, fetch: Fetch) -> Iterator[Pair]:  # noqa: ARG002 - it has no file
        hub = self.source
        rows = read_rows(hub.huggingface, hub.revision, hub.subset, hub.split, self.langs)
        if self.langs[1] == TREE:
            where = f"{hub.split} of {hub.huggingface}"
            numbered = enumerate((tree for _, tree in rows), 1)
            rows = (normalize(tree, f"{where}, row {number:,}") for number, tree in numbered)
        return _not_empty(rows, self.name, f"{hub.split} of {hub.huggingface} has no row")


def find_corpus(source: Source | TestSource, src_lang: str, tgt_lang: str) -> Corpus:
    """Return the corpus that a recipe names by `source`.

    Raises:
        UserError: the catalog has no such corpus, or not in these languages.
    """
    name, langs = name_of(source), (src_lang, tgt_lang)
    found: Corpus
    match source:
        case str():
            found = _of_catalog(load_catalog().corpus(source, *langs))
        case FilePair(src=src, tgt=tgt):
            found = FilePairCorpus(name=name, files=_own_files(src, tgt))
        case SourceFile(src=src):
            found = SourceCorpus(name=name, files=_own_files(src))
        case TsvFile(tsv=tsv, columns=columns, header=header):
            found = TsvCorpus(
                name=name, files=_own_files(tsv), columns=columns, header=header, langs=langs
            )
        case TmxFile(tmx=tmx):
            found = TmxCorpus(name=name, files=_own_files(tmx), langs=langs)
        case Treebank(treebank=place, sections=sections):
            found = TreebankCorpus(name=name, place=place, sections=sections)
        case HubSource():
            found = HubCorpus(name=name, source=source, langs=langs)
    return found


def _of_catalog(entry: CatalogCorpus) -> Corpus:
    if entry.sections is None:
        return FilePairCorpus(name=entry.name, n_pairs=entry.n_pairs, files=(entry.src, entry.tgt))
    return TreebankCorpus(
        name=entry.name, n_pairs=entry.n_pairs, files=(entry.src,), sections=entry.sections
    )


def _own_files(*paths: str) -> tuple[CatalogText, ...]:
    return tuple(CatalogText(file=_own_path(path), member=None) for path in paths)


def _own_path(path: str) -> Path:
    """Resolve a variable of the environment that `path` begins with.

    Raises:
        UserError: The environment has no such variable, or it is empty.
    """
    if not path.startswith("$"):
        return Path(path)
    variable, _, rest = path.partition("/")
    folder = os.path.expandvars(variable)
    if not folder or folder.startswith("$"):
        raise UserError(
            f"the recipe reads {path}, and the environment has no {variable[1:]}; set it to the "
            "folder"
        )
    return Path(folder, rest)


def read_parallel(name: str, src: TextFile, tgt: TextFile) -> Iterator[Pair]:
    """Yield the lines of two texts in pairs, in bounded memory.

    Args:
        name: how messages name the two together.

    Raises:
        UserError: a file is missing, damaged, unsafe, changed or not UTF-8, or both are empty. If
            they differ in length, it is raised after the last whole pair.
    """
    return _not_empty(_zipped(name, src, tgt), name, f"{src} has no line")


def _zipped(name: str, src: TextFile, tgt: TextFile) -> Iterator[Pair]:
    src_lines, tgt_lines = read_lines(src), read_lines(tgt)
    for n_pairs, (src_line, tgt_line) in enumerate(zip_longest(src_lines, tgt_lines)):
        if src_line is None or tgt_line is None:
            n_src = n_pairs + (src_line is not None) + sum(1 for _ in src_lines)
            n_tgt = n_pairs + (tgt_line is not None) + sum(1 for _ in tgt_lines)
            raise UserError(
                f"the sides of {name} differ in length: {src} has {n_src:,} lines, "
                f"{tgt} has {n_tgt:,}; give two files whose lines belong together"
            )
        yield src_line, tgt_line


def _not_empty(pairs: Iterator[Pair], name: str, lack: str) -> Iterator[Pair]:
    first = next(pairs, None)
    if first is None:
        raise UserError(f"the corpus {name} is empty: {lack}")
    yield first
    yield from pairs
