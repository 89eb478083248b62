"""Parallel text: the corpora that a recipe names, from the catalog or from a source."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from nmtkit.sources.catalog import RemoteFile, Selection, load_catalog
from nmtkit.sources.download import Downloads, archive_at
from nmtkit.sources.file_pair import FilePair, OpusZip
from nmtkit.sources.kinds import WeightedCorpus, check_formats, source_name
from nmtkit.sources.opus import NAME
from nmtkit.sources.sacrebleu_set import find_set, is_set, set_names
from nmtkit.sources.sides import Variants
from nmtkit.sources.source import Pair, Row, Source, combine_hashes
from nmtkit.sources.text_file import TextFile
from nmtkit.store.records import file_sha256
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language
from nmtkit.utils.section import did_you_mean

# Bytes that `prepare` writes per stored byte, about: the clean text while it works, and the ids.
PREPARED_PER_STORED_BYTE = 2

OPUS = rf"opus:({NAME})"
OPUS_HOST = "https://object.pouta.csc.fi"  # has the archives
Facts = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """A text and its translations. They are read only when they are needed.

    Attributes:
        name: The name in messages, and in the manifest.
        source: Reads the text.
        langs: The languages of source and target.
        remote: Downloads, with the member of each archive.
        shipped: Texts of the catalog that come with nmtkit.
        n_pairs: The published number of pairs, if there is one.
        selection: The lines of the text that form the corpus; None: all.
    """

    name: str
    source: Source
    langs: tuple[Language, Language]
    remote: tuple[tuple[RemoteFile, str | None], ...] = ()
    shipped: tuple[TextFile, ...] = ()
    n_pairs: int | None = None
    selection: Selection | None = None

    @property
    def downloads(self) -> list[RemoteFile]:
        """The files to download."""
        return [file for file, _ in self.remote]

    @property
    def places(self) -> list[str]:
        """The addresses or paths of its files, as messages name them."""
        if self.remote:
            return [file.url for file in self.downloads]
        return [str(text.path) for text in self._texts]

    def prepared_bytes(self, downloads: Downloads) -> int:
        """Estimate the bytes that `prepare` writes, from the file sizes that are known."""
        stored = {}  # a file counts once, even if both sides are in it
        for file in self.downloads:
            stored[file.url] = downloads.known_bytes(file) or 0
        for text in self._texts:
            if text.path.is_file():
                stored[str(text.path)] = text.path.stat().st_size
        return PREPARED_PER_STORED_BYTE * sum(stored.values())

    def identity(self) -> list[str]:
        """Return the values that determine the text: hashes of files, or a commit of the Hub."""
        hashes = [f"{file.digest}:{member or ''}" for file, member in self.remote]
        if not self.remote:
            # As plain text, the same bytes are another text than as SGML.
            sgml_paths = {text.path for text in self._texts if text.is_sgml}
            for path, sha256 in self._sha256s.items():
                hashes.append(f"{sha256}:sgml" if path in sgml_paths else sha256)
            if self.source.may_be_folder and not self.shipped:
                hashes = [combine_hashes(hashes)]
        identity = self.source.identity(hashes)
        if self.selection is not None:
            identity += [self.selection.sha1[lang.canonical] for lang in self.langs]
        return [*identity, "swapped"] if self.source.swapped else identity

    def pairs(self, downloads: Downloads) -> Iterator[Pair]:
        """Fetch the files at once, and return an iterator over their (src, tgt) pairs.

        Of several translations, the first is the target. See `rows`.
        """
        return self._first_pairs(self.rows(downloads))

    def rows(self, downloads: Downloads) -> Iterator[Row]:
        """Fetch the files at once, and return an iterator over sentences with all translations.

        After the last row, warnings about the text are printed: once, even if it is read again.
        """
        variants = Variants(*self.langs)
        n_expected = None
        if self.remote:
            places = []
            # wmt16_en_de.sh concatenates the files of corpora as they are, with their marks.
            keep_bom = isinstance(self.source, FilePair)
            for file, member in self.remote:
                place = TextFile(downloads.fetch(file), member, keep_bom=keep_bom)
                places.append(place)
                # The hash of another archive does not vouch for the number of its pairs.
                if archive_at(file, place.path) != file:
                    n_expected = self.n_pairs
            texts = self.source.texts_at(places)
        else:
            texts = [replace(text, sha256=self._sha256s[text.path]) for text in self._texts]
            if not self.shipped:
                check_formats(texts, type(self.source))
        rows = self.source.rows(texts, variants)
        if self.source.swapped:
            rows = ((row[1], row[0]) for row in rows)
        if self.selection is not None:
            rows = self.selection.select(rows, self.langs, self.name)
        return self._checked(rows, n_expected, variants)

    def _checked(
        self, rows: Iterator[Row], n_expected: int | None, variants: Variants
    ) -> Iterator[Row]:
        """Yield rows, then check their number and report the skipped units and chosen variants.

        Args:
            n_expected: Their required number, if it is known.
            variants: Counts the units of the source.
        """
        n_rows = 0
        for row in rows:
            n_rows += 1
            yield row
        # A caller that stops early, such as a preview, gets no report: the counts are not final.
        if n_rows == 0:
            where = f" ({', '.join(self.places)})" if self.places else ""
            reason = variants.missing_reason()
            raise UserError(f"the corpus {self.name} has no sentence pairs: it {reason}{where}")
        if n_expected not in (None, n_rows):
            raise UserError(
                f"an archive of {self.name} has {n_rows:,} pairs, not the published "
                f"{n_expected:,}; remove it from the folder of downloads"
            )
        # The counts are complete only now.
        for message in variants.warnings() + self.source.warnings(*self.langs):
            progress.warn_once(f"{self.name}: {message}")
        for note in variants.notes():
            progress.log_once(f"{self.name}: {note}")

    def _first_pairs(self, rows: Iterator[Row]) -> Iterator[Pair]:
        """Yield the source and the first translation of every row; see `pairs`."""
        n_translations = 0
        for row in rows:
            n_translations = max(n_translations, len(row) - 1)
            yield row[0], row[1] if len(row) > 1 else ""
        if n_translations > 1:
            progress.warn_once(
                f"{self.name}: only the first of {n_translations} translations is used"
            )

    @cached_property
    def _texts(self) -> tuple[TextFile, ...]:
        """The local files: the user's own, or those shipped with nmtkit."""
        if self.remote:
            return ()
        if self.shipped:
            return tuple(self.source.texts_at(self.shipped))
        return tuple(self.source.files())

    @cached_property
    def _sha256s(self) -> dict[Path, str]:
        """The hashes of the local files. Reading them compares the bytes with these.

        Raises:
            UserError: A file does not exist, or is a folder.
        """
        sha256s = {}
        for text in self._texts:
            if text.path.is_dir():
                raise UserError(f"{text.path} is a folder; pass a file in it")
            if not text.path.is_file():
                raise UserError(f"{text.path} does not exist; correct the path")
            sha256s[text.path] = _sha256_at(text.path, text.path.stat().st_ctime_ns)
        return sha256s


