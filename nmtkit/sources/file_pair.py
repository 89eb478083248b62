"""A text and its translation, line by line: two files, or those of a zip archive of OPUS."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from os.path import normpath
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import Field

from nmtkit.sources.sgml import align_segments
from nmtkit.sources.sides import Variants, are_swapped, choose_columns, named_languages
from nmtkit.sources.source import DETECTED, Pair, Row, Source, detect_languages, expand_path
from nmtkit.sources.text_file import (
    TextFile,
    file_segments,
    is_compressed,
    list_zip,
    read_lines,
    text_suffix,
)
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language
from nmtkit.utils.text import counted, join_names

# Characters that are neither text nor space. DOS ended a file with the last of them, ^Z.
CONTROLS = "".join(map(chr, [*range(9), *range(14, 27)]))

# Suffixes of other files in archives of OPUS that are also tags of languages.
_NOT_TEXTS = ("ids", "xml")


class FilePair(Source):
    """A text and its translation, each a file of lines, or of segments (.sgm).

    A test set may have several translations, or none: then it is translated and not scored.
    """

    key = "src"
    path_keys = ("src", "tgt")
    title = "plain text"
    has_option = True

    src: str
    tgt: str | Annotated[tuple[str, ...], Field(min_length=1, strict=False)] | None = None
    plain: bool = False  # the files are lines of text, whatever they look like

    def texts_at(self, places: Sequence[TextFile]) -> list[TextFile]:
        """Return the source, then its translations."""
        return [replace(place, is_plain=self.plain) for place in places]

    def description(self) -> str:
        """Describe the format of the files; only the suffix of their names makes it SGML."""
        is_sgml = all(text.is_sgml for text in self.files())
        return "segments of SGML" if is_sgml else self.title

    def default_name(self) -> str:
        """Return a name that both files have in common, such as train.en-de."""
        src, *tgts = (Path(path).name for path in self.paths())
        if not tgts:
            return src
        src_parts = src.split(".")
        tgt_parts = tgts[0].split(".")
        if len(src_parts) != len(tgt_parts):
            return f"{src}-{tgts[0]}"
        parts = []
        n_differing = 0
        for src_part, tgt_part in zip(src_parts, tgt_parts, strict=True):
            is_same = src_part == tgt_part
            parts.append(src_part if is_same else f"{src_part}-{tgt_part}")
            n_differing += not is_same
        # Names that differ in several parts could not be recognized if they were mixed.
        return f"{src}-{tgts[0]}" if n_differing > 1 else ".".join(parts)

    def identity(self, hashes: Sequence[str]) -> list[str]:
        """Return the hashes of the files: nothing else determines the text."""
        return list(hashes)

    @classmethod
    def languages_of(cls, names: Sequence[str]) -> Sequence[Language]:
        """Return the languages that the suffixes show: none for "en" and "txt"."""
        return detect_languages(names)

    def reversed(self) -> Source:
        """Return the source for the opposite direction: of the text and its first translation.

        Raises:
            UserError: There is no translation.
        """
        src, *tgts = self.paths()
        if not tgts:
            raise UserError(f"{src} has no translation, so there is no opposite direction; set tgt")
        return self.model_copy(update={"src": tgts[0], "tgt": src})

    def check(self, _src: Language, _tgt: Language) -> None:
        """Check that the files are different.

        Raises:
            ValueError: A file is both sides.
        """
        paths = set()
        for path in map(normpath, self.paths()):
            if path in paths:
                raise ValueError(f"a source lists {path} twice; list each text once")
            paths.add(path)

    def warnings(self, src: Language, tgt: Language) -> list[str]:
        """Return a warning for each translation whose name and that of the source are swapped."""
        _, *tgt_paths = self.paths()
        warnings = []
        for tgt_path in tgt_paths:
            names = differing_parts(self.src, tgt_path)
            if not names:  # the names differ in more than the language: their suffixes remain
                names = [text_suffix(path).removeprefix(".") for path in (self.src, tgt_path)]
            if are_swapped(names, (src, tgt)):
                warnings.append(
                    f"src = {self.src} and tgt = {tgt_path} are named {tgt} and {src}, but are "
                    f"read as {src} and {tgt}; swap them if the names are right"
                )
        return warnings

    def rows(self, texts: Sequence[TextFile], variants: Variants) -> Iterator[Row]:
        """Yield the lines that belong together; see `Source.rows`.

        Lines of control characters at the end, such as ^Z of DOS, are skipped and counted.
        """
        name = self.default_name() if self.name is None else self.name
        return read_rows(name, *texts, skipped=variants.skipped)


def differing_parts(src: str, tgt: str) -> list[str]:
    """Return the two parts of the names of two files that are different languages.

    They are en and de of train.en.gz and train.de. Only names of sides may differ too: src and ref
    of test.src.en.sgm and test.ref.de.sgm, but not train and valid of train.en and valid.de.

    Returns:
        The part of the source and that of the target, or nothing if there is no such pair or more
        than one.
    """
    names = [Path(path).stem if is_compressed(path) else Path(path).name for path in (src, tgt)]
    # A tag may contain "-" and "_": names are split there only if that is needed.
    for separators in (".", "._", "._-"):
        src_parts, tgt_parts = (re.split(f"[{separators}]", name) for name in names)
        if len(src_parts) != len(tgt_parts):
            continue
        differing = []
        for src_part, tgt_part in zip(src_parts, tgt_parts, strict=True):
            if src_part != tgt_part:
                differing.append([src_part, tgt_part])
        if len(differing) > 1:
            differing = [parts for parts in differing if not _are_sides(*parts)]
        if len(differing) == 1 and len(named_languages(differing[0])) == len(differing[0]):
            return differing[0]
    return []


def _are_sides(src: str, tgt: str) -> bool:
    """Return whether parts of file names are those of a source and of its translation."""
    is_src = src.lower() in ("src", "source")
    return is_src and tgt.lower() in ("tgt", "target", "trg", "ref", "reference")


class OpusZip(Source):
    """A zip archive of OPUS. Its suffixes are languages: TED2020.de-en.de and .en."""

    key = "opus_zip"
    path_keys = ("opus_zip",)
    title = "a zip archive"
    form = "zip"
    has_languages = True
    has_option = True

    opus_zip: str

    @classmethod
    def names_in(cls, path: str, _dialect: Mapping[str, Any] = DETECTED) -> Sequence[str]:
        """Return the suffixes of the parallel files in a user's archive."""
        return list(_parallel_members(expand_path(path)))

    def rows(self, texts: Sequence[TextFile], variants: Variants) -> Iterator[Row]:
        """Yield the lines of the two files of the languages; see `Source.rows`."""
        [archive] = texts
        members = _parallel_members(archive.path)
        names = list(members)
        src, tgt = choose_columns(names, variants.langs, str(archive))
        src_text = TextFile(archive.path, members[names[src]])
        tgt_text = TextFile(archive.path, members[names[tgt]])
        return read_rows(self.name or self.default_name(), src_text, tgt_text)


