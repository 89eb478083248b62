"""Tokens, words and links of translations, from the ratings of an engine that is made up."""

from collections import Counter
from collections.abc import Sequence

from nmtkit.corpus.bpe_codes import BpeCodes
from nmtkit.corpus.bpe_learning import learn_bpe
from nmtkit.corpus.special_tokens import EOS_ID
from nmtkit.corpus.subword import BpeSubword
from nmtkit.decoding.details import Alignment, Pieces, details
from nmtkit.decoding.engine import Engine, Forced, Hypothesis

WORDS = Counter({"the": 9, "cat": 9, "cats": 1})
CODES = BpeCodes(learn_bpe(WORDS, 20).merges[:4])  # of "the" and "cat" alone
SUBWORD = BpeSubword.from_words(CODES, WORDS)


class Diagonal(Engine):
    """An engine that links token i to token i, and rates it as -(i + 1)."""

    def translate(self, *_: object) -> list[list[Hypothesis]]:
        raise NotImplementedError

    def force(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], *, align: bool
    ) -> list[Forced]:
        return [
            Forced(
                [-i - 1.0 for i in range(len(tgt) + 1)],
                [(i, i) for i in range(min(len(src) - 1, len(tgt)))] if align else [],
            )
            for src, tgt in zip(sources, targets, strict=True)
        ]


def pieces(src: Sequence[str], tgt: Sequence[str]) -> Pieces:
    return [[*SUBWORD.encode(each), EOS_ID] for each in src], [SUBWORD.encode(each) for each in tgt]


def test_words_are_linked_where_any_of_their_tokens_is() -> None:
    (detail,) = details(SUBWORD, Diagonal(), [pieces(["the cats cat"], ["cats the"])], align=True)
    assert detail.alignment == Alignment(
        token_links=[(0, 0), (1, 1), (2, 2), (3, 3)],
        src_words=["the", "cats", "cat"],
        tgt_words=["cats", "the"],
        word_links=[(0, 0), (1, 0), (1, 1)],
    )


def test_links_of_later_pieces_count_the_words_before_them() -> None:
    given = pieces(["the cats", "cat", "the"], ["cat", "cats the", "the"])
    (detail,) = details(SUBWORD, Diagonal(), [given], align=True)
    assert detail.alignment is not None
    assert detail.alignment.token_links == [(0, 0), (4, 1), (5, 5)]
    assert detail.alignment.src_words == ["the", "cats", "cat", "the"]
    assert detail.alignment.tgt_words == ["cat", "cats", "the", "the"]
    assert detail.alignment.word_links == [(0, 0), (2, 1), (3, 3)]