@cache
def _sha256_at(path: Path, _ctime_ns: int) -> str:
    """Return the hash of a file as of a time: many recipes and variants may have the same text."""
    return file_sha256(path)


def check_test_set(name: str, src_lang: Language, tgt_lang: Language) -> None:
    """Refuse a name that is not in the catalog, sacreBLEU or OPUS.

    Args:
        name: The name that the user typed.

    Raises:
        UserError: There is no such test set. Those of the two languages are listed.
    """
    catalog = load_catalog()
    if name in catalog.corpora or is_set(name) or re.fullmatch(OPUS, name):
        return
    known = set_names(src_lang, tgt_lang)
    for corpus in catalog.corpora:
        pairs = catalog.pairs(corpus)
        has_pair = (src_lang, tgt_lang) in pairs or (tgt_lang, src_lang) in pairs
        if has_pair and "test" in corpus:
            known.append(corpus)
    hint = did_you_mean(name, known)
    names = ", ".join(name for name in known if "/" not in name) or "none"
    raise UserError(f"unknown test set {name!r}{hint}; {src_lang}-{tgt_lang} has {names}")


def find_corpus(
    source: str | WeightedCorpus | Source, src_lang: Language, tgt_lang: Language
) -> Corpus:
    """Find the corpus that a recipe describes or names.

    Args:
        source: A source, or a name in OPUS, the catalog or sacreBLEU.
        tgt_lang: The target language; `TREE` for parsing.

    Raises:
        UserError: There is no corpus of this name in these languages.
    """
    langs = (src_lang, tgt_lang)
    corpus_name = source_name(source)
    if isinstance(source, Source):
        return Corpus(name=corpus_name, source=source, langs=langs)

    name = source if isinstance(source, str) else source.corpus
    # OPUS has thousands of corpora. The catalog does not list them.
    opus_name = re.fullmatch(OPUS, name)
    if opus_name is not None:
        # OPUS has one archive for both directions, under the languages in alphabetical order or,
        # for a few corpora, in the other one.
        folder = f"{OPUS_HOST}/OPUS-{opus_name[1]}/moses"
        first, second = sorted((str(src_lang), str(tgt_lang)))
        reverse = RemoteFile(urls=(f"{folder}/{second}-{first}.txt.zip",))
        archive = RemoteFile(urls=(f"{folder}/{first}-{second}.txt.zip",), others=(reverse,))
        opus_zip = OpusZip(name=corpus_name, opus_zip=name)
        return Corpus(name=corpus_name, source=opus_zip, langs=langs, remote=((archive, None),))

    catalog = load_catalog()
    # The catalog comes first: importing sacreBLEU is slow.
    if name not in catalog.corpora:
        test_set = find_set(name, src_lang, tgt_lang)
        if test_set is not None:
            downloads = tuple((file, None) for file in test_set.downloads())
            return Corpus(name=corpus_name, source=test_set, langs=langs, remote=downloads)

    text = catalog.text(name, src_lang, tgt_lang)
    remote = []
    shipped = []
    for path in text.source.paths():
        file, member = catalog.file(path)
        if isinstance(file, RemoteFile):
            remote.append((file, member))
        else:
            shipped.append(TextFile(file, member))
    return Corpus(
        name=corpus_name,
        source=text.source,
        langs=langs,
        remote=tuple(remote),
        shipped=tuple(shipped),
        n_pairs=text.n_pairs,
        selection=text.selection,
    )


