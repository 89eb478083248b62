"""Signs that translations are not plain text, which scores are defined on.

They are scored nevertheless, with a warning: no other score can be compared with theirs.
"""

import re
from collections.abc import Iterator, Sequence
from html.entities import html5

from nmtkit.utils.language import Language

N_TOKENIZED = 100  # lines that make sacreBLEU warn
_SUBWORD = re.compile("@@ |@@$|\u2581")  # as subword-nmt and sentencepiece mark it
_ENTITY = re.compile(r"&(#[0-9]+;|#[xX][0-9a-fA-F]+;|\w+;)")
# What translation tools print around a translation, by the name of the format.
OUTPUT_FORMATS = {
    "a Moses n-best list (0 ||| text ||| ..)": re.compile(r"\d+ \|\|\| .*\|\|\|"),
    "the output of fairseq-generate (H-0, score, text)": re.compile(r"[STHDPA]-\d+\t"),
}
FORMAT_SHARE = 0.9  # of the lines, from which a file is taken for one of these formats
# sacreBLEU's tokenizers of BLEU and TER whose tokens are words between spaces.
WORD_TOKENIZERS = ("13a", "intl", "none", "tercom")
# Scripts without spaces between words: Thai, Lao, Tibetan, Burmese, Khmer, Tai Le, New Tai Lue, Tai
# Tham, Japanese, Chinese.
_UNSPACED_LETTER = re.compile(
    "[\u0e01-\u0e4e\u0e81-\u0edf\u0f00-\u0fbc\u1000-\u109f\u1780-\u17d3\u1950-\u19df\u1a20-\u1aad"
    "\u3041-\u30ff\u3400-\u9fff\uaa60-\uaa7f\U00020000-\U0003ffff]"
)


def warnings(hyps: Sequence[str], references: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a sentence for each sign that `hyps` or `references` are not plain text.

    HTML entities that a reference has in the same number of lines are part of the text.
    """
    # sacreBLEU's rule: its command strips the lines that it reads.
    tokenized = [i for i, hyp in enumerate(hyps) if hyp.rstrip().endswith(" .")]
    if len(tokenized) >= N_TOKENIZED:
        yield f"{_of(tokenized, hyps)} end in a space and a period, as tokens do; detokenize them"
    in_subwords = [i for i, hyp in enumerate(hyps) if _SUBWORD.search(hyp)]
    if in_subwords:
        mark = "\u2581" if "\u2581" in hyps[in_subwords[0]] else "@@"
        yield f"{_of(in_subwords, hyps)} contain {mark}, the mark of subwords; join them to words"
    escaped = [i for i, hyp in enumerate(hyps) if _entity(hyp)]
    if len(escaped) > max((sum(map(bool, map(_entity, refs))) for refs in references), default=0):
        example = _entity(hyps[escaped[0]])
        yield f"{_of(escaped, hyps)} contain HTML entities, such as {example}; replace them"
    yield from _format_warnings(hyps, "")
    for reference in references:
        yield from _format_warnings(reference, " of the reference")


def unspaced_warning(
    lang: Language, tokenizer: str, references: Sequence[Sequence[str]]
) -> str | None:
    """Warn of a tokenizer of words for text that has no spaces between words.

    Args:
        lang: The language that the user named.
        tokenizer: The tokenizer of the score, by sacreBLEU's name.
        references: The references, whose letters count if `lang` has spaces: text in Chinese may
            be scored as if it were in English.

    Returns:
        A sentence, or None if the tokenizer fits the text.
    """
    if tokenizer not in WORD_TOKENIZERS:
        return None
    if lang.is_spaced and not _is_mostly_unspaced(references):
        return None
    text = "the text" if lang.is_spaced else str(lang)
    return (
        f"{text} is written without spaces between words, but the tokenizer {tokenizer} takes what "
        "is between two spaces for a word, so that this score says little; use --metric chrf, or "
        "split both texts into words in the same way first"
    )


def _is_mostly_unspaced(texts: Sequence[Sequence[str]]) -> bool:
    n_unspaced = n_others = 0
    for lines in texts:
        for line in lines:
            others = _UNSPACED_LETTER.sub("", line)
            n_unspaced += len(line) - len(others)
            n_others += sum(map(str.isalpha, others))
    return n_unspaced > n_others


def _format_warnings(lines: Sequence[str], where: str) -> Iterator[str]:
    for name, pattern in OUTPUT_FORMATS.items():
        found = [i for i, line in enumerate(lines) if pattern.match(line)]
        if found and len(found) >= FORMAT_SHARE * len(lines):
            yield f"{_of(found, lines, where)} look like {name}; keep the text of them only"


def _of(found: Sequence[int], lines: Sequence[str], where: str = "") -> str:
    return f"{len(found):,} of {len(lines):,} lines{where} (line {found[0] + 1:,} is the first)"


def _entity(line: str) -> str:
    found = (name for name in _ENTITY.findall(line) if name in html5 or name.startswith("#"))
    return next((f"&{name}" for name in found), "")
