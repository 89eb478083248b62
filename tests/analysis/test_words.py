"""Words as a reader writes them."""

from collections import Counter

import pytest

from nmtkit.analysis.words import compute_words, mark_subwords
from nmtkit.corpus.bpe_subword import BpeCodes, BpeSubword
from nmtkit.corpus.moses import Tokenization
from nmtkit.corpus.sentencepiece_subword import SentencePieceSubword, learn_sentencepieces
from nmtkit.corpus.special_tokens import EOS_ID


@pytest.mark.parametrize(
    ("lang", "tokens", "words", "marked"),
    [
        ("de", "wie geht &apos;s", "wie geht 's </s>", "w·i·e g·e·h·t &·a·p·o·s·;·s </s>"),
        ("de", "A &amp; B @-@ C", "A & B - C </s>", "A &·a·m·p·; B @·-·@ C </s>"),
        ("de", "naß", "na<unk> </s>", "n·a·<unk> </s>"),  # a character that the vocabulary lacks
        ("zh", "wie", "w i e </s>", "w i e </s>"),  # no spaces between words
    ],
)
def test_words_are_as_readers_write_them(lang: str, tokens: str, words: str, marked: str) -> None:
    alphabet = Counter(["wie", "geht", "&apos;s", "A", "&amp;", "B", "@-@", "C", "na"])
    subword = BpeSubword.from_words(BpeCodes([]), alphabet)
    tokenization = Tokenization(lang, False, False, "moses", aggressive_hyphens=True)
    ids = [*subword.encode(tokens), EOS_ID]
    found = compute_words(subword, tokenization, ids)
    assert " ".join(word.text for word in found) == words
    assert sum(word.n_subwords for word in found) == len(ids)
    assert " ".join(mark_subwords(subword, tokenization, ids, found)) == marked


def test_marks_of_sentencepieces() -> None:
    counts = Counter({"haus": 9, "ab": 8, "&apos;s": 3})
    subword = SentencePieceSubword(learn_sentencepieces(counts, 280))
    tokenization = Tokenization("de", False, False, "moses", aggressive_hyphens=False)
    ids = subword.encode("haus hausab é")
    words = compute_words(subword, tokenization, ids)
    assert [word.text for word in words] == ["haus", "hausab", "é"]
    whole, joined, character = mark_subwords(subword, tokenization, ids, words)
    assert (whole, joined.replace("·", "")) == ("haus", "hausab")
    assert joined.startswith("haus·")
    # The space before it is a piece; a single byte is no text.
    assert character == "·<0xC3>·<0xA9>"