# The corpora of the catalog, and their files on this machine


def corpus_facts(name: str, downloads: Downloads) -> Facts:
    """Return a corpus of the catalog, and the state of its files; nothing is downloaded."""
    catalog = load_catalog()
    n_pairs: dict[str, int | None] = {}
    # The language pairs of a corpus can have files in common.
    files: dict[RemoteFile | Path, None] = {}
    for src, tgt in catalog.pairs(name):
        text = catalog.text(name, src, tgt)
        n_pairs[f"{src}-{tgt}"] = text.n_pairs
        for path in text.source.paths():
            file, _ = catalog.file(path)
            files[file] = None
    return {
        "name": name,
        "licence": catalog.corpora[name].licence,
        "n_pairs": n_pairs,
        "files": [_file_facts(file, downloads) for file in files],
    }


def _file_facts(file: RemoteFile | Path, downloads: Downloads) -> Facts:
    if isinstance(file, Path):
        return {
            "urls": [],
            "hosts": 0,
            "state": "part of nmtkit",
            "path": str(file),
            "n_bytes": file.stat().st_size,
        }
    hosts = set()
    for archive in file.archives:
        for url in archive.urls:
            hosts.add(urlsplit(url).netloc)
    # A file that is in the mirror counts as here, also if a download of it is incomplete.
    path = downloads.find(file)
    n_bytes = downloads.known_bytes(file)
    n_arrived = downloads.part_bytes(file)
    if path is not None:
        mirror = downloads.mirror
        in_mirror = mirror is not None and path.is_relative_to(mirror)
        state = "in the mirror" if in_mirror else "downloaded"
    elif n_arrived and n_bytes:
        state = f"part: {n_arrived * 100 // n_bytes} %"
    elif n_arrived:
        state = f"part: {n_arrived:,} bytes"
    else:
        state = "not downloaded"
    return {
        **file.model_dump(),
        "n_bytes": n_bytes,
        "hosts": len(hosts),
        "path": str(path) if path else None,
        "state": state,
    }
