"""Forced decoding of text files: log-probabilities of existing translations, line by line."""

from collections.abc import Iterator
from pathlib import Path

from nmtkit.corpus.long_lines import MAX_CHARACTERS
from nmtkit.corpus.special_tokens import EOS_ID
from nmtkit.decoding.details import Pieces, details
from nmtkit.decoding.engine import PART_LINES, length_penalty
from nmtkit.decoding.output_formats import Format, format_lines
from nmtkit.decoding.text_files import growing_parts
from nmtkit.decoding.text_translator import MAX_SUBWORDS, Text, TextTranslator, Translation
from nmtkit.evaluation.perplexity import perplexity_from_nll
from nmtkit.sources.file_pair import read_parallel
from nmtkit.sources.kinds import check_form
from nmtkit.sources.text_file import TextFile
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError


def force_files(
    translator: TextTranslator,
    src: Path,
    tgt: Path,
    output_format: Format,
    *,
    align: bool = False,
    plain: bool = False,
) -> Iterator[str]:
    """Compute the log-probabilities of a translation line by line, and log the total.

    Args:
        translator: The model with its text processing.
        src: Source text, one sentence per line.
        tgt: Its translation, line by line.
        output_format: The format of the output. With text, a line has log-probability and
            perplexity.
        align: Add word alignments.
        plain: Read the files as plain text, even if they look like another format.

    Yields:
        The lines of output.

    Raises:
        UserError: The files differ in length, are empty, or have a line that is too long.
    """
    files = [TextFile(path, is_plain=plain) for path in (src, tgt)]
    for file in files:
        # A pipe can be read only once: its beginning cannot be inspected.
        if file.path.is_file():
            check_form(file, is_parallel=False)
    pairs = read_parallel("source and translations", *files)
    n_lines = 0
    n_tokens = 0
    log_prob = 0.0
    for part in growing_parts([pairs], PART_LINES[translator.engine.device]):
        pieces = []
        for number, (source, text) in enumerate(part, start=n_lines + 1):
            pieces.append(_encode_pair(translator.text, source, text, f"line {number:,}"))
        # The first parts are small: the first lines of output appear early.
        line_details = details(translator.text.subword, translator.engine, pieces, align=align)
        for (source, text), line, detail in zip(part, pieces, line_details, strict=True):
            if output_format == "text":
                yield f"{detail.log_prob:.4f}\t{detail.perplexity:.4f}"
            else:
                score = detail.log_prob / length_penalty(detail.n_tokens, translator.decoding)
                translation = Translation(text, score, detail.log_prob, line.src, line.tgt)
                yield from format_lines(
                    output_format, n_lines, source, [translation], [detail], is_reference=True
                )
            n_lines += 1
            n_tokens += detail.n_tokens
            log_prob += detail.log_prob
    if n_lines == 0:
        raise UserError(f"{src} is empty; pass a text with at least one line")
    progress.log(
        f"force: {n_lines:,} lines, {n_tokens:,} tokens with EOS, log-probability "
        f"{log_prob:,.2f}, perplexity {perplexity_from_nll(-log_prob, n_tokens):.4f}"
    )


def _encode_pair(text: Text, src: str, tgt: str, name: str) -> Pieces:
    """Return the ids of a line and of its translation: one piece, or none if both are blank.

    Args:
        text: Encodes both sides.
        name: Name of the line, for the error.

    Raises:
        UserError: The line or its translation is too long.
    """
    if max(len(src), len(tgt)) <= MAX_CHARACTERS:
        src_ids = text.encode(src)
        tgt_ids = text.encode_target(tgt)
        if not src_ids and not tgt_ids:
            return Pieces([], [])
        if max(len(src_ids), len(tgt_ids) + 1) <= MAX_SUBWORDS:
            tag, untagged = text.subword.split_tag(src)
            has_tag = bool(tag and src_ids)
            continues = [has_tag and not untagged[0].isspace()]
            return Pieces([src_ids or [EOS_ID]], [tgt_ids], has_tag, continues)
    raise UserError(
        f"{name} is too long for forced decoding (more than {MAX_SUBWORDS:,} subwords or "
        f"{MAX_CHARACTERS:,} characters); split it or remove it"
    )
