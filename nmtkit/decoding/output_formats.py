"""Output formats: the translations of a line become lines of output for another tool.

Log-probabilities are natural logarithms; those of fairseq's format are to base 2.
"""

import json
import math
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Literal

from nmtkit.config.settings import EngineName
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import visible_json

if TYPE_CHECKING:
    from nmtkit.decoding.details import Detail
    from nmtkit.decoding.engine import Link
    from nmtkit.decoding.text_translator import Translation

# text: the best translation. moses: an n-best list, as Moses and Marian write it. json: an object
# with all that is known. fairseq: the lines of fairseq-generate. pharaoh: links between words.
Format = Literal["text", "moses", "json", "fairseq", "pharaoh"]
DETAILED: tuple[Format, ...] = ("json", "fairseq", "pharaoh")  # formats that need `Detail`
SINGLE: tuple[Format, ...] = ("text", "pharaoh")  # formats with one translation per line

Translations = Sequence["Translation"]  # the translations of one line, best first
Details = Sequence["Detail"]  # their details, in the same order


def engine_for_format(
    output_format: Format, engine: EngineName | None, *, align: bool
) -> EngineName:
    """Return the engine to load for a format: auto becomes torch if alignments are needed.

    Args:
        engine: The engine that the user requested, if any.
        align: Whether words are to be aligned.

    Raises:
        UserError: The format has no alignments.
    """
    if align and output_format not in DETAILED:
        raise UserError(
            f"--format {output_format} has no alignments; use --format json, fairseq or pharaoh, "
            "or omit --alignment"
        )
    # An engine that the user names is kept; it reports alignments that it cannot compute.
    if not align or engine not in (None, EngineName.AUTO):
        return engine or EngineName.AUTO
    progress.log("engine: torch (CTranslate2 does not compute alignments)")
    return EngineName.TORCH


def format_lines(
    output_format: Format,
    number: int,
    source: str,
    translations: Translations,
    details: Details,
    *,
    is_reference: bool = False,
) -> list[str]:
    """Format the translations of one line.

    Args:
        number: Number of the line, from 0.
        translations: Its translations, best first.
        details: Their details, if the format is one of `DETAILED`.
        is_reference: Whether the translation is the user's own, not found by search.

    Returns:
        The lines of output.
    """
    match output_format:
        case "text":
            return [translations[0].text]
        case "moses":
            return as_moses(number, translations)
        case "json":
            return [as_json(source, translations, details)]
        case "fairseq":
            return as_fairseq(number, translations, details, is_reference=is_reference)
        case "pharaoh":
            alignment = details[0].alignment
            return [_pharaoh(alignment.word_links if alignment else [])]


def as_moses(number: int, translations: Translations) -> list[str]:
    """Format an n-best list: line number, text, log-probability and score, by translation.

    Columns are separated by bars, so a bar in the text is escaped, as in Moses.
    """
    lines = []
    for translation in translations:
        text = translation.text.replace("|", "&#124;")
        log_prob = f"LogProb= {translation.log_prob:.4f}"
        lines.append(f"{number} ||| {text} ||| {log_prob} ||| {translation.score:.4f}")
    return lines


def as_json(source: str, translations: Translations, details: Details) -> str:
    """Format the source line and its translations, with their details, as a JSON object."""
    translation_values = []
    for translation, detail in zip(translations, details, strict=True):
        log_probs = chain.from_iterable(detail.log_probs)
        # Further digits would differ between machines.
        values: dict[str, object] = {
            "text": translation.text,
            "score": round(translation.score, 4),
            "log_prob": round(translation.log_prob, 4),
            "perplexity": round(detail.perplexity, 4),
            "tokens": list(chain.from_iterable(detail.tgt_tokens)),
            "token_log_probs": [round(log_prob, 4) for log_prob in log_probs],
        }
        if detail.alignment is not None:
            values["source_words"] = detail.alignment.src_words
            values["words"] = detail.alignment.tgt_words
            values["alignment"] = _pharaoh(detail.alignment.word_links)
        translation_values.append(values)
    # Control characters in a text would be obeyed by the terminal that shows the line.
    line = json.dumps({"source": source, "translations": translation_values}, ensure_ascii=False)
    return visible_json(line)


def as_fairseq(
    number: int, translations: Translations, details: Details, *, is_reference: bool = False
) -> list[str]:
    """Format the lines of fairseq-generate: S, H, D and P, and A if there is an alignment.

    S and H contain subwords, as without --remove-bpe; D is plain text.

    Args:
        number: Number of the line, from 0.
        translations: Its translations, best first.
        is_reference: Add the line T: the translation is the user's own.
    """
    lines = [f"S-{number}\t{_without_eos(details[0].src_tokens)}"]
    if is_reference:
        lines.append(f"T-{number}\t{_without_eos(details[0].tgt_tokens)}")
    for translation, detail in zip(translations, details, strict=True):
        # fairseq computes with logarithms to base 2.
        score = f"{translation.score / math.log(2):.6f}"
        log_probs = chain.from_iterable(detail.log_probs)
        positional = " ".join(f"{log_prob / math.log(2):.4f}" for log_prob in log_probs)
        lines.append(f"H-{number}\t{score}\t{_without_eos(detail.tgt_tokens)}")
        lines.append(f"D-{number}\t{score}\t{translation.text}")
        lines.append(f"P-{number}\t{positional}")
        if detail.alignment is not None:
            lines.append(f"A-{number}\t{_pharaoh(detail.alignment.token_links)}")
    return lines


def _without_eos(pieces: Iterable[Sequence[str]]) -> str:
    """Join the tokens of all pieces, without EOS."""
    tokens: list[str] = []
    for piece in pieces:
        tokens += piece[:-1]
    return " ".join(tokens)


def _pharaoh(links: "Iterable[Link]") -> str:
    """Format links between words or tokens: "0-0 1-2"."""
    return " ".join(f"{src}-{tgt}" for src, tgt in links)
