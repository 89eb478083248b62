"""Turn a chunk of raw pairs into clean tokens: the work of one process of `prepare`."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from nmtkit.corpus.cleaning import Cleaning
from nmtkit.corpus.moses import Tokenization
from nmtkit.sources.source import Pair

LINES_PER_CHUNK = 2_000  # which take much more work than sending them to a process
KEPT_AT_FIRST = 4  # samples of the first chunk of a corpus; then one of chunks 2, 4, 8, ...
DROPPED_OF_A_REASON = 3  # samples


@dataclass(frozen=True)
class RawChunk:
    corpus: int  # its number
    index: int  # of the chunk in the corpus
    pairs: list[Pair]
    duplicates: frozenset[int]  # indices of the pairs that occurred before


@dataclass
class Tokenized:
    """The tokenized pairs of a chunk, and the reasons and examples of those that were dropped."""

    corpus: int
    pairs: list[Pair] = field(default_factory=list)
    words: Counter[str] = field(default_factory=Counter)  # of both sides
    reasons: Counter[str] = field(default_factory=Counter)
    kept: list[dict[str, Any]] = field(default_factory=list)
    dropped: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Tokenize:
    """The work of a process on a chunk of raw pairs."""

    src: Tokenization
    tgt: Tokenization
    cleaning: Cleaning
    names: tuple[str, ...]  # of the corpora
    held_out_src: frozenset[str]  # tokenized lines that no training pair may have
    held_out_tgt: frozenset[str]

    def __call__(self, chunk: RawChunk) -> Tokenized:
        result = Tokenized(chunk.corpus)
        is_power = chunk.index & (chunk.index + 1) == 0  # ever fewer samples: chunks 2, 4, 8, ...
        wanted = int(is_power) if chunk.index else KEPT_AT_FIRST
        first_line = chunk.index * LINES_PER_CHUNK + 1
        for place, raw in enumerate(chunk.pairs):
            pair = self.src.tokenize(raw[0]), self.tgt.tokenize(raw[1])
            reason: str | None = self.cleaning.reason_to_drop(*pair)
            if place in chunk.duplicates:
                reason = "duplicate"
            elif reason is None and (pair[0] in self.held_out_src or pair[1] in self.held_out_tgt):
                reason = "held_out"
            at = {"corpus": self.names[chunk.corpus], "line": first_line + place}
            sample = {**at, "src": raw[0], "tgt": raw[1]}
            if reason:
                result.reasons[reason] += 1
                if result.reasons[reason] <= DROPPED_OF_A_REASON:
                    result.dropped.append({**sample, "reason": reason})
                continue
            if len(result.kept) < wanted:
                result.kept.append(sample)
            result.pairs.append(pair)
            result.words.update(words_of(pair))
        return result


def words_of(pair: Pair) -> list[str]:
    return f"{pair[0]} {pair[1]}".split(" ")
