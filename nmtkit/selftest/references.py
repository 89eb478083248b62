"""Learning of BPE, which is ours, against subword-nmt, on any text."""

import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr

from subword_nmt import learn_bpe as reference_learning

from nmtkit.corpus.bpe_learning import Pair, learn_bpe
from nmtkit.corpus.moses_tokenizer import tokenize
from nmtkit.languages import Language
from nmtkit.selftest.environment import Check

N_MERGES = 1_000


def compare(
    src: Sequence[str], tgt: Sequence[str], langs: tuple[Language, Language]
) -> Iterator[Check]:
    """Yield a check of what is ours on a text and its translation, line by line."""
    counts = Counter(
        word
        for lines, lang in zip((src, tgt), langs, strict=True)
        for line in lines
        for word in tokenize(line, lang.code, False).split()
    )
    yield _learned(learn_bpe(counts, N_MERGES), counts)


def _learned(merges: Sequence[Pair], counts: Mapping[str, int]) -> Check:
    if all(len(word) == 1 for word in counts):  # where subword-nmt ends with an error
        return Check("BPE learned", "skipped", "no word has two letters")
    codes = io.StringIO()
    dictionary = io.StringIO("".join(f"{word} {count}\n" for word, count in counts.items()))
    with redirect_stderr(io.StringIO()):  # its progress bar
        reference_learning.learn_bpe(dictionary, codes, N_MERGES, is_dict=True)
    expected = [tuple(line.split(" ")) for line in codes.getvalue().split("\n")[1:-1]]
    if list(merges) == expected:
        return Check("BPE learned", "held", f"{len(merges):,} merges as subword-nmt learns them")
    first = next(
        (i for i, both in enumerate(zip(merges, expected, strict=False)) if both[0] != both[1]),
        min(len(merges), len(expected)),
    )
    return Check(
        "BPE learned",
        "failed",
        f"merge {first + 1:,} of {len(merges):,} and of subword-nmt's {len(expected):,} differs",
    )
