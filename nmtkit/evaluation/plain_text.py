"""Detection of text that is not plain: tokens, subwords, entities, the output of other tools.

Translations are scored nevertheless, with a warning: no other score can be compared with theirs.
Training text is used nevertheless: a model then translates only text that is prepared alike.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from html.entities import html5

from nmtkit.utils.language import Language
from nmtkit.utils.text import quote

N_TOKENIZED = 100  # lines that make sacreBLEU warn
# Marks of subwords: subword-nmt, sentencepiece, wordpiece, OpenNMT, fastBPE and Hugging Face,
# byte-level BPE (in Maltese, a few words begin with this letter).
SUBWORD_MARK = re.compile("@@ |@@$|\u2581|(?:^| )##(?=\\w)|\uffed|</w>(?= |$)|(?:\u0120\\S* ?){3}")
TOKENIZED_MARK = re.compile(r" @-@ | [.,](?= |$)")  # as Moses splits hyphens, stops and commas
MIN_TRAINING_SHARE = 0.01  # of lines with subwords or entities; in crawled text, some are meant
MIN_TOKENIZED_SHARE = 0.3  # of the lines; few plain lines have a space before a stop or comma
MIN_REPEATED_SHARE = 0.005  # of pairs with the same target
MIN_SOURCES = 10  # different sources of one target; "Yes." has a few
ENTITY = re.compile(r"&(#[0-9]+;|#[xX][0-9a-fA-F]+;|\w+;)")
# The beginnings of the lines of other tools' output, by the name of the format.
OUTPUT_FORMATS = {
    "a Moses n-best list (0 ||| text ||| ..)": re.compile(r"\d+ \|\|\| .*\|\|\|"),
    "the output of fairseq-generate (H-0, score, text)": re.compile(r"[STHDPA]-\d+\t"),
}
FORMAT_SHARE = 0.9  # minimum share of matching lines in a file of one of these formats
# sacreBLEU's tokenizers of BLEU and TER whose tokens are words between spaces.
WORD_TOKENIZERS = ("13a", "intl", "none", "tercom")
# Scripts without spaces between words: Thai, Lao, Tibetan, Burmese, Khmer, Tai Le, New Tai Lue, Tai
# Tham, Japanese, Chinese.
UNSPACED_LETTER = re.compile(
    "[\u0e01-\u0e4e\u0e81-\u0edf\u0f00-\u0fbc\u1000-\u109f\u1780-\u17d3\u1950-\u19df\u1a20-\u1aad"
    "\u3041-\u30ff\u3400-\u9fff\uaa60-\uaa7f\U00020000-\U0003ffff]"
)


def warnings(hyps: Sequence[str], references: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield warnings about hypotheses or references that are not plain text.

    HTML entities that a reference has in the same number of lines are part of the text.

    Args:
        references: Zero or more references.

    Yields:
        One sentence per finding.
    """
    # sacreBLEU's rule: its command strips the lines that it reads.
    tokenized = [i for i, hyp in enumerate(hyps) if hyp.rstrip().endswith(" .")]
    if len(tokenized) >= N_TOKENIZED:
        lines = _line_count(tokenized, hyps)
        yield f'{lines} end in " ." (tokenized text); detokenize them before scoring'

    subwords = [i for i, hyp in enumerate(hyps) if SUBWORD_MARK.search(hyp)]
    if subwords:
        lines = _line_count(subwords, hyps)
        yield f"{lines} contain {_subword_mark(hyps[subwords[0]])}; join them before scoring"

    escaped = [i for i, hyp in enumerate(hyps) if _first_entity(hyp)]
    n_usual = 0  # lines of a reference that have entities
    for refs in references:
        n_usual = max(n_usual, sum(bool(_first_entity(ref)) for ref in refs))
    if len(escaped) > n_usual:
        example = _first_entity(hyps[escaped[0]])
        lines = _line_count(escaped, hyps)
        yield f"{lines} contain HTML entities, such as {example}; unescape them before scoring"

    yield from _format_warnings(hyps, "")
    for reference in references:
        yield from _format_warnings(reference, " of the reference")


