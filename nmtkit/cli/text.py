"""A text through a bundle, line by line: read, translated, written and resumed."""

import hashlib
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from threading import Event
from typing import TextIO
from uuid import uuid4

from nmtkit import progress
from nmtkit.cli import keep_finished_work
from nmtkit.decoding.details import Detail, details
from nmtkit.decoding.formats import Format, as_fairseq, as_json, as_moses
from nmtkit.decoding.lines import Translation
from nmtkit.errors import Stopped, UserError
from nmtkit.files import beside, canonical_json, delete, file_of, move
from nmtkit.machine import EngineName
from nmtkit.rooms import hashes
from nmtkit.sources.arriving import arriving_lines, in_growing_parts
from nmtkit.sources.kinds import read_plain
from nmtkit.stages.code import ROOMS
from nmtkit.stages.journal import Journal
from nmtkit.stages.translate import tell_pieces
from nmtkit.translator import Translator

# What a translation of a text depends on, besides its bundle.
ROOMS_OF_TEXT = (*ROOMS["translate"], "interchange/", "cli/text.py")

Found = tuple[list[str], list[list[Translation]]]  # lines and the translations of each


@dataclass(frozen=True)
class Output:
    """What is written of each line."""

    how: Format
    n_best: int
    align: bool


def translate(
    translator: Translator,
    output: Output,
    source: Path | None = None,
    target: Path | None = None,
) -> None:
    """Translate a text.

    A terminal is asked for each line. Other lines of standard input that have arrived are
    translated together; a line that comes alone is answered at once. A file that is translated to
    a file is resumed after the last part that a stopped command finished.

    Args:
        translator: A bundle.
        output: What is written of each line.
        source: A file, which may be compressed; None for standard input.
        target: A file, which is replaced when all lines are translated; None for standard output.

    Raises:
        UserError: A line is not UTF-8, or `target` can't be written.
    """
    # A pipe can be read only once. A damaged file is refused at once.
    is_file = source is not None and source.is_file()
    n_lines, text = _measured(source) if source and is_file else (None, uuid4().hex)

    def written(n_done: int) -> Iterator[tuple[int, str]]:
        chunks: Iterable[Iterable[str]]
        if source is not None:
            chunks = [islice(read_plain(source), n_done, None)]
        elif target is None and sys.stdin.isatty() and sys.stdout.isatty():
            chunks = _typed_lines(f"{translator.text.src.lang}> ")
        else:
            chunks = arriving_lines(sys.stdin.fileno())
        most = translator.engine.lines_per_minute(translator.decoding.beam_size)
        parts = in_growing_parts(chunks, most, n_done)
        # A part of a file is there at once; one that arrives would be waited for.
        found = _search(translator, output.n_best, parts, is_ahead=is_file)
        return _written(translator, output, found, n_done)

    if target is None:
        _write_stream(written(0), sys.stdout)
    elif file := file_of(target):
        keep_finished_work(kept=is_file)
        _write_file(written, file, n_lines, _made_from(translator, output, text))
    else:  # a device or a pipe
        with target.open("w", encoding="utf-8", newline="\n") as stream:
            _write_stream(written(0), stream)


def _measured(path: Path) -> tuple[int, str]:
    """Return how many lines a whole text has, and their SHA-256.

    Raises:
        UserError: It is damaged or not UTF-8.
    """
    n_lines, sha256 = 0, hashlib.sha256()
    for line in read_plain(path):
        sha256.update(f"{line}\n".encode())
        n_lines += 1
    return n_lines, sha256.hexdigest()


def _typed_lines(prompt: str) -> Iterator[list[str]]:
    """Yield each line that is typed at a prompt, until Ctrl-D.

    Raises:
        UserError: A line is not UTF-8.
    """
    with suppress(ImportError):
        import readline  # lets `input` edit a line and recall earlier ones

        readline.set_auto_history(True)
    while True:
        try:
            line = input(prompt)
            line.encode("utf-8")
        except EOFError:
            sys.stdout.write("\n")
            return
        except UnicodeError:
            raise UserError("the line is not valid UTF-8; set the terminal to UTF-8") from None
        yield [line]


