"""The tokens of translations: their log-probabilities, and their alignment with the source."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from nmtkit.corpus.special_tokens import EOS_ID
from nmtkit.corpus.subword import Subword
from nmtkit.decoding.engine import Engine, ForcedDecoding, Link, Sentences, map_groups
from nmtkit.evaluation.perplexity import perplexity_from_nll

Pieces = tuple[Sentences, Sentences]  # the ids of a line's pieces, and of their translations


@dataclass(frozen=True)
class Alignment:
    """Links from the source to a translation, between tokens (subwords) and between words.

    Words are separated by spaces in tokenized text. Two words are linked if any of their
    tokens are linked (Zenkel et al. 2019). EOS has no links and is not counted.
    """

    token_links: list[Link]
    src_words: list[str]
    tgt_words: list[str]
    word_links: list[Link]


@dataclass(frozen=True)
class Detail:
    """The tokens of a line and of its translation, piece by piece, EOS included.

    Attributes:
        src_tokens: Source tokens, by piece.
        tgt_tokens: Target tokens, by piece.
        log_probs: Log-probabilities of the target tokens, by piece.
        alignment: Links between the two, if they were requested.
    """

    src_tokens: list[list[str]]
    tgt_tokens: list[list[str]]
    log_probs: list[list[float]]
    alignment: Alignment | None

    @property
    def log_prob(self) -> float:
        """The log-probability of the translation, EOS included."""
        return sum(chain.from_iterable(self.log_probs), start=0.0)

    @property
    def n_tokens(self) -> int:
        """The number of target tokens, EOS included."""
        return sum(len(tokens) for tokens in self.tgt_tokens)

    @property
    def perplexity(self) -> float:
        """The perplexity of the target tokens, EOS included."""
        return perplexity_from_nll(-self.log_prob, self.n_tokens)


def details(
    subword: Subword, engine: Engine, translations: Sequence[Pieces], *, align: bool
) -> list[Detail]:
    """Compute the log-probabilities of translations by forced decoding.

    Args:
        subword: Names the tokens.
        engine: Runs the model.
        translations: The pieces of every line, and their translations.
        align: Also align source and target.

    Returns:
        The details of the translations, in the same order.
    """

    def force(pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[ForcedDecoding]:
        sources = [src for src, _ in pairs]
        targets = [tgt for _, tgt in pairs]
        return engine.force(sources, targets, align=align)

    # The pieces of all lines are computed together, since an engine is faster with large batches.
    pairs = [list(zip(src, tgt, strict=True)) for src, tgt in translations]
    line_details = []
    for (src, tgt), forced in zip(translations, map_groups(force, pairs), strict=True):
        detail = Detail(
            src_tokens=[subword.pieces(ids) for ids in src],
            tgt_tokens=[subword.pieces([*ids, EOS_ID]) for ids in tgt],
            log_probs=[piece.log_probs for piece in forced],
            alignment=_alignment(subword, src, tgt, forced) if align else None,
        )
        line_details.append(detail)
    return line_details


def _alignment(
    subword: Subword, src_pieces: Sentences, tgt_pieces: Sentences, forced: Sequence[ForcedDecoding]
) -> Alignment:
    """Join the links of the pieces of a line, and find the words that they link.

    Args:
        subword: Groups the tokens into words.
        src_pieces: Ids of the source with EOS, by piece.
        tgt_pieces: Ids of the translation without EOS, by piece.
        forced: The links, by piece.
    """
    src_words: list[list[int]] = []
    tgt_words: list[list[int]] = []
    links: list[Link] = []
    src_start = 0
    tgt_start = 0
    for src, tgt, piece in zip(src_pieces, tgt_pieces, forced, strict=True):
        src_words += subword.words(src[:-1])
        tgt_words += subword.words(tgt)
        # The links of a piece count tokens from its own beginning.
        links += [(src_start + i, tgt_start + j) for i, j in piece.links]
        src_start += len(src) - 1
        tgt_start += len(tgt)

    # A link between tokens links the words that contain them.
    src_numbers = _word_numbers(src_words)
    tgt_numbers = _word_numbers(tgt_words)
    word_links = {(src_numbers[i], tgt_numbers[j]) for i, j in links}
    return Alignment(
        token_links=links,
        src_words=[subword.decode(word) for word in src_words],
        tgt_words=[subword.decode(word) for word in tgt_words],
        word_links=sorted(word_links),
    )


def _word_numbers(words: Sequence[Sequence[int]]) -> list[int]:
    """Number the words, and return the numbers token by token."""
    numbers = []
    for number, word in enumerate(words):
        numbers += [number] * len(word)
    return numbers
