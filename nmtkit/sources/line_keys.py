"""Keys at the start of lines: numbers, times, names and keys that are not part of a sentence."""

import re
from collections.abc import Sequence

from nmtkit.utils.text import counted, quote

MIN_PAIRS = 5  # fewer may be a coincidence
MIN_SHARE = 0.8  # of the pairs; in legal text, many paragraphs are numbered

# A first word with a digit, such as "12." or "[00:10]"; or a short beginning with a delimiter, such
# as "'key' =>" or "12|".
_KEYS = (re.compile(r"\s*\S*\d\S*(?=\s)"), re.compile(r"\s*[^=:|;,\t]{1,80}(?:=>|[=:|;,\t])"))


def find_keys(pairs: Sequence[tuple[str, str]]) -> str | None:
    """Describe the keys that begin both sides of nearly all pairs, or return None.

    Args:
        pairs: Lines and their translations. Pairs of equal lines do not count.
    """
    n_pairs = 0
    found: list[tuple[int, str]] = []  # numbers of pairs, and keys
    for number, (src, tgt) in enumerate(pairs, 1):
        if src.strip() == tgt.strip():
            continue
        n_pairs += 1
        for pattern in _KEYS:
            key = pattern.match(src)
            if key is not None and tgt.startswith(key[0]):
                found.append((number, key[0].strip()))
                break
    if len(found) < MIN_PAIRS or len(found) <= MIN_SHARE * n_pairs:
        return None
    number, key_text = found[0]
    return f"{len(found):,} of {counted(n_pairs, 'pair')}, pair {number:,}: {quote(key_text)}"
