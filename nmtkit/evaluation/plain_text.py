"""Signs that translations are not plain text, which scores are defined on.

They are scored nevertheless, with a warning: no other score can be compared with theirs.
"""

import re
from collections.abc import Iterator, Sequence
from html.entities import html5

N_TOKENIZED = 100  # lines that make sacreBLEU warn
_SUBWORD = re.compile("@@ |@@$|\u2581")  # as subword-nmt and sentencepiece mark it
_ENTITY = re.compile(r"&(#[0-9]+;|#[xX][0-9a-fA-F]+;|\w+;)")


def warnings(hyps: Sequence[str], references: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a sentence for each way; entities that a reference has as often are its text."""
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


def _of(found: Sequence[int], hyps: Sequence[str]) -> str:
    return f"{len(found):,} of {len(hyps):,} lines (line {found[0] + 1:,} is the first)"


def _entity(line: str) -> str:
    found = (name for name in _ENTITY.findall(line) if name in html5 or name.startswith("#"))
    return next((f"&{name}" for name in found), "")
