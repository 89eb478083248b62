"""Both subword methods and their common interface."""

import io
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from subword_nmt import apply_bpe

from nmtkit.corpus.bpe_learning import learn_bpe
from nmtkit.corpus.bpe_subword import BpeCodes, BpeSubword, BpeVersion
from nmtkit.corpus.sentencepiece_subword import SentencePieceSubword, learn_sentencepieces
from nmtkit.corpus.special_tokens import BOS_ID, EOS_ID, PAD_ID, SPECIALS, UNK_ID
from nmtkit.corpus.subword import Subword, load_subword
from nmtkit.store.artifacts import open_directory, publish_directory
from nmtkit.utils.errors import UserError

ALPHABET = "abcdeßñ\U0001f600"
lines = st.lists(st.text(ALPHABET, min_size=1, max_size=8), max_size=12).map(" ".join)

TEXT = [
    "ein kleines Haus steht am See .",
    "zwei kleine Häuser stehen am See .",
    "das Haus am See ist klein &amp; alt .",
    "die Seen sind klein .",
]


def word_counts(text: list[str]) -> Counter[str]:
    return Counter(word for line in text for word in line.split(" ") if word)


def bpe_subword(text: list[str], version: BpeVersion = "0.2") -> BpeSubword:
    counts = word_counts(text)
    return BpeSubword.from_words(learn_bpe(counts, 20, version), counts)


def sentencepiece_subword() -> SentencePieceSubword:
    return SentencePieceSubword(learn_sentencepieces(word_counts(TEXT), 310))


@pytest.fixture(params=["0.1", "0.2", "sentencepiece"])
def subword(request: pytest.FixtureRequest) -> Subword:
    """Both versions of BPE, and sentencepiece."""
    if request.param == "sentencepiece":
        return sentencepiece_subword()
    return bpe_subword(TEXT, request.param)


def test_text_round_trip_after_loading(subword: Subword, tmp_path: Path) -> None:
    draft = tmp_path / "draft"
    draft.mkdir()
    subword.save(draft)
    publish_directory(draft, tmp_path / "place", {"kind": "prepare"})
    loaded = load_subword(open_directory(tmp_path / "place"))
    assert loaded.n_tokens == subword.n_tokens
    for line in [*TEXT, "Seehaus", "</s> <pad> <s>", "nie gesehen : Öl"]:
        ids = subword.encode(line)
        assert loaded.encode(line) == ids
        assert not {PAD_ID, BOS_ID, EOS_ID} & set(ids)
        words = subword.words(ids)
        assert [id_ for word in words for id_ in word] == ids
        if UNK_ID not in ids:
            assert subword.decode([BOS_ID, *ids, EOS_ID, PAD_ID]) == line
            assert [subword.decode(word) for word in words] == line.split(" ")
    joined = " ".join(subword.pieces(subword.encode(TEXT[0])))
    if isinstance(subword, BpeSubword):
        assert joined.replace("@@ ", "") == TEXT[0]
    else:
        assert joined.replace(" ", "").replace("\u2581", " ").strip() == TEXT[0]
    assert tuple(subword.pieces([PAD_ID, BOS_ID, EOS_ID, UNK_ID])) == SPECIALS


@given(
    st.lists(lines, min_size=1, max_size=8), st.integers(0, 30), st.text("ab\u00df \r\n\t\u0085@")
)
def test_encoding_equals_subword_nmt(text: list[str], n_merges: int, line: str) -> None:
    counts = word_counts(text)
    merges = learn_bpe(counts, n_merges).merges
    subword = BpeSubword.from_words(BpeCodes(merges), counts)
    pieces = set(subword.pieces(range(len(SPECIALS), subword.n_tokens)))
    codes = "".join(f"{line}\n" for line in ("#version: 0.2", *map(" ".join, merges)))
    reference = apply_bpe.BPE(io.StringIO(codes), merges=len(merges), vocab=pieces)
    for sentence in [*text, line]:
        segmented = reference.segment(sentence).split(" ")
        known = [piece if piece in pieces else "<unk>" for piece in segmented if piece]
        assert subword.pieces(subword.encode(sentence)) == known


@given(st.lists(lines, min_size=1, max_size=8), st.integers(0, 30))
def test_bpe_01_equals_subword_nmt(text: list[str], n_merges: int) -> None:
    counts = word_counts(text)
    merges = learn_bpe(counts, n_merges, "0.1").merges
    subword = BpeSubword.from_words(BpeCodes(merges, "0.1"), counts)
    codes = "".join(f"{first} {second}\n" for first, second in merges)
    reference = apply_bpe.BPE(io.StringIO(codes), merges=len(merges))
    for line in text:
        assert " ".join(subword.pieces(subword.encode(line))) == reference.segment(line)


