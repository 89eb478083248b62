"""Codes and split words against subword-nmt's own code."""

import gzip
import io
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from subword_nmt import apply_bpe

from nmtkit.corpus.bpe import Bpe, Pair, read_codes, words_of, write_codes
from nmtkit.corpus.bpe_learning import learn_bpe
from nmtkit.errors import UserError

# Few letters, so that pairs repeat, overlap and tie; one of two bytes and one outside the BMP.
words = st.text(alphabet="abcß\U0001f600", min_size=1, max_size=9)
word_counts = st.dictionaries(words, st.integers(1, 9), min_size=1, max_size=25)


def reference_bpe(merges: Iterable[Pair]) -> apply_bpe.BPE:
    lines = ["#version: 0.2", *(" ".join(pair) for pair in merges)]
    return apply_bpe.BPE(io.StringIO("".join(f"{line}\n" for line in lines)))


@pytest.fixture(scope="module")
def real_counts(shared_data: Path) -> Counter[str]:
    """Return the words of Multi30k's 1,014 German lines for validation."""
    (path,) = (shared_data / "mirror").rglob("val.de.gz")
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        return Counter(word for line in lines for word in line.split())


@given(st.text("ab \r\n\t\u0085\u00a0\u2028"))
def test_lines_are_cut_into_words_as_by_subword_nmt(line: str) -> None:
    untouched = reference_bpe([("x", "y")]).segment(line).replace("@@ ", "")
    assert " ".join(words_of(line)) == untouched


@given(word_counts, st.integers(0, 40), words)
def test_words_are_split_as_subword_nmt_splits_them(
    counts: dict[str, int], n_merges: int, new_word: str
) -> None:
    merges = learn_bpe(counts, n_merges, min_frequency=1)
    assume(merges)  # subword-nmt itself cannot read an empty list
    bpe, expected = Bpe(merges), reference_bpe(merges)
    for word in [*counts, new_word]:
        assert list(bpe.split(word)) == expected.segment_tokens([word])


@given(st.lists(st.tuples(words, words | words.map(lambda word: word + "</w>")), min_size=1), words)
def test_any_list_of_merges_is_applied_as_by_subword_nmt(merges: list[Pair], word: str) -> None:
    """Also lists that nobody would learn: pairs twice, parts that never come about."""
    assert list(Bpe(merges).split(word)) == reference_bpe(merges).segment_tokens([word])


def test_real_words_are_split_as_subword_nmt_splits_them(real_counts: Counter[str]) -> None:
    merges = learn_bpe(real_counts, 400)
    bpe, expected = Bpe(merges), reference_bpe(merges)
    for word in real_counts:
        assert list(bpe.split(word)) == expected.segment_tokens([word])


@given(word_counts, words)
def test_unmerging_undoes_a_merge(counts: dict[str, int], word: str) -> None:
    bpe = Bpe(learn_bpe(counts, 40, min_frequency=1))
    for piece in bpe.split(word):
        parts = bpe.unmerge(piece)
        if len(piece.removesuffix("@@")) == 1:
            assert parts is None
        else:
            assert parts is not None
            first, second = parts
            assert first.removesuffix("@@") + second == piece


@given(word_counts)
def test_codes_survive_a_file(
    tmp_path_factory: pytest.TempPathFactory, counts: dict[str, int]
) -> None:
    merges = learn_bpe(counts, 40)
    path = tmp_path_factory.mktemp("codes") / "codes.bpe"
    write_codes(path, merges)
    assert read_codes(path) == merges
    assume(merges)  # subword-nmt itself cannot read an empty list
    with path.open(encoding="utf-8") as codes:
        assert apply_bpe.BPE(codes).bpe_codes.keys() == set(merges)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a b\n", "starts with 'a b'"),
        (b"#version: 0.1\na b\n", "#version: 0.2"),
        (b"#version: 0.2\na b\na b c\n", "line 3: 'a b c'"),
        (b"#version: 0.2\n\xff b\n", "not UTF-8"),
    ],
)
def test_a_damaged_codes_file_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "codes.bpe"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_codes(path)


def test_a_missing_codes_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"codes\.bpe cannot be read \(No such file"):
        read_codes(tmp_path / "codes.bpe")
