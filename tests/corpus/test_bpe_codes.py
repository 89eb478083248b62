"""Codes of subword-nmt, in both versions, and of fastBPE."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmtkit.corpus.bpe_learning import learn_bpe
from nmtkit.corpus.bpe_subword import BpeCodes, BpeVersion, read_codes
from nmtkit.utils.errors import UserError

words = st.text("abc", min_size=1, max_size=9)
word_counts = st.dictionaries(words, st.integers(1, 9), min_size=1, max_size=25)


def write_codes(tmp_path: Path, content: str) -> Path:
    """Write a file of codes."""
    path = tmp_path / "codes"
    path.write_text(content, encoding="utf-8", newline="\n")
    return path


@pytest.mark.parametrize(
    ("content", "codes"),
    [
        ("#version: 0.2\ne n</w>\na b\n", BpeCodes([("e", "n</w>"), ("a", "b")], "0.2")),
        ("e n</w> 1423551864\na b 12\n", BpeCodes([("e", "n</w>"), ("a", "b")], "0.2")),
        ("n </w>\ne n</w>\n", BpeCodes([("n", "</w>"), ("e", "n</w>")], "0.1")),
        ("#version: 0.1\nn </w>\n", BpeCodes([("n", "</w>")], "0.1")),
        ("", BpeCodes([], "0.1")),
    ],
)
def test_read_codes_detects_version(tmp_path: Path, content: str, codes: BpeCodes) -> None:
    assert read_codes(write_codes(tmp_path, content)) == codes


@pytest.mark.parametrize("version", ["0.1", "0.2"])
@pytest.mark.parametrize("merges", [[], [("a", "b")], [("n", "</w>"), ("n</w>", "x")]])
def test_codes_round_trip(
    tmp_path: Path, merges: list[tuple[str, str]], version: BpeVersion
) -> None:
    codes = BpeCodes(merges, version)
    path = write_codes(tmp_path, "".join(f"{line}\n" for line in codes.lines()))
    assert read_codes(path) == codes


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("#version: 0.3\na b\n", "'#version: 0.3'"),
        ("#version: 0.2\na b\na b c\n", "line 3: .* got 'a b c'"),
        ("#version: 0.2\na b\n\n", "line 3: .* got ''"),
        ("a b 5\na b\n", "line 2: .* got 'a b'"),
        ("a b\na b 5\n", "line 2: .* got 'a b 5'"),
        ("a b\na \n", "line 2: .* got 'a '"),
        ("a b\ne n</w>\n", "no merge that forms 'n</w>'"),
    ],
)
def test_damaged_codes_are_refused(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_codes(write_codes(tmp_path, content))


@given(word_counts, st.integers(0, 30), st.sampled_from(["0.1", "0.2"]), st.lists(words))
def test_pieces_of_any_text_are_listed(
    counts: dict[str, int], n_merges: int, version: BpeVersion, unseen: list[str]
) -> None:
    codes = learn_bpe(counts, n_merges, version)
    formed = set(codes.pieces())
    for piece in codes.encoder().segment(" ".join([*counts, *unseen])).split(" "):
        assert piece in formed or len(piece.removesuffix("@@")) == 1