@given(st.lists(lines, min_size=1, max_size=8), st.integers(0, 30), st.data())
def test_bpe_01_splits_unknown_pieces(text: list[str], n_merges: int, data: st.DataObject) -> None:
    counts = word_counts(text)
    codes = learn_bpe(counts, n_merges, "0.1")
    complete = BpeSubword.from_words(codes, counts).counts
    # All characters, and some of the pieces of several.
    kept = {}
    for piece in complete:
        if len(piece.removesuffix("@@")) == 1 or data.draw(st.booleans()):
            kept[piece] = 0
    subword = BpeSubword(codes, kept)
    for line in text:
        ids = subword.encode(line)
        assert UNK_ID not in ids
        assert subword.decode(ids) == line


@given(st.lists(lines, min_size=1, max_size=8))
def test_known_characters_are_known(text: list[str]) -> None:
    subword = bpe_subword(text)
    characters = sorted(set("".join(text)) - {" "})
    for first in characters:
        for second in characters:
            word = first + second + first
            assert UNK_ID not in subword.encode(word)
            assert subword.decode(subword.encode(word)) == word


def test_rare_characters_add_few_rows() -> None:
    rare = [chr(0x4E00 + n) for n in range(3_000)]  # words of one character
    text = TEXT * 2 + rare + rare[:600] * 2
    subword = bpe_subword(text)
    n_used = len({piece for line in text for piece in subword.pieces(subword.encode(line))})
    assert subword.n_tokens == len(SPECIALS) + n_used + 1_000
    for line in text:
        assert subword.decode(subword.encode(line)) == line
    # The frequent ones are known inside of a word too, although the text has no such word.
    assert UNK_ID not in subword.encode("".join(rare[:600]) + "ein")
    assert subword.encode(f"{rare[-1]}ein")[0] == UNK_ID


def test_endless_merges_are_refused() -> None:
    word = "".join(chr(0x4E00 + n) for n in range(1_500))
    merges = [(word[:n], word[n]) for n in range(1, len(word))]
    with pytest.raises(UserError, match="too many steps"):
        BpeSubword(BpeCodes(merges), {"b": 1}).encode(word + "b")
    merges = [("<", "/w>"), ("a", "</w>")]  # "" would be "<" and "" for ever
    with pytest.raises(UserError, match="too many steps"):
        BpeSubword(BpeCodes(merges), {"b": 1}).encode("ca")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("<pad>\t0\n<s>\t0\n</s>\t0\n<unk>\t0\na 3\n", "line 5"),
        ("<pad>\t0\n<s>\t0\n</s>\t0\n<unk>\t0\na\t-3\n", "line 5"),
        (f"<pad>\t0\n<s>\t0\n</s>\t0\n<unk>\t0\na\t{'3' * 5_000}\n", "line 5"),
        ("<pad>\t0\n<s>\t0\n<unk>\t0\na\t3\n", "does not start with"),
        ("<pad>\t0\n<s>\t0\n</s>\t0\n<unk>\t0\na\t3\na\t2\n", "twice"),
    ],
)
def test_damaged_vocabulary_is_refused(tmp_path: Path, content: str, message: str) -> None:
    bpe_subword(TEXT).save(tmp_path)
    (tmp_path / "vocabulary.tsv").write_text(content, encoding="utf-8", newline="\n")
    with pytest.raises(UserError, match=message):
        BpeSubword.load(tmp_path)


def test_hostile_sentencepiece_is_refused(tmp_path: Path) -> None:
    sentencepiece_subword().save(tmp_path)
    path = tmp_path / "sentencepiece.model"
    whole = path.read_bytes()
    text = b"a" * 1_000_000  # sentencepiece 0.2.1 overflowed the stack of the whole process
    piece = b"\x0a" + varint(len(text)) + text  # field 1 of a piece; pieces are field 1 of a model
    endless = whole + b"\x0a" + varint(len(piece)) + piece
    for content in (b"no model", b"", whole[:-90], endless):
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"sentencepiece\.model"):
            SentencePieceSubword.load(tmp_path)


PROTECTED = ["<b>", "</b>", "{0}", "%1$s", "a,b", 'say "x"'.replace(" ", "")]


@pytest.mark.parametrize("token", PROTECTED)
def test_protected_token_is_one_piece(token: str) -> None:
    model = learn_sentencepieces(word_counts([*TEXT, f"das{token}Haus {token} <b"]), 330, PROTECTED)
    subword = SentencePieceSubword(model)
    assert subword.protected == PROTECTED
    assert sentencepiece_subword().protected == []
    for text in (f"das {token}Haus{token} am See", f"{token}{token}", f"{token} . nie{token}"):
        ids = subword.encode(text)
        assert subword.pieces(ids).count(token) == text.count(token)
        assert subword.decode(ids) == text


def varint(number: int) -> bytes:
    """A number in the encoding of Protocol Buffers."""
    if number < 128:
        return bytes([number])
    return bytes([number % 128 + 128]) + varint(number // 128)
