"""A text through a bundle, line by line: translated, resumed where it was stopped, or rated."""

import hashlib
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from nmtkit.corpus.long_lines import MAX_CHARACTERS
from nmtkit.corpus.special_tokens import EOS_ID
from nmtkit.decoding.details import details
from nmtkit.decoding.engine import PART_LINES, gnmt_length_penalty
from nmtkit.decoding.formats import DETAILED, Format, lines_of
from nmtkit.decoding.lines import MAX_SUBWORDS, Text, Translation
from nmtkit.evaluation.perplexity import perplexity_of
from nmtkit.sources.file_pair import read_parallel
from nmtkit.sources.kinds import check_form, read_plain
from nmtkit.sources.text import TextFile, arriving_lines
from nmtkit.stages.translate import warn_if_cut
from nmtkit.store.files import beside, delete, file_of, move
from nmtkit.store.journal import Journal
from nmtkit.store.records import canonical_json
from nmtkit.translator import Translator
from nmtkit.utils import progress
from nmtkit.utils.errors import Stopped, UserError

Item = TypeVar("Item")


@dataclass(frozen=True)
class Output:
    how: Format
    n_best: int
    align: bool


def translate(
    translator: Translator,
    output: Output,
    source: Path | None = None,
    target: Path | None = None,
    *,
    plain: bool = False,
) -> None:
    """Translate a text: lines of standard input as they arrive; from file to file resumably."""
    if source is None and sys.stdin is None:
        raise UserError("standard input is closed; give --input")
    # A pipe can be read only once. A damaged file is refused at once.
    n_lines, text = _measured(source, plain) if source and source.is_file() else (None, uuid4().hex)

    def written(n_done: int) -> Iterator[tuple[int, str]]:
        chunks: Iterable[Iterable[str]] = (
            [islice(read_plain(source, is_plain=plain), n_done, None)]
            if source is not None
            else arriving_lines(sys.stdin.fileno())
        )
        parts = in_growing_parts(chunks, PART_LINES[translator.engine.device], n_done)
        return _written(translator, output, parts, n_done)

    if target and (file := file_of(target)):
        _write_file(written, file, n_lines, _made_from(translator, output, text))
        return
    stream = target.open("w", encoding="utf-8", newline="\n") if target else sys.stdout
    with stream if target else nullcontext():
        for _, lines in written(0):
            stream.write(lines)
            stream.flush()


def in_growing_parts(
    chunks: Iterable[Iterable[Item]], most: int, n_done: int = 0
) -> Iterator[list[Item]]:
    """Split chunks into parts of one item, then of as many as were before, up to `most`.

    So the first result is out early, and later batches are full. Where a part ends depends on
    nothing but its place: after `n_done` items, what is left is split as if none were done.
    """
    for chunk in chunks:
        items = iter(chunk)
        while part := list(islice(items, min(n_done + 1, most))):
            yield part
            n_done += len(part)


def _measured(path: Path, plain: bool) -> tuple[int, str]:
    n_lines, sha256 = 0, hashlib.sha256()
    for line in read_plain(path, is_plain=plain):
        sha256.update(f"{line}\n".encode())
        n_lines += 1
    return n_lines, sha256.hexdigest()


def _made_from(translator: Translator, output: Output, text: str) -> dict[str, str]:
    return {
        "text": text,
        "model, engine or search": translator.fingerprint,
        "format": canonical_json(asdict(output)),
    }


def _written(
    translator: Translator, output: Output, parts: Iterable[list[str]], number: int
) -> Iterator[tuple[int, str]]:
    """Yield the number of lines of each part, and what is written of them, from line `number`."""
    for part in parts:
        found = translator.n_best(part, output.n_best)
        pieces = [(each.src, each.tgt) for translations in found for each in translations]
        shown = pieces if output.how in DETAILED else []
        engine, subword = translator.engine, translator.text.subword
        known = iter(details(subword, engine, shown, align=output.align))
        written: list[str] = []
        for line, translations in zip(part, found, strict=True):
            warn_if_cut(translator, f"line {number + 1:,}", translations[0])
            of_line = list(islice(known, len(translations)))
            written += lines_of(output.how, number, line, translations, of_line)
            number += 1
        yield len(part), "".join(f"{line}\n" for line in written)


