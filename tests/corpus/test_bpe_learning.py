"""Learned merges, compared with subword-nmt and with a plain greedy implementation."""

import gzip
import io
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from subword_nmt import learn_bpe as reference

from nmtkit.corpus import bpe_learning
from nmtkit.corpus.bpe_learning import learn_bpe
from nmtkit.corpus.bpe_subword import BpeVersion, Pair

# Few letters, so that pairs repeat, overlap and tie: two bytes, outside the BMP, and U+0000 too.
words = st.text(alphabet="abcß\0\U0001f600", min_size=1, max_size=9)
word_counts = st.dictionaries(words, st.integers(1, 9), min_size=1, max_size=25)
long_words = st.dictionaries(
    st.text(alphabet="ab", min_size=1, max_size=25), st.integers(1, 9), min_size=1, max_size=12
)
VERSIONS: tuple[BpeVersion, ...] = ("0.1", "0.2")
rounds = st.just((2**15, 1_000)) | st.tuples(st.integers(1, 5), st.integers(1, 5))


def reference_merges(counts: dict[str, int], n_merges: int, version: BpeVersion) -> list[Pair]:
    """Learn merges with subword-nmt 0.2, for both versions.

    For 0.1, words get one more character, which then stands for the symbol of the end of a word. It
    is sorted like "</w>" if it is "<", which no word has.
    """
    end = "<" if version == "0.1" else ""
    assert not any("<" in word for word in counts)
    codes = io.StringIO()
    dictionary = io.StringIO("".join(f"{word}{end} {count}\n" for word, count in counts.items()))
    reference.learn_bpe(dictionary, codes, n_merges, is_dict=True)
    lines = codes.getvalue().replace(f"{end}</w>", "</w>").split("\n")[1:-1]
    return [(line.split(" ")[0], line.split(" ")[1]) for line in lines]


def greedy_merges(
    counts: dict[str, int], n_merges: int, version: BpeVersion, min_frequency: int
) -> list[Pair]:
    """Recount all pairs before every merge."""
    corpus: dict[str, list[str]] = {}
    for word in counts:
        corpus[word] = [*word, "</w>"] if version == "0.1" else [*word[:-1], word[-1] + "</w>"]
    merges: list[Pair] = []
    while len(merges) < n_merges:
        pairs: Counter[Pair] = Counter()
        for word, symbols in corpus.items():
            for pair in pairwise(symbols):
                pairs[pair] += counts[word]
        if not pairs or max(pairs.values()) < min_frequency:
            break
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        for word, symbols in corpus.items():
            joined: list[str] = []
            i = 0
            while i < len(symbols):
                found = tuple(symbols[i : i + 2]) == best
                joined.append("".join(symbols[i : i + 2]) if found else symbols[i])
                i += 2 if found else 1
            corpus[word] = joined
    return merges


@pytest.fixture(scope="module")
def real_counts(shared_data: Path) -> Counter[str]:
    """The words of Multi30k's 1,014 German lines for validation."""
    (path,) = (shared_data / "mirror").rglob("val.de.gz")
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        return Counter(word for line in lines for word in line.split())


@given(
    word_counts | long_words,
    st.integers(0, 60),
    st.sampled_from(VERSIONS),
    st.integers(1, 3),
    rounds,
)
def test_merges_equal_greedy_merging(
    counts: dict[str, int],
    n_merges: int,
    version: BpeVersion,
    min_frequency: int,
    rounds: tuple[int, int],
) -> None:
    bounds = {"MIN_FREQUENCY": min_frequency, "MAX_LISTED": rounds[0], "MAX_RATIO": rounds[1]}
    with pytest.MonkeyPatch.context() as patch:
        for name, bound in bounds.items():
            patch.setattr(bpe_learning, name, bound)
        codes = learn_bpe(counts, n_merges, version)
    assert codes.version == version
    assert codes.merges == greedy_merges(counts, n_merges, version, min_frequency)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("max_listed", [20, 2**15])
def test_merges_equal_subword_nmt(
    real_counts: Counter[str],
    version: BpeVersion,
    max_listed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bpe_learning, "MAX_LISTED", max_listed)
    merges = learn_bpe(real_counts, 400, version).merges
    assert len(merges) == 400
    assert merges == reference_merges(real_counts, 400, version)
