"""Parallel text: the corpora that a recipe names, from the catalog or from a source."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from nmtkit.errors import UserError
from nmtkit.files import sha256_of
from nmtkit.languages import Language
from nmtkit.sources.catalog import CatalogText, RemoteFile, load_catalog
from nmtkit.sources.download import known_bytes
from nmtkit.sources.file_pair import FilePair
from nmtkit.sources.kinds import check_form, name_of
from nmtkit.sources.source import Pair, Row, Source
from nmtkit.sources.text import TextFile
from nmtkit.sources.treebank import Treebank
from nmtkit.sources.variants import Variants

# Bytes that `prepare` writes for each stored byte: the clean text while it works, and ids. Plain
# text of 24,000 pairs of news takes 1.7; compressed text takes more, archives of many languages
# less.
PREPARED_PER_STORED_BYTE = 2

Fetch = Callable[[RemoteFile], Path]


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """A corpus in the recipe's direction."""

    name: str
    source: Source
    langs: tuple[Language, Language]
    remote: tuple[CatalogText, ...] = ()  # of the catalog: its texts, in place of the source's own
    n_pairs: int | None = None  # None: nobody published a count

    @property
    def has_reference(self) -> bool:
        """Return whether its sentences have translations; if not, these are empty."""
        return self.source.has_reference

    @property
    def downloads(self) -> list[RemoteFile]:
        """Return the files that have to be downloaded."""
        return [text.file for text in self.remote if isinstance(text.file, RemoteFile)]

    @property
    def places(self) -> list[str]:
        """Return the addresses or paths of its files, as messages name them."""
        return [file.url for file in self.downloads] or [str(text.path) for text in self._own_texts]

    @property
    def is_of_files(self) -> bool:
        """Return whether it can be read without a network."""
        return not self.downloads and bool(self.source.path_keys)

    def prepared_bytes(self, downloads_dir: Path) -> int:
        """Estimate how many bytes `prepare` writes, from the file sizes that are known."""
        remote = {file.url: known_bytes(file, downloads_dir) or 0 for file in self.downloads}
        own = {text.path for text in self._own_texts if text.path.is_file()}
        stored = sum(path.stat().st_size for path in own) + sum(remote.values())
        return PREPARED_PER_STORED_BYTE * stored

    def identity(self) -> list[str]:
        """Return what determines the text: hashes and members, or a repository and its commit.

        Raises:
            UserError: one of the user's own files is missing.
        """
        remote = [
            f"{text.file.digest}:{text.member or ''}"
            for text in self.remote
            if isinstance(text.file, RemoteFile)
        ]
        # As plain text, the same bytes are another text than as SGML.
        sgml = {text.path: ":sgml" for text in self._own_texts if text.is_sgml}
        own = [f"{sha256}{sgml.get(path, '')}" for path, sha256 in self._sha256s.items()]
        return self.source.identity(remote or own)

    def pairs(self, fetch: Fetch, tell: Callable[[str], None] = lambda _: None) -> Iterator[Pair]:
        """Fetch the files at once, and return an iterator over their (src, tgt) pairs.

        The pairs keep the order of the corpus and take bounded memory; no side holds a line feed.

        Args:
            fetch: downloads a file and returns its path.
            tell: is told at the end what was left out, a sentence each time.

        Raises:
            UserError: a file is missing, damaged, unsafe, changed or malformed, or there is no
                pair. If the sides differ in length, it is raised after the last whole pair.
        """
        rows = self.rows(fetch, tell)
        return ((row[0], row[1] if len(row) > 1 else "") for row in rows)

    def rows(self, fetch: Fetch, tell: Callable[[str], None] = lambda _: None) -> Iterator[Row]:
        """Do what `pairs` does, with all translations of each sentence."""
        variants = Variants(*self.langs)
        rows = self.source.rows(self._texts(fetch), variants)
        return self._told(rows, variants, tell)

    def _told(
        self, rows: Iterator[Row], variants: Variants, tell: Callable[[str], None]
    ) -> Iterator[Row]:
        first = next(rows, None)
        if first is None:
            where = f" ({', '.join(self.places)})" if self.places else ""
            raise UserError(f"the corpus {self.name} is empty: it {variants.lack()}{where}")
        yield first
        yield from rows
        for note in variants.notes():
            tell(f"{self.name}: {note}")

    def _texts(self, fetch: Fetch) -> list[TextFile]:
        if self.downloads:
            return [
                TextFile(fetch(text.file), text.member)
                for text in self.remote
                if isinstance(text.file, RemoteFile)
            ]
        texts = [replace(text, sha256=self._sha256s[text.path]) for text in self._own_texts]
        for text in texts:
            if not self.remote:
                check_form(text, self.source)
        return texts

    @cached_property
    def _own_texts(self) -> list[TextFile]:
        if self.remote:
            return [
                TextFile(text.file, text.member)
                for text in self.remote
                if isinstance(text.file, Path)
            ]
        return self.source.files()

    @cached_property
    def _sha256s(self) -> dict[Path, str]:
        """Return the hashes of the user's own files, computed once: reading compares with them."""
        paths = list(dict.fromkeys(text.path for text in self._own_texts))
        for path in paths:
            if not path.is_file():
                raise UserError(f"there is no file {path}; correct the recipe")
        return {path: sha256_of(path) for path in paths}


def find_corpus(source: str | Source, src_lang: Language, tgt_lang: Language) -> Corpus:
    """Return the corpus that a recipe names by `source`.

    Raises:
        UserError: the catalog has no such corpus, or not in these languages.
    """
    langs = src_lang, tgt_lang
    if isinstance(source, Source):
        return Corpus(name=name_of(source), source=source, langs=langs)
    entry = load_catalog().corpus(source, *langs)
    if entry.sections is None:
        pair = FilePair.model_construct(name=entry.name, src=entry.name, tgt=entry.name)
        remote = (entry.src, entry.tgt)
        return Corpus(
            name=entry.name, source=pair, langs=langs, remote=remote, n_pairs=entry.n_pairs
        )
    trees = Treebank(name=entry.name, treebank="", sections=entry.sections)
    return Corpus(
        name=entry.name, source=trees, langs=langs, remote=(entry.src,), n_pairs=entry.n_pairs
    )
