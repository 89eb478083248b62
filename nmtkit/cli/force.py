"""nmtkit force: how a bundle rates given translations (forced decoding)."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmtkit import progress
from nmtkit.cli.options import Alignment, Bundles, Device, Engine, LineFormat, command
from nmtkit.cli.translate import check_alignment, engine_for
from nmtkit.decoding.formats import Format, as_fairseq, as_json
from nmtkit.errors import UserError
from nmtkit.symbols import EOS_ID

if TYPE_CHECKING:
    from nmtkit.decoding.lines import Text
    from nmtkit.translator import Translator


@command("nmtkit force source.en translation.de --bundle DIR")
def force(
    src: Annotated[Path, typer.Argument(metavar="SRC", help="The source, a file or a pipe.")],
    tgt: Annotated[Path, typer.Argument(metavar="TGT", help="Its translation, line by line.")],
    bundles: Bundles,
    how: LineFormat = None,
    align: Alignment = False,
    device: Device = "auto",
    engine: Engine = None,
) -> None:
    """Rate given translations: log-probability and perplexity."""
    how = how or Format.TEXT
    if how == Format.MOSES:
        raise UserError("--format moses is for translations that are found; use another")
    check_alignment(how, asked=align)
    from nmtkit.translator import Translator

    translator = Translator(*bundles, device=device, engine=engine_for(engine, align=align))
    for line in rated(translator, src, tgt, how, align=align):
        typer.echo(line)


def rated(
    translator: "Translator", src: Path, tgt: Path, how: Format, *, align: bool = False
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
    from nmtkit.decoding.details import details
    from nmtkit.decoding.engine import gnmt_length_penalty
    from nmtkit.decoding.lines import Translation
    from nmtkit.perplexity import perplexity_of
    from nmtkit.sources.arriving import in_growing_parts
    from nmtkit.sources.file_pair import read_parallel
    from nmtkit.sources.kinds import check_form
    from nmtkit.sources.text import TextFile

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
        found = details(translator.text.subword, translator.engine, pieces, align=align)
        for (source, text), (src_ids, tgt_ids), detail in zip(part, pieces, found, strict=True):
            alpha = translator.decoding.length_penalty
            score = detail.log_prob / gnmt_length_penalty(detail.n_tokens, alpha)
            given = Translation(text, score, detail.log_prob, src_ids, tgt_ids)
            if how == Format.JSON:
                yield as_json(source, [given], [detail])
            elif how == Format.FAIRSEQ:
                yield from as_fairseq(n_lines, [given], [detail], is_reference=True)
            else:
                yield f"{detail.log_prob:.4f}\t{detail.perplexity:.4f}"
            n_lines += 1
            n_tokens += detail.n_tokens
            log_prob += detail.log_prob
    progress.say(
        f"force: {n_lines:,} lines, {n_tokens:,} tokens with each EOS, log-probability "
        f"{log_prob:,.2f}, perplexity {perplexity_of(-log_prob, n_tokens):.4f}"
    )


def _pieces(
    text: "Text", src: str, tgt: str, where: str
) -> tuple[list[list[int]], list[list[int]]]:
    """Return the ids of a line and of its translation: one piece, or none if both are blank."""
    from nmtkit.corpus.long_lines import MAX_CHARACTERS
    from nmtkit.decoding.lines import MAX_SUBWORDS

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
