"""Translation of text files and streams; an interrupted translation of a file can be resumed."""

import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from nmtkit.decoding.details import Detail, Pieces, details
from nmtkit.decoding.engine import PART_LINES, map_groups
from nmtkit.decoding.output_formats import DETAILED, Format, format_lines
from nmtkit.decoding.text_translator import TextTranslator, Translation, warn_if_cut
from nmtkit.evaluation.degenerate import degenerate_warning
from nmtkit.sources.utf8 import available_lines
from nmtkit.store.files import delete, draft_next_to, move, replaced_file
from nmtkit.store.records import canonical_json
from nmtkit.utils import progress
from nmtkit.utils.errors import Stopped, UserError
from nmtkit.utils.interrupts import EXIT_CODE

Item = TypeVar("Item")
Written = tuple[int, str]  # number of lines of input, and the output for these lines
N_CHECKED = 1_000  # first lines of a text, checked for empty and equal translations


@dataclass(frozen=True)
class Output:
    """The form of the output: format, translations per line, alignments."""

    format: Format
    n_best: int
    align: bool


def translate(
    translator: TextTranslator,
    output: Output,
    source: Path | None = None,
    target: Path | None = None,
    *,
    plain: bool = False,
) -> None:
    """Translate a text line by line.

    Lines of standard input are translated as they arrive. A file is written completely or not at
    all; if the translation is interrupted, the next run resumes it.

    Args:
        translator: Translates the lines.
        source: File or pipe to read; None for standard input.
        target: File or pipe to write; None for standard output.
        plain: Read the source as plain text, even if it looks like another format.
    """
    if source is None and sys.stdin is None:
        raise UserError("standard input is closed; pass --input FILE")
    # The draft of a file is resumed only for the same text, identified by its hash.
    n_lines: int | None = None
    text_hash = uuid4().hex  # a pipe can be read only once, so it is never resumed
    if source and source.is_file():
        # This also refuses a damaged file before anything is translated.
        n_lines, text_hash = _measure(source, plain=plain)

    prompt = None
    if source is None and target is None and sys.stdin.isatty() and sys.stdout.isatty():
        prompt = f"{translator.text.src.lang}> "

    def write_after(n_done: int) -> Iterator[Written]:
        """Translate the lines after the first `n_done`."""
        chunks = _read_chunks(source, n_done, prompt, plain=plain)
        parts = growing_parts(chunks, PART_LINES[translator.engine.device], n_done)
        return _translate_parts(translator, output, parts, n_done)

    # A regular file can be replaced at the end; a pipe or a device is written directly.
    file = replaced_file(target) if target else None
    if file is not None:
        _write_file(write_after, file, n_lines, _depends_on(translator, output, text_hash))
        return
    stream = target.open("w", encoding="utf-8", newline="\n") if target else sys.stdout
    with stream if target else nullcontext():
        try:
            for _, lines in write_after(0):
                stream.write(lines)
                stream.flush()  # the reader may wait for these lines
        except KeyboardInterrupt:
            # The next run cannot resume, because it does not know what was written.
            raise Stopped("stopped", exit_code=EXIT_CODE) from None


def _read_chunks(
    source: Path | None, n_done: int, prompt: str | None, *, plain: bool
) -> Iterable[Iterable[str]]:
    """Return lines of input that are to be translated together.

    Args:
        source: File or pipe to read; None for standard input.
        n_done: Number of lines to skip: an earlier run has translated them.
        prompt: The prompt for lines that the user types; None if they come from elsewhere.
        plain: Read the source as plain text, even if it looks like another format.
    """
    if source is not None:
        return [islice(_file_lines(source, plain=plain), n_done, None)]
    chunks = available_lines(sys.stdin.fileno())
    return chunks if prompt is None else _with_prompt(chunks, prompt)


def _file_lines(path: Path, *, plain: bool) -> Iterator[str]:
    """Yield the lines of a file or a named pipe of plain text."""
    # Imports the readers of all formats; standard input does not need them.
    from nmtkit.sources.kinds import read_plain

    return read_plain(path, is_plain=plain)


def _with_prompt(chunks: Iterable[Item], prompt: str) -> Iterator[Item]:
    """Yield the lines that a user types, and print a prompt before each of them.

    Args:
        chunks: Lines; each chunk is yielded when it arrives.
        prompt: The prompt, on standard error.
    """
    progress.log("translate: type a line and press Enter; press Ctrl-D to finish")
    progress.console.print(prompt, end="", markup=False)
    for chunk in chunks:
        yield chunk
        progress.console.print(prompt, end="", markup=False)
    progress.console.print()


