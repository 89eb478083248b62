"""Long lines are split into pieces at suitable places."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmtkit.corpus.long_lines import encode_in_pieces

WORDS = st.text(alphabet="ab. !\u3002\u00e9\"'\t", max_size=200)


def pieces_of(text: str, max_characters: int) -> list[str]:
    """The pieces, with the code points of their characters as ids, without outer blanks."""

    def encode(piece: str) -> list[int]:
        return [ord(character) for character in piece.strip()]

    return ["".join(map(chr, ids)) for _, ids in encode_in_pieces(text, encode, max_characters)]


@given(WORDS, st.integers(min_value=1, max_value=60))
def test_pieces_fit_and_lose_nothing(text: str, bound: int) -> None:
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
def test_preferred_places_to_split(text: str, pieces: list[str]) -> None:
    assert pieces_of(text, 20) == pieces