def _made_from(translator: Translator, output: Output, text: str) -> dict[str, str]:
    """Return what determines what is written."""
    return {
        "text": text,
        "model, engine or search": translator.fingerprint,
        "format": canonical_json(asdict(output)),
        **hashes(ROOMS_OF_TEXT),
    }


def _search(
    translator: Translator, n_best: int, parts: Iterable[list[str]], *, is_ahead: bool
) -> Iterator[Found]:
    """Yield each part with the translations of its lines.

    Args:
        translator: The bundle.
        n_best: Number of translations of a line.
        parts: The lines.
        is_ahead: Whether CTranslate2 begins with the next part while it ends one. Our own search
            has all cores busy to the end.
    """
    if not (is_ahead and translator.engine.name == EngineName.CTRANSLATE2):
        yield from ((part, translator.n_best(part, n_best)) for part in parts)
        return
    stopping = Event()

    def go_on(_: int) -> None:
        if stopping.is_set():
            raise CancelledError

    def search(part: list[str]) -> Found:
        return part, translator.n_best(part, n_best, go_on)

    begun: deque[Future[Found]] = deque()
    with ThreadPoolExecutor(2) as pool:
        try:
            for part in parts:
                begun.append(pool.submit(search, part))
                if len(begun) == 2:
                    yield begun.popleft().result()
            yield from (each.result() for each in begun)
        finally:
            stopping.set()


def _written(
    translator: Translator, output: Output, parts: Iterable[Found], number: int
) -> Iterator[tuple[int, str]]:
    """Yield the number of lines of each part, and what is written of them.

    Args:
        translator: The bundle.
        output: What is written of each line.
        parts: The lines and their translations.
        number: That of the first line, counted from 0.
    """
    for part, found in parts:
        known: list[Detail] = []
        if output.how.needs_details:
            pieces = [(each.src, each.tgt) for translations in found for each in translations]
            text, engine = translator.text, translator.engine
            known = details(text.subword, engine, pieces, align=output.align)
        rest = iter(known)
        written: list[str] = []
        for line, translations in zip(part, found, strict=True):
            tell_pieces(translator, f"line {number + 1:,}", translations[0])
            of_line = list(islice(rest, len(translations)))
            written += _format(output.how, number, line, translations, of_line)
            number += 1
        yield len(part), "".join(f"{line}\n" for line in written)


def _format(
    how: Format,
    number: int,
    line: str,
    translations: Sequence[Translation],
    details: Sequence[Detail],
) -> list[str]:
    match how:
        case Format.TEXT:
            return [translations[0].text]
        case Format.MOSES:
            return as_moses(number, translations)
        case Format.JSON:
            return [as_json(line, translations, details)]
        case Format.FAIRSEQ:
            return as_fairseq(number, translations, details)


def _write_stream(written: Iterable[tuple[int, str]], stream: TextIO) -> None:
    for _, lines in written:
        stream.write(lines)
        stream.flush()


def _write_file(
    written: Callable[[int], Iterable[tuple[int, str]]],
    file: Path,
    n_lines: int | None,
    made_from: Mapping[str, str],
) -> None:
    """Write a file that is whole or not there; what is stopped is resumed.

    Args:
        written: Returns what is written of the lines after so many.
        file: The file.
        n_lines: Of the text; None: it is not known, and can't be read again.
        made_from: What determines the translation.
    """
    with beside(file) as draft:
        journal = Journal(draft, draft, made_from)
        path, n_done = draft / "text", journal["lines"] or 0
        with (
            progress.task(f"translate: {file}", unit="lines", total=n_lines) as task,
            journal.reopen(path) as out,
        ):
            task.advance(n_done)
            try:
                for n, lines in written(n_done):
                    out.write(lines.encode("utf-8"))
                    out.flush()
                    n_done += n
                    journal.commit("lines", n_done, path)
                    task.advance(n)
            except BaseException as error:
                if not n_done:
                    delete(draft)
                    keep_finished_work(kept=False)
                elif n_lines is None and isinstance(error, KeyboardInterrupt):
                    told = f"stopped; what has been translated is in {path}"
                    raise Stopped(told, exit_code=128 + signal.SIGINT) from None
                raise
        move(path, file)
        delete(draft)
