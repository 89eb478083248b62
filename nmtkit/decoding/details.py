"""The tokens of translations: their log-probabilities, and their alignment with the source."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from nmtkit.corpus.special_tokens import EOS_ID
from nmtkit.corpus.subword import Subword
from nmtkit.decoding.engine import Engine, ForcedDecoding, Link, map_groups
from nmtkit.evaluation.perplexity import perplexity_from_nll


class Pieces(NamedTuple):
    """A line and its translation, in pieces.

    Attributes:
        src: Ids of the source by piece, EOS included.
        tgt: Ids of the translation by piece, without EOS.
        has_tag: Whether the first token of every source piece is the language tag of the line.
        continues: For every source piece, whether it continues a word; if empty, none does.
        joins_tgt: Whether the translations of the pieces are joined without a space.
    """

    src: list[list[int]]
    tgt: list[list[int]]
    has_tag: bool = False
    continues: Sequence[bool] = ()
    joins_tgt: bool = False


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
    pairs = [list(zip(line.src, line.tgt, strict=True)) for line in translations]
    line_details = []
    for line, forced in zip(translations, map_groups(force, pairs), strict=True):
        src_tokens = []
        for number, ids in enumerate(line.src):
            # The tag of the line is in front of every piece, but the user typed it once.
            src_tokens.append(subword.pieces(ids[1:] if line.has_tag and number else ids))
        detail = Detail(
            src_tokens=src_tokens,
            tgt_tokens=[subword.pieces([*ids, EOS_ID]) for ids in line.tgt],
            log_probs=[piece.log_probs for piece in forced],
            alignment=_alignment(subword, line, forced) if align else None,
        )
        line_details.append(detail)
    return line_details


def _alignment(subword: Subword, line: Pieces, forced: Sequence[ForcedDecoding]) -> Alignment:
    """Join the links of the pieces of a line, and find the words that they link.

    Args:
        subword: Groups the tokens into words.
        forced: The links, by piece.
    """
    src_words = _Words(subword)
    tgt_words = _Words(subword)
    links: list[Link] = []
    for number, (src, tgt, piece) in enumerate(zip(line.src, line.tgt, forced, strict=True)):
        src_start = len(src_words.numbers)
        tgt_start = len(tgt_words.numbers)
        ids = src[:-1]
        n_repeated = int(line.has_tag and number > 0)
        if line.has_tag:
            # The tag is a word of its own; the line has it once.
            if number == 0:
                src_words.add([[src[0]]])
            ids = ids[1:]
        is_continued = bool(line.continues) and line.continues[number]
        src_words.add(subword.words(ids), joined=is_continued)
        tgt_words.add(subword.words(tgt), joined=line.joins_tgt)
        # The links of a piece count tokens from its own beginning. A repeated tag is that of the
        # line, whose first token it is.
        for i, j in piece.links:
            links.append((src_start + i - n_repeated if i >= n_repeated else 0, tgt_start + j))

    # A link between tokens links the words that contain them.
    word_links = {(src_words.numbers[i], tgt_words.numbers[j]) for i, j in links}
    return Alignment(
        token_links=links,
        src_words=src_words.texts,
        tgt_words=tgt_words.texts,
        word_links=sorted(word_links),
    )


class _Words:
    """The words of the pieces of a line so far.

    Attributes:
        texts: The words.
        numbers: For every token, the number of its word, from 0.
    """

    def __init__(self, subword: Subword) -> None:
        """Start without words, whose tokens `subword` decodes."""
        self._subword = subword
        self.texts: list[str] = []
        self.numbers: list[int] = []

    def add(self, words: Sequence[Sequence[int]], *, joined: bool = False) -> None:
        """Add words.

        Args:
            words: Token ids, word by word.
            joined: Whether the first of them continues the last word so far.
        """
        for index, ids in enumerate(words):
            text = self._subword.decode(ids)
            if joined and index == 0 and self.texts:
                self.texts[-1] += text
            else:
                self.texts.append(text)
            self.numbers += [len(self.texts) - 1] * len(ids)
