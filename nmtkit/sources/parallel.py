"""Parallel text: the corpora that a recipe names, from the catalog or from a source."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path

from nmtkit.sources.catalog import RemoteFile, load_catalog
from nmtkit.sources.download import archive_of, known_bytes
from nmtkit.sources.file_pair import FilePair, OpusZip, opus_file
from nmtkit.sources.kinds import Named, check_form, name_of
from nmtkit.sources.sacrebleu_set import find_set
from nmtkit.sources.selection import SelectedLines, parse_line_numbers
from nmtkit.sources.source import Pair, Row, Source
from nmtkit.sources.text import TextFile
from nmtkit.sources.treebank import Treebank
from nmtkit.sources.variants import Variants
from nmtkit.store.records import sha256_of
from nmtkit.utils.errors import Log, UserError
from nmtkit.utils.language import TREE, Language

# Bytes that `prepare` writes for each stored byte, about: the clean text while it works, and ids.
PREPARED_PER_STORED_BYTE = 2

OPUS = r"opus:([A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*)"

Fetch = Callable[[RemoteFile], Path]


@dataclass(frozen=True, kw_only=True)
class Corpus:
    name: str
    source: Source
    langs: tuple[Language, Language]
    remote: tuple[tuple[RemoteFile, str | None], ...] = ()  # downloads, with the member of each
    shipped: tuple[TextFile, ...] = ()  # texts of the catalog that come with nmtkit
    n_pairs: int | None = None  # None: no count is published

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

    def pairs(
        self, fetch: Fetch, tell: Log = lambda _: None, warn: Log = lambda _: None
    ) -> Iterator[Pair]:
        """Fetch the files at once, and return an iterator over their (src, tgt) pairs.

        Args:
            fetch: Downloads a file.
            tell: Reports, after the last pair, which variants of the languages were taken.
            warn: Warns, after the last pair, of what was skipped.
        """
        rows = self.rows(fetch, tell, warn)
        return ((row[0], row[1] if len(row) > 1 else "") for row in rows)

    def rows(
        self, fetch: Fetch, tell: Log = lambda _: None, warn: Log = lambda _: None
    ) -> Iterator[Row]:
        """Do what `pairs` does, with all translations of each sentence."""
        texts = [TextFile(fetch(file), member) for file, member in self.remote]
        read = zip(self.downloads, texts, strict=True)
        is_other = any(archive_of(file, text.path) != file for file, text in read)
        if not texts:
            texts = [replace(text, sha256=self._sha256s[text.path]) for text in self._texts]
        for text in () if self.remote or self.shipped else texts:
            check_form(text, type(self.source))
        variants = Variants(*self.langs)
        rows = self.source.rows(texts, variants)
        return self._told(rows, self.n_pairs if is_other else None, variants, tell, warn)

    def _told(
        self, rows: Iterator[Row], n_expected: int | None, variants: Variants, tell: Log, warn: Log
    ) -> Iterator[Row]:
        n_rows = 0
        for row in rows:
            n_rows += 1
            yield row
        if n_rows == 0:
            where = f" ({', '.join(self.places)})" if self.places else ""
            raise UserError(f"the corpus {self.name} is empty: it {variants.lack()}{where}")
        if n_expected not in (None, n_rows):
            raise UserError(
                f"another archive of {self.name} has {n_rows:,} pairs, not the published "
                f"{n_expected:,}; remove it"
            )
        if warning := variants.warning():
            warn(f"{self.name}: {warning}")
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
                raise UserError(f"there is no file {path}; correct its name")
        return {path: _sha256_at(path, path.stat().st_ctime_ns) for path in paths}


@cache
def _sha256_at(path: Path, _: int) -> str:
    """Return the hash of a file at a time: many recipes and variants may have the same text."""
    return sha256_of(path)


def find_corpus(source: str | Named | Source, src_lang: Language, tgt_lang: Language) -> Corpus:
    """Find a corpus by its table in a recipe, or by name in OPUS, the catalog or sacreBLEU."""
    langs = src_lang, tgt_lang
    if isinstance(source, Source):
        return Corpus(name=name_of(source), source=source, langs=langs)
    named = partial(Corpus, name=name_of(source), langs=langs)
    name = source if isinstance(source, str) else source.corpus
    if of_opus := re.fullmatch(OPUS, name):
        archive = opus_file(of_opus[1], *langs), None
        return named(source=OpusZip(name=name_of(source), opus_zip=name), remote=(archive,))
    catalog = load_catalog()
    if name not in catalog.corpora and (found := find_set(name, *langs)):
        return named(source=found, remote=tuple((file, None) for file in found.downloads()))
    entry = catalog.corpus(name, *langs)
    files = list(entry.sides)
    kind: Source = FilePair.model_construct(name=entry.name, src=entry.name, tgt=entry.name)
    if tgt_lang == TREE:
        files.pop()
        kind = Treebank(name=entry.name, treebank="", sections=entry.sections)
    elif entry.selection is not None:
        kind = SelectedLines(
            name=entry.name,
            src=entry.name,
            tgt=entry.name,
            lines=parse_line_numbers(entry.selection.lines),
            sha1=(
                entry.selection.sha1[src_lang.canonical],
                entry.selection.sha1[tgt_lang.canonical],
            ),
        )
    return named(
        source=kind,
        remote=tuple((file, each) for file, each in files if isinstance(file, RemoteFile)),
        shipped=tuple(TextFile(file, each) for file, each in files if isinstance(file, Path)),
        n_pairs=entry.n_pairs,
    )
