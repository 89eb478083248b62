"""Parallel text: the corpora that a recipe names, from the catalog or from a source."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from nmtkit.errors import Say, UserError
from nmtkit.files import sha256_of
from nmtkit.languages import TREE, Language
from nmtkit.sources.catalog import RemoteFile, load_catalog
from nmtkit.sources.download import known_bytes
from nmtkit.sources.file_pair import FilePair
from nmtkit.sources.kinds import Named, check_form, name_of
from nmtkit.sources.source import Pair, Row, Source
from nmtkit.sources.text import TextFile
from nmtkit.sources.treebank import Treebank
from nmtkit.sources.variants import Variants

# Bytes that `prepare` writes for each stored byte, about: the clean text while it works, and ids.
PREPARED_PER_STORED_BYTE = 2

Fetch = Callable[[RemoteFile], Path]


@dataclass(frozen=True, kw_only=True)
class Corpus:
    name: str
    source: Source
    langs: tuple[Language, Language]
    remote: tuple[tuple[RemoteFile, str | None], ...] = ()  # downloads, with the member of each
    shipped: tuple[TextFile, ...] = ()  # texts of the catalog that come with nmtkit
    n_pairs: int | None = None  # None: nobody published a count

    @property
    def downloads(self) -> list[RemoteFile]:
        return [file for file, _ in self.remote]

    @property
    def places(self) -> list[str]:
        """The addresses or paths of its files, as messages name them."""
        return [file.url for file in self.downloads] or [str(text.path) for text in self._texts]

    def prepared_bytes(self, downloads_dir: Path) -> int:
        """Estimate how many bytes `prepare` writes, from the file sizes that are known."""
        remote = {file.url: known_bytes(file, downloads_dir) or 0 for file in self.downloads}
        own = {text.path for text in self._texts if text.path.is_file()}
        stored = sum(path.stat().st_size for path in own) + sum(remote.values())
        return PREPARED_PER_STORED_BYTE * stored

    def identity(self) -> list[str]:
        """Return what determines the text: hashes and members, or a repository and its commit."""
        remote = [f"{file.digest}:{member or ''}" for file, member in self.remote]
        # As plain text, the same bytes are another text than as SGML.
        sgml = {text.path: ":sgml" for text in self._texts if text.is_sgml}
        own = [f"{sha256}{sgml.get(path, '')}" for path, sha256 in self._sha256s.items()]
        return self.source.identity(remote or own)

    def pairs(self, fetch: Fetch, tell: Say = lambda _: None) -> Iterator[Pair]:
        """Fetch the files at once, and return an iterator over their (src, tgt) pairs.

        At the end, `tell` is told what was left out, a sentence each time.
        """
        rows = self.rows(fetch, tell)
        return ((row[0], row[1] if len(row) > 1 else "") for row in rows)

    def rows(self, fetch: Fetch, tell: Say = lambda _: None) -> Iterator[Row]:
        """Do what `pairs` does, with all translations of each sentence."""
        texts = [TextFile(fetch(file), member) for file, member in self.remote]
        if not texts:
            texts = [replace(text, sha256=self._sha256s[text.path]) for text in self._texts]
        for text in () if self.remote or self.shipped else texts:
            check_form(text, self.source)
        variants = Variants(*self.langs)
        return self._told(self.source.rows(texts, variants), variants, tell)

    def _told(self, rows: Iterator[Row], variants: Variants, tell: Say) -> Iterator[Row]:
        first = next(rows, None)
        if first is None:
            where = f" ({', '.join(self.places)})" if self.places else ""
            raise UserError(f"the corpus {self.name} is empty: it {variants.lack()}{where}")
        yield first
        yield from rows
        for note in variants.notes():
            tell(f"{self.name}: {note}")

    @cached_property
    def _texts(self) -> tuple[TextFile, ...]:
        """The local files: the user's own, or those shipped with nmtkit."""
        return () if self.remote else self.shipped or tuple(self.source.files())

    @cached_property
    def _sha256s(self) -> dict[Path, str]:
        """The hashes of these files, computed once: reading compares with them."""
        paths = list(dict.fromkeys(text.path for text in self._texts))
        for path in paths:
            if not path.is_file():
                raise UserError(f"there is no file {path}; correct the recipe")
        return {path: sha256_of(path) for path in paths}


def find_corpus(source: str | Named | Source, src_lang: Language, tgt_lang: Language) -> Corpus:
    langs = src_lang, tgt_lang
    if isinstance(source, Source):
        return Corpus(name=name_of(source), source=source, langs=langs)
    entry = load_catalog().corpus(name_of(source), *langs)
    files = list(entry.sides)
    kind: Source = FilePair.model_construct(name=entry.name, src=entry.name, tgt=entry.name)
    if tgt_lang == TREE:
        files.pop()
        kind = Treebank(name=entry.name, treebank="", sections=entry.sections)
    return Corpus(
        name=entry.name,
        source=kind,
        langs=langs,
        remote=tuple((file, each) for file, each in files if isinstance(file, RemoteFile)),
        shipped=tuple(TextFile(file, each) for file, each in files if isinstance(file, Path)),
        n_pairs=entry.n_pairs,
    )
