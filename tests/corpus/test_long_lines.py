"""Lines that are too long come in pieces: which, where they are cut, and what that costs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmtkit.corpus.long_lines import MAX_CHARACTERS, encode_in_pieces

WORDS = st.text(alphabet="ab. !\u3002\u00e9\"'\t", max_size=200)


def pieces_of(text: str, max_characters: int) -> list[str]:
    """The pieces, where the ids are those of the characters but for blanks around them."""

    def encode(piece: str) -> list[int]:
        return [ord(character) for character in piece.strip()]

    return ["".join(map(chr, ids)) for ids in encode_in_pieces(text, encode, max_characters)]


@given(WORDS, st.integers(min_value=1, max_value=60))
def test_pieces_fit_and_nothing_but_blanks_is_lost(text: str, bound: int) -> None:
    pieces = pieces_of(text, bound)
    assert all(0 < len(piece) <= bound for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(text.split())
    if len(text.strip()) <= bound:
        assert pieces == [text.strip()] * bool(text.strip())


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("One two. Three four five.", ["One two.", "Three four five."]),
        ("Is it? It is! Yes it is.", ["Is it? It is!", "Yes it is."]),  # nearest to the middle
        ("He said: (no.) She: yes, yes.", ["He said: (no.)", "She: yes, yes."]),
        ("It costs 3.50 in all of Europe", ["It costs 3.50 in", "all of Europe"]),
        ("one two three four five six", ["one two three", "four five six"]),
        ("\u6211\u4eec\u3002" * 8, ["\u6211\u4eec\u3002" * 4] * 2),
        ("abcdefghijklmnopqrstuvwxyz", ["abcdefghijklm", "nopqrstuvwxyz"]),
        ("a" * 19 + ".      ", ["a" * 19 + "."]),
        ("Two words.     " + "b" * 14, ["Two words.", "b" * 14]),
    ],
)
def test_cut_is_at_a_sentence_end_else_at_a_word_end_else_anywhere(
    text: str, pieces: list[str]
) -> None:
    assert pieces_of(text, 20) == pieces


@pytest.mark.parametrize(
    "text", ["x" * 10**5, ". " * 50_000, "word " * 20_000, " " * 10**5, "a. " * 9 + "b" * 10**5]
)
def test_work_grows_with_the_length_alone(text: str) -> None:
    encoded: list[int] = []

    def encode(piece: str) -> list[int]:
        encoded.append(len(piece))
        return [0] * len(piece.strip())

    n_ids = sum(len(ids) for ids in encode_in_pieces(text, encode, max_ids=256))
    assert len("".join(text.split())) <= n_ids <= len(text)
    assert max(encoded) <= MAX_CHARACTERS
    assert sum(encoded) <= 6 * len(text)  # of 4,096, 2,048, 1,024, 512 and 256 characters