def _write_file(
    written: Callable[[int], Iterable[tuple[int, str]]],  # of the lines after so many
    file: Path,
    n_lines: int | None,
    made_from: Mapping[str, str],
) -> None:
    """Write a file whole or not at all, resumably; `n_lines` is None of a text read once."""
    with beside(file) as draft:
        journal = Journal(draft, draft, made_from)
        path, n_done = draft / "text", journal["lines"] or 0
        try:
            with (
                progress.task(f"translate: {file}", unit="lines", total=n_lines) as task,
                journal.reopen(path) as out,
            ):
                task.advance(n_done)
                for n, lines in written(n_done):
                    out.write(lines.encode("utf-8"))
                    out.flush()
                    n_done += n
                    journal.commit("lines", n_done, path)
                    task.advance(n)
        except BaseException as error:
            if not n_done:
                delete(draft)
            elif n_lines is None and isinstance(error, KeyboardInterrupt):
                told = f"stopped; what has been translated is in {path}"
                raise Stopped(told, exit_code=128 + signal.SIGINT) from None
            raise
        move(path, file)
        delete(draft)


# Given translations


def rated(
    translator: Translator,
    src: Path,
    tgt: Path,
    how: Format,
    *,
    align: bool = False,
    plain: bool = False,
) -> Iterator[str]:
    """Rate each line of a text as the translation of the same line of another, and tell the sum."""
    files = [TextFile(path, is_plain=plain) for path in (src, tgt)]
    for file in files:
        if file.path.is_file():  # a pipe can be read only once
            check_form(file)
    pairs = read_parallel("source and translations", *files)
    n_lines, n_tokens, log_prob = 0, 0, 0.0
    for part in in_growing_parts([pairs], PART_LINES[translator.engine.device]):
        pieces = [
            _pieces(translator.text, *pair, f"line {number:,}")
            for number, pair in enumerate(part, start=n_lines + 1)
        ]
        found = details(translator.text.subword, translator.engine, pieces, align=align)
        for (source, text), (src_ids, tgt_ids), detail in zip(part, pieces, found, strict=True):
            alpha = translator.decoding.length_penalty
            score = detail.log_prob / gnmt_length_penalty(detail.n_tokens, alpha)
            given = Translation(text, score, detail.log_prob, src_ids, tgt_ids)
            if how == "text":
                yield f"{detail.log_prob:.4f}\t{detail.perplexity:.4f}"
            else:
                yield from lines_of(how, n_lines, source, [given], [detail], is_reference=True)
            n_lines += 1
            n_tokens += detail.n_tokens
            log_prob += detail.log_prob
    if n_lines == 0:
        raise UserError(f"{src} has no line; name a text that has")
    progress.log(
        f"force: {n_lines:,} lines, {n_tokens:,} tokens with each EOS, log-probability "
        f"{log_prob:,.2f}, perplexity {perplexity_of(-log_prob, n_tokens):.4f}"
    )


def _pieces(text: Text, src: str, tgt: str, where: str) -> tuple[list[list[int]], list[list[int]]]:
    """Return the ids of a line and of its translation: one piece, or none if both are blank."""
    if max(len(src), len(tgt)) <= MAX_CHARACTERS:
        src_ids, tgt_ids = text.encode(src), text.encode_target(tgt)
        if not src_ids and not tgt_ids:
            return [], []
        if max(len(src_ids), len(tgt_ids) + 1) <= MAX_SUBWORDS:
            return [src_ids or [EOS_ID]], [tgt_ids]
    raise UserError(
        f"{where} is too long to be rated (more than {MAX_SUBWORDS:,} subwords or "
        f"{MAX_CHARACTERS:,} characters); split it, or leave it out"
    )