def _parallel_members(archive: Path) -> dict[str, str]:
    """Return the names of the parallel files in an archive of OPUS, by suffix.

    Raises:
        UserError: The archive has no parallel files, or those of several texts.
    """
    names = list_zip(archive)
    members: dict[str, dict[str, str]] = {}  # by name without suffix, and by suffix
    for name in names:
        suffix = PurePosixPath(name).suffix.removeprefix(".")
        if suffix not in _NOT_TEXTS and Language.from_name(suffix) is not None:
            members.setdefault(name.removesuffix(f".{suffix}"), {})[suffix] = name
    # An archive also has a licence and a README.
    parallel = [by_suffix for by_suffix in members.values() if len(by_suffix) > 1]
    if len(parallel) != 1:
        raise UserError(
            f"{archive} has {len(parallel):,} parallel texts, expected one; pass an archive with "
            f"one text in the Moses format (this one has {join_names(names)})"
        )
    return parallel[0]


def read_parallel(name: str, src: TextFile, tgt: TextFile) -> Iterator[Pair]:
    """Yield the lines of two texts in pairs.

    Args:
        name: The text, for messages.
    """
    return ((row[0], row[1]) for row in read_rows(name, src, tgt))


def read_rows(name: str, *texts: TextFile, skipped: Counter[str] | None = None) -> Iterator[Row]:
    """Yield the lines of a text and its translations that belong together, in bounded memory.

    Lines belong together by their number, and segments of SGML by their ids.

    Args:
        name: The text, for messages.
        texts: The source, then its translations.
        skipped: Counts lines of control characters at the end of a text, which are skipped. None to
            read them like other lines.

    Raises:
        UserError: The texts differ in length.
    """
    readers = _parallel_lines(texts)
    if skipped is not None:
        for position, text in enumerate(texts):
            readers[position] = _without_controls(readers[position], text, skipped)
    for n_rows, row in enumerate(zip_longest(*readers)):
        if None in row:
            # The message has all lengths, so the rest of the longer texts is counted.
            lengths = []
            for text, line, rest in zip(texts, row, readers, strict=True):
                n_lines = n_rows + (line is not None) + sum(1 for _ in rest)
                lengths.append(f"{text} has {counted(n_lines, 'line')}")
            raise UserError(
                f"the sides of {name} differ in length: {', '.join(lengths)}; pass files that are "
                "aligned line by line"
            )
        yield row


def _without_controls(lines: Iterator[str], text: TextFile, skipped: Counter[str]) -> Iterator[str]:
    """Yield lines without those of control characters at the end.

    Args:
        skipped: Counts the lines that are skipped.
    """
    held: list[str] = []  # they are at the end, unless another line follows
    for line in lines:
        if line and line[0] in CONTROLS and not line.strip(CONTROLS):
            held.append(line)
            continue
        if held:
            yield from held
            held = []
        yield line
    if held:
        skipped[f"of control characters at the end of {text}"] += len(held)


def _parallel_lines(texts: Sequence[TextFile]) -> list[Iterator[str]]:
    """Open the lines of several texts; segments of SGML are in the order of the first SGML file."""
    sgml = [text for text in texts if text.is_sgml]
    if len(sgml) < 2:
        return [read_lines(text) for text in texts]
    # SGML files are test sets: they fit into memory.
    segments = [file_segments(text) for text in sgml]
    aligned = iter(align_segments(segments, [str(text) for text in sgml]))
    readers = []
    for text in texts:
        readers.append(iter(next(aligned)) if text.is_sgml else read_lines(text))
    return readers
