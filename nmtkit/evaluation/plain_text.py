"""Detection of text that is not plain: tokens, subwords, entities, the output of other tools.

Translations are scored nevertheless, with a warning: no other score can be compared with theirs.
Training text is used nevertheless: a model then translates only text that is prepared alike.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html.entities import html5

from nmtkit.utils.language import Language
from nmtkit.utils.text import quote

MIN_REPEATED_SHARE = 0.005  # of pairs with the same target
MIN_SOURCES = 10  # different sources of one target; "Yes." has a few
N_SACREBLEU = 100  # lines that make sacreBLEU warn of tokenized text

# Signs in some lines, because plain text hardly has them; and in many, because it may have them.
SOME = 0.001
MANY = 0.3
NEARLY_ALL = 0.9

# Marks of subwords: subword-nmt, sentencepiece, wordpiece, OpenNMT, fastBPE and Hugging Face,
# byte-level BPE (in Maltese, a few words begin with this letter).
SUBWORD = re.compile(
    "@@ |@@$|\u2581|(?:^| )##(?=\\w)|\uffed|</w>(?= |$)|\u0120(?=\\S* ?(?:\u0120\\S* ?){2})"
)
# tensor2tensor marks the end of a word; a form has lines such as "Name: ___".
SUBWORD_END = re.compile(r"(?<=[^\W_])_(?= |$)(?=(?:.*?[^\W_]_(?= |$)){2})")
UNKNOWN = re.compile(r"<unk>|\[UNK\]|\u2047", re.IGNORECASE)
TOKEN_IDS = re.compile(r"\A\s*\d+(?: \d+){3,}\s*$")
KEY = re.compile(r"\A\s*[!-~]*\d[!-~]*\s*\Z")
TOKENS = re.compile(r" @-@ | [.,](?=\s|$)")  # as Moses splits hyphens, stops and commas
# The output of other tools.
N_BEST = re.compile(r"\A\d+ \|\|\| .*\|\|\|")
FAIRSEQ = re.compile(r"\A[STHDPA]-\d+\t")
HAN_OR_KANA = "[\u3041-\u30ff\u3400-\u9fff]"
WORDS = re.compile(f"(?:{HAN_OR_KANA} (?={HAN_OR_KANA}).*?){{3}}")
ENTITY = re.compile(r"&(#[0-9]+;|#[xX][0-9a-fA-F]+;|\w+;)")
# sacreBLEU's tokenizers of BLEU and TER whose tokens are words between spaces.
WORD_TOKENIZERS = ("13a", "intl", "none", "tercom")
# Scripts without spaces between words: Thai, Lao, Tibetan, Burmese, Khmer, Tai Le, New Tai Lue, Tai
# Tham, Japanese, Chinese.
UNSPACED_LETTER = re.compile(
    "[\u0e01-\u0e4e\u0e81-\u0edf\u0f00-\u0fbc\u1000-\u109f\u1780-\u17d3\u1950-\u19df\u1a20-\u1aad"
    "\u3041-\u30ff\u3400-\u9fff\uaa60-\uaa7f\U00020000-\U0003ffff]"
)


@dataclass(frozen=True)
class Sign:
    """A sign that text is not plain.

    Attributes:
        predicate: What the lines do, with "{}" for the first match.
        pattern: What is found in the lines.
        min_share: Minimum share of the lines that have it.
    """

    predicate: str
    pattern: re.Pattern[str]
    min_share: float

    def find(self, line: str) -> str:
        """Return the first match in a line, or an empty string."""
        for match in self.pattern.finditer(line):
            if self is not ENTITIES or match[1].startswith("#") or match[1] in html5:
                return match[0].strip()
        return ""


ENTITIES = Sign("contain HTML entities, such as {}", ENTITY, SOME)
TOKENIZED = Sign("have spaces before punctuation (tokenized text)", TOKENS, MANY)
SEGMENTED = Sign("have spaces between Chinese or Japanese words (tokenized text)", WORDS, MANY)
OF_TOKENS = (TOKENIZED, SEGMENTED, ENTITIES)  # text has these before it is split into subwords
SIGNS = (
    Sign("contain {} (subwords)", SUBWORD, SOME),
    Sign("have words that end in {} (subwords)", SUBWORD_END, SOME),
    Sign("contain {} (unknown words)", UNKNOWN, SOME),
    Sign("are numbers only, such as {} (token ids)", TOKEN_IDS, MANY),
    Sign("are a key or number instead of a sentence, such as {}", KEY, MANY),
    *OF_TOKENS,
    Sign("look like a Moses n-best list (0 ||| text ||| ..)", N_BEST, NEARLY_ALL),
    Sign("look like the output of fairseq-generate (H-0, score, text)", FAIRSEQ, NEARLY_ALL),
)


def signs_in(
    lines: Sequence[str],
    owner: str = "",
    unit: str = "line",
    references: Sequence[Sequence[str]] = (),
    *,
    has_tokens: bool = False,
) -> Iterator[str]:
    """Describe the signs that lines are not plain text: the one check of all kinds of text.

    Args:
        lines: One side of a text.
        owner: Follows the number of lines, such as " of the reference".
        unit: "line", or "pair" if it may be on another line of a file.
        references: Translations of the same text. HTML entities that they have in as many lines
            are part of the text.
        has_tokens: Whether the lines are to be tokens, but no subwords.
    """
    for sign in SIGNS:
        if has_tokens and sign in OF_TOKENS:
            continue
        found = []  # numbers of lines, and what shows the sign
        for number, line in enumerate(lines, 1):
            mark = sign.find(line)
            if mark:
                found.append((number, mark))
        is_found = bool(found) and len(found) >= sign.min_share * len(lines)
        if sign is TOKENIZED:
            # sacreBLEU's own rule.
            n_ends = sum(line.rstrip().endswith(" .") for line in lines)
            is_found = is_found or n_ends >= N_SACREBLEU
        if sign is ENTITIES:
            for reference in references:
                n_usual = sum(bool(sign.find(line)) for line in reference)
                is_found = is_found and len(found) > n_usual
        if is_found:
            first, mark = found[0]
            yield (
                f"{len(found):,} of {len(lines):,} {unit}s{owner} ({unit} {first:,} is the first) "
                f"{sign.predicate.format(mark)}"
            )


def warnings(hyps: Sequence[str], references: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a sentence for each sign that hypotheses or references are not plain text."""
    for sign in signs_in(hyps, references=references):
        yield f"{sign}; restore plain text before scoring"
    for reference in references:
        for sign in signs_in(reference, " of the reference", references=[reference]):
            yield f"{sign}; score against plain text"


def training_warnings(
    pairs: Sequence[tuple[str, str]], langs: Sequence[object], *, has_tokens: bool = False
) -> Iterator[str]:
    """Yield warnings about training text that is not plain, or has no translations.

    Args:
        pairs: The first pairs of a text.
        langs: The languages of source and target, for messages.
        has_tokens: Whether the model reads tokens instead of plain text.

    Yields:
        One sentence per finding.
    """
    for side, lang in enumerate(langs):
        lines = [pair[side] for pair in pairs]
        for sign in signs_in(lines, f" in {lang}", "pair", has_tokens=has_tokens):
            yield f"{sign}; pass plain text, which nmtkit itself splits into subwords"

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
