"""Split lines into sentences, with sentencex (https://github.com/wikimedia/sentencex)."""

import re
from collections.abc import Iterator, Sequence

import sentencex

# The time that sentencex takes grows with the square of the number of sentences, so that longer
# lines are split window by window.
WINDOW_CHARACTERS = 4_096

_WHITESPACE = re.compile(r"\s")
# No letters, or a single one before a full stop: "1. ", "(a. ", "M. ".
_FRAGMENT = re.compile(r"[\W\d_]*+([^\W\d_]\.)?\s*+")


def split_sentences(line: str, lang: str, protected: Sequence[str] = ()) -> list[str]:
    """Split a line into sentences, with the whitespace that follows them.

    A number or an initial, such as "1." and the "M." of "M. Dupont", is not a sentence: it belongs
    to the one that follows.

    Args:
        line: Any text.
        lang: Code of its language, for abbreviations. sentencex falls back to a related language,
            or to English.
        protected: Tokens such as "</b>". Directly after a sentence, they are part of it.

    Returns:
        Sentences that are the line when they are joined.
    """
    sentences: list[str] = []
    start = 0  # of the sentence
    part_start = 0  # of what sentencex takes for a sentence, which may be a fragment
    for part_end in _boundaries(line, lang):
        if not _FRAGMENT.fullmatch(line, part_start, part_end):
            sentences.append(line[start:part_end])
            start = part_end
        part_start = part_end
    if start < len(line):
        # A fragment at the end of the line belongs to the sentence before it.
        rest = line[start:]
        sentences.append(sentences.pop() + rest if sentences else rest)
    return _with_protected(sentences, protected) if protected else sentences


def _with_protected(sentences: Sequence[str], protected: Sequence[str]) -> list[str]:
    """Move protected tokens that directly follow a sentence to its end.

    Args:
        sentences: The sentences of a line.
        protected: The tokens.
    """
    longest_first = sorted(protected, key=len, reverse=True)
    token = "|".join(re.escape(token) for token in longest_first)
    # All tokens up to a space, or the first one if text follows: "One.</b><b>Two."
    leading = re.compile(rf"(?:{token})+(?:\s+|$)|(?:{token})")
    moved: list[str] = []
    for sentence in sentences:
        start = 0
        if moved and not moved[-1][-1].isspace():
            match = leading.match(sentence)
            start = match.end() if match else 0
            moved[-1] += sentence[:start]
        if start < len(sentence):
            moved.append(sentence[start:])
    return moved


def _boundaries(text: str, lang: str) -> Iterator[int]:
    """Yield the positions at which sentences end, in increasing order; the last is the text's end.

    Only lengths are taken from sentencex, so that no character can be lost. It expects whitespace
    of one byte.
    """
    start = 0  # of the window
    while start < len(text):
        window = _WHITESPACE.sub(" ", text[start : start + WINDOW_CHARACTERS])
        lengths = [len(sentence) for sentence in sentencex.segment(lang, window)]
        # If it has dropped or added characters, the window stays whole.
        if sum(lengths) != len(window):
            lengths = [len(window)]
        if start + len(window) < len(text):
            if len(lengths) == 1:  # a sentence that is longer than the window
                start += len(window)
                continue
            lengths.pop()  # it may continue in the next window
        for length in lengths:
            start += length
            yield start
