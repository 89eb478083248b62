"""The tokens of translations: how the model rates each, and where it looks in the source."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, islice

from nmtkit.corpus.special_tokens import EOS_ID
from nmtkit.corpus.subword import Subword
from nmtkit.decoding.engine import Engine, Forced, Link, Sentences
from nmtkit.evaluation.perplexity import perplexity_of

Pieces = tuple[Sentences, Sentences]  # of a line, and their translations


@dataclass(frozen=True)
class Alignment:
    """Links from the source to a translation: of tokens, which are subwords, and of words.

    Words are what the tokenization puts between two spaces. Two of them are linked if a token of
    one is linked to a token of the other (Zenkel et al. 2019). No EOS is counted.
    """

    token_links: list[Link]
    src_words: list[str]
    tgt_words: list[str]
    word_links: list[Link]


@dataclass(frozen=True)
class Detail:
    """The tokens of a line and of a translation, piece by piece, each with its EOS."""

    src_tokens: list[list[str]]
    tgt_tokens: list[list[str]]
    log_probs: list[list[float]]  # of each target token
    alignment: Alignment | None  # if it was asked for

    @property
    def log_prob(self) -> float:
        return sum(chain.from_iterable(self.log_probs), start=0.0)

    @property
    def n_tokens(self) -> int:
        """The number of target tokens, with each EOS."""
        return sum(map(len, self.tgt_tokens))

    @property
    def perplexity(self) -> float:
        return perplexity_of(-self.log_prob, self.n_tokens)


def details(
    subword: Subword, engine: Engine, translations: Sequence[Pieces], *, align: bool
) -> list[Detail]:
    sources = [ids for src, _ in translations for ids in src]
    targets = [ids for _, tgt in translations for ids in tgt]
    ratings = iter(engine.force(sources, targets, align=align))
    found = []
    for src, tgt in translations:
        of_one = list(islice(ratings, len(src)))
        src_tokens = [subword.pieces(ids) for ids in src]
        tgt_tokens = [subword.pieces([*ids, EOS_ID]) for ids in tgt]
        log_probs = [rating.log_probs for rating in of_one]
        alignment = _alignment(subword, src, tgt, of_one) if align else None
        found.append(Detail(src_tokens, tgt_tokens, log_probs, alignment))
    return found


def _alignment(
    subword: Subword, src_pieces: Sentences, tgt_pieces: Sentences, ratings: Sequence[Forced]
) -> Alignment:
    src_words = [word for src in src_pieces for word in subword.words(src[:-1])]
    tgt_words = [word for tgt in tgt_pieces for word in subword.words(tgt)]
    links: list[Link] = []
    src_start = tgt_start = 0
    for src, tgt, rating in zip(src_pieces, tgt_pieces, ratings, strict=True):
        links += [(src_start + i, tgt_start + j) for i, j in rating.links]
        src_start += len(src) - 1
        tgt_start += len(tgt)
    src_word, tgt_word = (
        [number for number, word in enumerate(words) for _ in word]
        for words in (src_words, tgt_words)
    )
    return Alignment(
        links,
        [subword.decode(word) for word in src_words],
        [subword.decode(word) for word in tgt_words],
        sorted({(src_word[i], tgt_word[j]) for i, j in links}),
    )