def training_warnings(
    pairs: Sequence[tuple[str, str]], sides: Sequence[str], *, has_tokens: bool = False
) -> Iterator[str]:
    """Yield warnings about training text that is not plain, or has no translations.

    Args:
        pairs: The first pairs of a text.
        sides: The names of source and target, for messages.
        has_tokens: Whether the model reads tokens; then only targets are checked.

    Yields:
        One sentence per finding.
    """
    if not has_tokens:
        for side, name in enumerate(sides):
            lines = [pair[side] for pair in pairs]
            yield from _training_line_warnings(lines, f" in {name}")

    # A placeholder such as NULL or TODO is the translation of many different sentences.
    sources = defaultdict[str, set[str]](set)
    first: dict[str, int] = {}
    for number, (src, tgt) in enumerate(pairs, 1):
        sources[tgt.strip()].add(src)
        first.setdefault(tgt.strip(), number)
    for tgt, tgt_sources in sources.items():
        if tgt and len(tgt_sources) >= max(MIN_SOURCES, MIN_REPEATED_SHARE * len(pairs)):
            yield (
                f"{quote(tgt)} is the translation of {len(tgt_sources):,} different sentences "
                f"(pair {first[tgt]:,} is the first); remove these pairs if it is a placeholder"
            )


def _training_line_warnings(lines: Sequence[str], owner: str) -> Iterator[str]:
    """Yield warnings about one side of training text; `owner` follows the number of lines."""
    plain = "pass plain text, because nmtkit itself splits it into tokens and subwords"
    subwords = [i for i, line in enumerate(lines) if SUBWORD_MARK.search(line)]
    if subwords and len(subwords) >= MIN_TRAINING_SHARE * len(lines):
        count = _line_count(subwords, lines, owner)
        yield f"{count} contain {_subword_mark(lines[subwords[0]])}; {plain}"

    tokenized = [i for i, line in enumerate(lines) if TOKENIZED_MARK.search(line)]
    if tokenized and len(tokenized) >= MIN_TOKENIZED_SHARE * len(lines):
        count = _line_count(tokenized, lines, owner)
        yield f"{count} have spaces before punctuation (tokenized text); {plain}"

    escaped = [i for i, line in enumerate(lines) if _first_entity(line)]
    if escaped and len(escaped) >= MIN_TRAINING_SHARE * len(lines):
        example = _first_entity(lines[escaped[0]])
        count = _line_count(escaped, lines, owner)
        yield f"{count} contain HTML entities, such as {example}; unescape them, or {plain}"
    yield from _format_warnings(lines, owner)


def _subword_mark(line: str) -> str:
    """Return the first mark of subwords in a line, with its kind."""
    match = SUBWORD_MARK.search(line)
    assert match is not None
    mark = "\u0120" if match[0].startswith("\u0120") else match[0].strip()
    return f"{mark} (subwords)"


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
        A warning, or None if the tokenizer fits the text.
    """
    # Tokenizers such as zh and char split such text into characters.
    if tokenizer not in WORD_TOKENIZERS:
        return None
    if lang.is_spaced and not _is_mostly_unspaced(references):
        return None
    # The user may have named the wrong language: then the message is about the text.
    text = "the text" if lang.is_spaced else str(lang)
    return (
        f"{text} is written without spaces between words, but the tokenizer {tokenizer} splits at "
        "spaces, so the score is not meaningful; use --metric chrf, or segment both texts into "
        "words in the same way first"
    )


def _is_mostly_unspaced(texts: Sequence[Sequence[str]]) -> bool:
    """Return whether more than half of the letters are of scripts without spaces."""
    n_unspaced = 0
    n_others = 0
    for lines in texts:
        for line in lines:
            spaced_text = UNSPACED_LETTER.sub("", line)
            n_unspaced += len(line) - len(spaced_text)
            n_others += sum(map(str.isalpha, spaced_text))
    return n_unspaced > n_others


def _format_warnings(lines: Sequence[str], owner: str) -> Iterator[str]:
    """Yield a warning if lines are the output of another translation tool.

    Args:
        lines: Hypotheses or a reference.
        owner: Follows the number of lines, such as " of the reference".
    """
    # A sentence may look like such a line by chance, but hardly all of them.
    for name, pattern in OUTPUT_FORMATS.items():
        matching = [i for i, line in enumerate(lines) if pattern.match(line)]
        if matching and len(matching) >= FORMAT_SHARE * len(lines):
            count = _line_count(matching, lines, owner)
            yield f"{count} look like {name}; extract the text first"


def _line_count(indices: Sequence[int], lines: Sequence[str], owner: str = "") -> str:
    """Describe the number of lines with these indices: "2 of 9 lines (line 3 is the first)"."""
    return f"{len(indices):,} of {len(lines):,} lines{owner} (line {indices[0] + 1:,} is the first)"


def _first_entity(line: str) -> str:
    """Return the first HTML entity of a line, or an empty string."""
    for name in ENTITY.findall(line):
        if name in html5 or name.startswith("#"):
            return f"&{name}"
    return ""
