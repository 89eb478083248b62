"""Tokenize and clean a chunk of raw pairs: the work of one process of `prepare`."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from nmtkit.corpus.cleaning import Cleaning
from nmtkit.corpus.moses import Tokenization
from nmtkit.sources.source import Pair

LINES_PER_CHUNK = 2_000  # which take much more work than sending them to a process
CHUNKS_PER_PART = 50  # between two entries of the journal of `prepare`
KEPT_IN_FIRST_CHUNK = 4  # samples of the first chunk of a corpus; then one of chunks 2, 4, 8, ...
DROPPED_PER_REASON = 3  # samples


@dataclass(frozen=True)
class RawChunk:
    """Raw pairs that follow each other in a corpus.

    Attributes:
        corpus: Number of the corpus.
        index: Number of the chunk in the corpus, from 0.
        pairs: The raw pairs.
        duplicates: Indices of the pairs that occurred before.
    """

    corpus: int
    index: int
    pairs: list[Pair]
    duplicates: frozenset[int]


@dataclass
class TokenizedChunk:
    """The tokenized pairs of a chunk, and the reasons and samples of those that were dropped.

    Attributes:
        corpus: Number of the corpus.
        pairs: The tokenized pairs that were kept.
        raw_pairs: The same pairs before tokenization, if they were requested.
        words: The counts of their words, of both sides.
        reasons: The number of dropped pairs by reason.
        kept: Samples of raw pairs that were kept.
        dropped: Samples of raw pairs that were dropped, with the reason.
    """

    corpus: int
    pairs: list[Pair] = field(default_factory=list)
    raw_pairs: list[Pair] = field(default_factory=list)
    words: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    kept: list[dict[str, Any]] = field(default_factory=list)
    dropped: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class ChunkTokenizer:
    """The work of a process on a chunk of raw pairs.

    Attributes:
        src: Tokenization of the source.
        tgt: Tokenization of the target.
        cleaning: Bounds on the pairs.
        names: Names of the corpora.
        held_out_src: Tokenized source lines that no training pair may have.
        held_out_tgt: Tokenized target lines that no training pair may have.
        has_raw_pairs: Return the raw pairs, too.
    """

    src: Tokenization
    tgt: Tokenization
    cleaning: Cleaning
    names: tuple[str, ...]
    held_out_src: frozenset[str]
    held_out_tgt: frozenset[str]
    has_raw_pairs: bool = False

    def __call__(self, chunk: RawChunk) -> TokenizedChunk:
        """Tokenize a chunk, and drop pairs."""
        result = TokenizedChunk(chunk.corpus)
        max_samples = KEPT_IN_FIRST_CHUNK
        if chunk.index > 0:
            is_power_of_two = chunk.index & (chunk.index + 1) == 0  # of the number, from 1
            max_samples = int(is_power_of_two)
        first_line = chunk.index * LINES_PER_CHUNK + 1
        for index, (raw_src, raw_tgt) in enumerate(chunk.pairs):
            src = self.src.tokenize(raw_src)
            tgt = self.tgt.tokenize(raw_tgt)
            reason: str | None = self.cleaning.reason_to_drop(src, tgt)
            if index in chunk.duplicates:
                reason = "duplicate"
            elif reason is None and (src in self.held_out_src or tgt in self.held_out_tgt):
                reason = "held_out"

            sample = {
                "corpus": self.names[chunk.corpus],
                "line": first_line + index,
                "src": raw_src,
                "tgt": raw_tgt,
            }
            if reason is not None:
                result.reasons[reason] += 1
                if result.reasons[reason] <= DROPPED_PER_REASON:
                    result.dropped.append({**sample, "reason": reason})
                continue
            if len(result.kept) < max_samples:
                result.kept.append(sample)
            result.pairs.append((src, tgt))
            if self.has_raw_pairs:
                result.raw_pairs.append((raw_src, raw_tgt))
            result.words.update(pair_words((src, tgt)))
        return result


def pair_words(pair: Pair) -> list[str]:
    """Return the words of both sides of a tokenized pair."""
    return f"{pair[0]} {pair[1]}".split(" ")
