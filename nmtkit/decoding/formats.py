"""Translations as other tools read them: a format turns one line of input into lines of output.

Log-probabilities are natural logarithms; those of fairseq's format are to base 2.
"""

import json
import math
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Literal

from nmtkit.utils.text import visible_json

if TYPE_CHECKING:
    from nmtkit.decoding.details import Detail
    from nmtkit.decoding.engine import Link
    from nmtkit.decoding.lines import Translation

# Of each line: the best translation, an n-best list as Moses and Marian write it, an object with
# all that is known, what fairseq-generate prints, or the links between words.
Format = Literal["text", "moses", "json", "fairseq", "pharaoh"]
DETAILED: tuple[Format, ...] = ("json", "fairseq", "pharaoh")
OF_THE_BEST: tuple[Format, ...] = ("text", "pharaoh")

Translations = Sequence["Translation"]  # of a line
Details = Sequence["Detail"]  # of each of them


def lines_of(
    how: Format,
    number: int,
    source: str,
    translations: Translations,
    details: Details,
    *,
    is_reference: bool = False,
) -> list[str]:
    """Write the translations of line `number`, which counts from 0, with details as `DETAILED`."""
    match how:
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
    """Write an n-best list: number from 0, text, log-probability and score of each translation.

    A bar in the text, which could be taken for the end of a column, is escaped as Moses does.
    """
    return [
        f"{number} ||| {translation.text.replace('|', '&#124;')} "
        f"||| LogProb= {translation.log_prob:.4f} ||| {translation.score:.4f}"
        for translation in translations
    ]


def as_json(source: str, translations: Translations, details: Details) -> str:
    """Write an object: the source line, and its translations with the details of each."""
    described = []
    for translation, detail in zip(translations, details, strict=True):
        values: dict[str, object] = {
            "text": translation.text,
            "score": round(translation.score, 4),
            "log_prob": round(translation.log_prob, 4),
            "perplexity": round(detail.perplexity, 4),
            "tokens": list(chain.from_iterable(detail.tgt_tokens)),
            "token_log_probs": [round(each, 4) for each in chain.from_iterable(detail.log_probs)],
        }
        if detail.alignment is not None:
            values["source_words"] = detail.alignment.src_words
            values["words"] = detail.alignment.tgt_words
            values["alignment"] = _pharaoh(detail.alignment.word_links)
        described.append(values)
    line = json.dumps({"source": source, "translations": described}, ensure_ascii=False)
    return visible_json(line)


def as_fairseq(
    number: int, translations: Translations, details: Details, *, is_reference: bool = False
) -> list[str]:
    """Write the lines of fairseq-generate: S, H, D and P, and A if there is an alignment.

    S and H show subwords, as without --remove-bpe; D is plain text. T shows the translation that
    was given, if it is a reference.
    """
    lines = [f"S-{number}\t{_joined(details[0].src_tokens)}"]
    if is_reference:
        lines.append(f"T-{number}\t{_joined(details[0].tgt_tokens)}")
    for translation, detail in zip(translations, details, strict=True):
        score = f"{translation.score / math.log(2):.6f}"
        log_probs = chain.from_iterable(detail.log_probs)
        lines += [
            f"H-{number}\t{score}\t{_joined(detail.tgt_tokens)}",
            f"D-{number}\t{score}\t{translation.text}",
            f"P-{number}\t{' '.join(f'{value / math.log(2):.4f}' for value in log_probs)}",
        ]
        if detail.alignment is not None:
            lines.append(f"A-{number}\t{_pharaoh(detail.alignment.token_links)}")
    return lines


def _joined(pieces: Iterable[Sequence[str]]) -> str:
    return " ".join(token for tokens in pieces for token in tokens[:-1])


def _pharaoh(links: "Iterable[Link]") -> str:
    return " ".join(f"{src}-{tgt}" for src, tgt in links)
