"""translate --bundle: a text through a bundle, line by line."""

import os
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from nmtkit import artifacts, progress
from nmtkit.corpus.chunks import read_chunks
from nmtkit.decoding.details import Detail, details
from nmtkit.decoding.formats import Format, as_fairseq, as_json, as_moses
from nmtkit.decoding.lines import Translation
from nmtkit.errors import Stopped, UserError
from nmtkit.sources.arriving import arriving_lines, in_growing_parts
from nmtkit.sources.text import TextFile, read_lines
from nmtkit.stages.parts import LINES_PER_PART, tell_pieces
from nmtkit.translator import Translator


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
    *,
    interactive: bool = False,
) -> None:
    """Translate a text.

    Lines of standard input that have arrived are translated together; a line that comes alone is
    answered at once.

    Args:
        translator: A bundle.
        output: What is written of each line.
        source: A file, which may be compressed; None for standard input.
        target: A file, which is replaced when all lines are translated; None for standard output.
        interactive: Whether to ask for each line at a prompt.

    Raises:
        UserError: A line is not UTF-8, the beam is too narrow for the n-best list, or the text is
            the draft of `target`.
    """
    beam_size = translator.decoding.beam_size
    if output.n_best > beam_size:
        raise UserError(
            f"--n-best {output.n_best:,} is more than the beam of {beam_size:,}; add --beam "
            f"{output.n_best}"
        )
    if source and target and os.path.realpath(source) == f"{os.path.realpath(target)}.partial":
        raise UserError(
            f"--output {target} is written to {target}.partial until it is whole, which is the "
            "--input; name another --output"
        )
    most = LINES_PER_PART[translator.engine.device]
    n_lines = None
    if source is not None:
        text = TextFile(source)
        if source.is_file():  # a pipe can be read only once
            n_lines = sum(1 for _ in read_lines(text))  # a damaged file is refused at once
        chunks = read_chunks(read_lines(text), most)
    elif interactive:
        chunks = _typed_lines(f"{translator.text.src.lang}> ")
    else:
        chunks = arriving_lines(sys.stdin.fileno())
    written = _written(translator, output, in_growing_parts(chunks, most))
    if target is not None:
        _write_file(written, target, n_lines)
        return
    for _, lines in written:
        sys.stdout.writelines(lines)
        sys.stdout.flush()


@contextmanager
def ended_by_ctrl_c() -> Iterator[None]:
    """Let Ctrl-C end a command that can't be resumed."""
    try:
        yield
    except KeyboardInterrupt:
        raise Stopped("stopped", exit_code=128 + signal.SIGINT) from None


def _typed_lines(prompt: str) -> Iterator[list[str]]:
    """Yield each line that is typed at a prompt, until Ctrl-D.

    Raises:
        UserError: There is no terminal, or a line is not UTF-8.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError(
            "--interactive reads from a terminal and writes to it, and standard input or output is "
            "none; leave it out"
        )
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


def _written(
    translator: Translator, output: Output, parts: Iterable[list[str]]
) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of lines of each part, and what is written of them."""
    number = 0
    for part in parts:
        found = translator.n_best(part, output.n_best)
        known = iter(_details(translator, output, found))
        written: list[str] = []
        for line, translations in zip(part, found, strict=True):
            tell_pieces(translator, f"line {number + 1:,}", translations[0])
            of_line = list(islice(known, len(translations)))
            written += _format(output.how, number, line, translations, of_line)
            number += 1
        yield len(part), [f"{line}\n" for line in written]


def _details(
    translator: Translator, output: Output, found: Iterable[Sequence[Translation]]
) -> list[Detail]:
    """Return the details of all translations, if the format shows them."""
    if not output.how.needs_details:
        return []
    pieces = [(each.src, each.tgt) for translations in found for each in translations]
    return details(translator.text.subword, translator.engine, pieces, align=output.align)


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


def _write_file(parts: Iterable[tuple[int, list[str]]], target: Path, n_lines: int | None) -> None:
    """Write a file that is whole or not there; a draft of it keeps what was done."""
    with (
        artifacts.draft_of_file(target) as draft,
        progress.task(f"translate: {target}", unit="lines", total=n_lines) as task,
    ):
        try:
            with draft.open("w", encoding="utf-8", newline="\n") as file:
                for n, lines in parts:
                    file.writelines(lines)
                    file.flush()
                    task.advance(n)
        except KeyboardInterrupt:
            told = f"stopped; what has been translated is in {draft}"
            raise Stopped(told, exit_code=128 + signal.SIGINT) from None