def growing_parts(
    chunks: Iterable[Iterable[Item]], max_items: int, n_done: int = 0
) -> Iterator[list[Item]]:
    """Split chunks into parts that double in size: the first output is early, batches get full.

    The end of a part depends only on its position: a resumed translation has the same batches,
    and thus the same rounding, as an uninterrupted one.

    Args:
        chunks: No part spans two chunks.
        max_items: Maximum size of a part.
        n_done: Number of items before the first chunk.
    """
    for chunk in chunks:
        # Sizes are 1, 2, 4 ..: the number of finished items plus one.
        items = iter(chunk)
        while part := list(islice(items, min(n_done + 1, max_items))):
            yield part
            n_done += len(part)


def _measure(path: Path, *, plain: bool) -> tuple[int, str]:
    """Return the number of lines of a text, and their SHA-256."""
    n_lines = 0
    sha256 = hashlib.sha256()
    for line in _file_lines(path, plain=plain):
        sha256.update(f"{line}\n".encode())
        n_lines += 1
    return n_lines, sha256.hexdigest()


def _depends_on(translator: TextTranslator, output: Output, text_hash: str) -> dict[str, str]:
    """Return everything that a draft depends on; it is resumed only if all of it is equal."""
    return {
        "text": text_hash,
        "model, engine or search": translator.fingerprint,
        "format": canonical_json(asdict(output)),
    }


def _translate_parts(
    translator: TextTranslator, output: Output, parts: Iterable[list[str]], n_done: int
) -> Iterator[Written]:
    """Translate and format lines, part by part.

    Args:
        translator: Translates the lines.
        parts: Lines of input.
        n_done: Number of lines before the first part.
    """
    text = translator.text

    def describe(translations: list[Translation]) -> list[Detail]:
        # Between two Moses tokens there is always a space.
        joins_tgt = not text.sentence_separator and text.tgt.tokenizer != "moses"
        pieces = []
        for line in translations:
            pieces.append(Pieces(line.src, line.tgt, line.has_tag, line.continues, joins_tgt))
        return details(text.subword, translator.engine, pieces, align=output.align)

    number = n_done
    first_pairs: list[tuple[str, str]] = []
    for part in parts:
        translated = translator.n_best(part, output.n_best)
        # Details cost another forward pass; only formats that print them compute them.
        details_by_line: list[list[Detail]] = [[] for _ in part]
        if output.format in DETAILED:
            details_by_line = map_groups(describe, translated)
        written: list[str] = []
        for line, translations, line_details in zip(part, translated, details_by_line, strict=True):
            warn_if_cut(translator, f"line {number + 1:,}", translations[0])
            written += format_lines(output.format, number, line, translations, line_details)
            if len(first_pairs) < N_CHECKED:
                first_pairs.append((line, translations[0].text))
            number += 1
        yield len(part), "".join(f"{line}\n" for line in written)
    if warning := degenerate_warning(first_pairs):
        progress.warn(f"translate: {warning}")


def _write_file(
    write_after: Callable[[int], Iterable[Written]],
    file: Path,
    n_lines: int | None,
    depends_on: Mapping[str, str],
) -> None:
    """Write a file completely or not at all, and resume the draft of an earlier run.

    Args:
        write_after: Returns the output for the lines that follow a number of finished lines.
        n_lines: Number of lines of input; None for a pipe.
        depends_on: Everything that the draft depends on; a draft of anything else is deleted.
    """
    from nmtkit.store.journal import Journal  # standard output needs none

    with draft_next_to(file) as draft:
        journal = Journal(draft, draft, depends_on)
        path = draft / "text"
        n_done = journal["lines"] or 0
        try:
            with (
                progress.task(f"translate: {file}", unit="lines", total=n_lines) as task,
                journal.reopen(path) as out,
            ):
                task.advance(n_done)
                for n, lines in write_after(n_done):
                    # A part is committed only after all of its bytes are in the file.
                    out.write(lines.encode("utf-8"))
                    out.flush()
                    n_done += n
                    journal.commit("lines", n_done, path)
                    task.advance(n)
        except BaseException as error:
            # An empty draft is of no use to the next run.
            if not n_done:
                delete(draft)
            elif n_lines is None:
                # A pipe cannot be read a second time, so the user gets the finished lines.
                message = f"the finished lines are in {path}"
                if isinstance(error, KeyboardInterrupt):
                    raise Stopped(f"stopped; {message}", exit_code=EXIT_CODE) from None
                progress.warn(f"translate: {message}")
            raise
        move(path, file)
        delete(draft)
