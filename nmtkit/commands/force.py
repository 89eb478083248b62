"""force: how a bundle rates given translations (forced decoding)."""

from collections.abc import Iterator
from pathlib import Path

from nmtkit import progress
from nmtkit.corpus.long_lines import MAX_CHARACTERS
from nmtkit.decoding.details import Detail, details
from nmtkit.decoding.engine import gnmt_length_penalty
from nmtkit.decoding.formats import Format, as_fairseq, as_json
from nmtkit.decoding.lines import MAX_SUBWORDS, Text, Translation
from nmtkit.errors import UserError
from nmtkit.perplexity import perplexity_of
from nmtkit.sources.arriving import in_growing_parts
from nmtkit.sources.file_pair import read_parallel
from nmtkit.sources.kinds import check_form
from nmtkit.sources.text import TextFile
from nmtkit.symbols import EOS_ID
from nmtkit.translator import Translator


def force(
    translator: Translator, src: Path, tgt: Path, how: Format, *, align: bool
) -> Iterator[str]:
    """Rate each line of a text as the translation of the same line of another.

    What all lines add up to is told at the end.

    Args:
        translator: A bundle.
        src: The source, a file or a pipe.
        tgt: Its translation.
        how: What is written; as text, the log-probability and the perplexity of each line.
        align: Whether to add the source words of each word, where the format has them.

    Yields:
        Lines of output.

    Raises:
        UserError: The texts differ in length, or a line is not UTF-8 or too long.
    """
    for path in (src, tgt):
        if path.is_file():  # a pipe can be read only once
            check_form(TextFile(path))
    pairs = read_parallel("source and translations", TextFile(src), TextFile(tgt))
    n_lines, n_tokens, log_prob = 0, 0, 0.0
    for part in in_growing_parts([pairs], translator.engine.lines_per_minute(beam_size=1)):
        pieces = [
            _pieces(translator.text, *pair, f"line {number:,}")
            for number, pair in enumerate(part, start=n_lines + 1)
        ]
        rated = details(translator.text.subword, translator.engine, pieces, align=align)
        for (source, text), (src_ids, tgt_ids), detail in zip(part, pieces, rated, strict=True):
            alpha = translator.decoding.length_penalty
            score = detail.log_prob / gnmt_length_penalty(detail.n_tokens, alpha)
            given = Translation(text, score, detail.log_prob, src_ids, tgt_ids)
            yield from _written(how, n_lines, source, given, detail)
            n_lines += 1
            n_tokens += detail.n_tokens
            log_prob += detail.log_prob
    progress.say(
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


def _written(
    how: Format, number: int, source: str, translation: Translation, detail: Detail
) -> list[str]:
    match how:
        case Format.JSON:
            return [as_json(source, [translation], [detail])]
        case Format.FAIRSEQ:
            return as_fairseq(number, [translation], [detail], is_reference=True)
        case _:
            return [f"{detail.log_prob:.4f}\t{detail.perplexity:.4f}"]
