"""Tokens, words and alignments of translations, with the ratings of a mock engine."""

from collections import Counter
from collections.abc import Sequence

from nmtkit.corpus.bpe_learning import learn_bpe
from nmtkit.corpus.bpe_subword import BpeCodes, BpeSubword
from nmtkit.corpus.special_tokens import EOS_ID
from nmtkit.decoding.details import Alignment, Pieces, details
from nmtkit.decoding.engine import Engine, ForcedDecoding, Hypothesis

WORDS = Counter({"the": 9, "cat": 9, "cats": 1})
CODES = BpeCodes(learn_bpe(WORDS, 20).merges[:4])  # of "the" and "cat" alone
SUBWORD = BpeSubword.from_words(CODES, WORDS)


class Diagonal(Engine):
    """An engine that links token i to token i, and rates it as -(i + 1)."""

    def translate(self, *_: object) -> list[list[Hypothesis]]:
        raise NotImplementedError

    def sample(self, *_: object) -> list[Hypothesis]:
        raise NotImplementedError

    def force(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], *, align: bool
    ) -> list[ForcedDecoding]:
        ratings = []
        for src, tgt in zip(sources, targets, strict=True):
            log_probs = [-i - 1.0 for i in range(len(tgt) + 1)]
            n_links = min(len(src) - 1, len(tgt)) if align else 0
            ratings.append(ForcedDecoding(log_probs, [(i, i) for i in range(n_links)]))
        return ratings


def pieces(src: Sequence[str], tgt: Sequence[str]) -> Pieces:
    """The token ids of a line that is translated in several pieces."""
    src_ids = [[*SUBWORD.encode(piece), EOS_ID] for piece in src]
    return Pieces(src_ids, [SUBWORD.encode(piece) for piece in tgt])


def test_word_links_follow_token_links() -> None:
    (detail,) = details(SUBWORD, Diagonal(), [pieces(["the cats cat"], ["cats the"])], align=True)
    assert detail.alignment == Alignment(
        token_links=[(0, 0), (1, 1), (2, 2), (3, 3)],
        src_words=["the", "cats", "cat"],
        tgt_words=["cats", "the"],
        word_links=[(0, 0), (1, 0), (1, 1)],
    )


def test_links_of_later_pieces_are_shifted() -> None:
    line = pieces(["the cats", "cat", "the"], ["cat", "cats the", "the"])
    (detail,) = details(SUBWORD, Diagonal(), [line], align=True)
    assert detail.alignment is not None
    assert detail.alignment.token_links == [(0, 0), (4, 1), (5, 5)]
    assert detail.alignment.src_words == ["the", "cats", "cat", "the"]
    assert detail.alignment.tgt_words == ["cat", "cats", "the", "the"]
    assert detail.alignment.word_links == [(0, 0), (2, 1), (3, 3)]


def test_pieces_without_space_continue_a_word() -> None:
    line = pieces(["the cats", "cat the", "cat"], ["cat", "cats the", "the"])
    line = line._replace(continues=[False, True, False], joins_tgt=True)
    (detail,) = details(SUBWORD, Diagonal(), [line], align=True)
    assert detail.alignment is not None
    assert detail.alignment.src_words == ["the", "catscat", "the", "cat"]
    assert detail.alignment.tgt_words == ["catcats", "thethe"]
    assert detail.alignment.word_links == [(0, 0), (1, 0), (2, 0), (3, 1)]


def test_repeated_tag_is_counted_once() -> None:
    """The first word of every piece is the language tag, which the line has once."""
    tagged = pieces(["the cats", "the cat", "the cat"], ["cat", "cat the", "the cat"])
    (detail,) = details(SUBWORD, Diagonal(), [tagged._replace(has_tag=True)], align=True)
    assert detail.alignment is not None
    assert detail.alignment.src_words == ["the", "cats", "cat", "cat"]
    # The first target token of a piece is linked to the tag.
    assert detail.alignment.word_links == [(0, 0), (0, 1), (0, 3), (2, 2), (3, 4)]
    assert [tokens[0] for tokens in detail.src_tokens] == ["the", "cat", "cat"]
    n_src = sum(len(tokens) - 1 for tokens in detail.src_tokens)
    assert max(i for i, _ in detail.alignment.token_links) == n_src - 1
