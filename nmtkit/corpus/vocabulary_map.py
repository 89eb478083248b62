"""A vocabulary map: for every source token, the target tokens that its translation may have.

CTranslate2 computes logits only for the candidates of a batch. In its file, a line is a source
token, a tab, and the candidates. The first line has no source token: its candidates are those of
every batch. In a bundle, the names of the tokens are their ids.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
import numpy.typing as npt

from nmtkit.corpus.special_tokens import PAD_ID, SPECIALS
from nmtkit.store.records import read_utf8, write_lines
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import quote

if TYPE_CHECKING:
    from nmtkit.corpus.ids import Ids

VOCABULARY_MAP = "vmap.txt"  # the name that CTranslate2 expects
MAX_FILE_BYTES = 2**28
N_FREQUENT = 2_000  # target tokens that are always candidates
N_ITERATIONS = 5
_ID = "[0-9]{1,18}"
_LINE = re.compile(rf"\t(?:{_ID}(?: {_ID})*)?|{_ID}\t{_ID}(?: {_ID})*")

Int64Array = npt.NDArray[np.int64]
Float64Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class VocabularyMap:
    """Candidates of target tokens.

    Attributes:
        frequent: Candidates of every sentence.
        candidates: More candidates by source token.
    """

    frequent: list[int]
    candidates: dict[int, list[int]]

    @classmethod
    def from_corpus(cls, src: "Ids", tgt: "Ids", n_tokens: int, n_candidates: int) -> Self:
        """Choose the candidates by the word alignments of parallel text.

        A source token is among its own candidates: names and numbers are copied.

        Args:
            src: The source sentences, with EOS.
            tgt: The target sentences, with EOS.
            n_tokens: Size of the vocabulary.
            n_candidates: Maximum number of candidates of a source token, besides itself.
        """
        counts = tgt.counts(n_tokens)
        counts[: len(SPECIALS)] = 0
        frequent = np.argsort(-counts, kind="stable")[:N_FREQUENT]
        candidates = {token: [token] for token in range(len(SPECIALS), n_tokens)}
        keys, _ = expected_links(src, tgt, n_tokens, n_candidates)
        for src_token, tgt_token in zip(*divmod(keys, n_tokens), strict=True):
            if src_token in candidates and src_token != tgt_token:
                candidates[int(src_token)].append(int(tgt_token))
        return cls(sorted(frequent[counts[frequent] > 0].tolist()), candidates)

    def write(self, path: Path, names: Sequence[str]) -> None:
        """Write the file of CTranslate2.

        Args:
            names: The names of the tokens in its vocabulary.
        """
        lines = ["\t" + " ".join(names[token] for token in self.frequent)]
        for src_token, candidates in self.candidates.items():
            line = " ".join(names[token] for token in candidates)
            lines.append(f"{names[src_token]}\t{line}")
        write_lines(path, lines)

    @classmethod
    def read(cls, path: Path, n_tokens: int) -> Self:
        """Read a file with ids as names.

        Args:
            n_tokens: Size of the vocabulary.

        Raises:
            UserError: A line is invalid.
        """
        frequent: list[int] = []
        candidates: dict[int, list[int]] = {}
        lines = read_utf8(path, MAX_FILE_BYTES).removesuffix("\n").split("\n")
        for number, line in enumerate(lines, start=1):
            if not _LINE.fullmatch(line):
                raise UserError(
                    f"{path}, line {number:,}: expected a token id, a tab and the ids of its "
                    f"candidates, got {quote(line)}"
                )
            src_token, _, tgt_tokens = line.partition("\t")
            ids = [int(id_) for id_ in tgt_tokens.split()]
            largest = max([*ids, int(src_token or 0)])
            if largest >= n_tokens:
                raise UserError(
                    f"{path}, line {number:,}: the token id {largest:,} is not in the vocabulary, "
                    f"which has {n_tokens:,} tokens"
                )
            if src_token:
                candidates[int(src_token)] = ids
            else:
                frequent = ids
        return cls(frequent, candidates)


def expected_links(
    src: "Ids",
    tgt: "Ids",
    n_tokens: int,
    n_best: int,
    links_per_chunk: int = 2**23,
    max_links: int = 2**28,
) -> tuple[Int64Array, Float64Array]:
    """Count the expected links of source and target tokens by IBM model 1.

    Brown et al., "The Mathematics of Statistical Machine Translation", 1993. Chunks of the text are
    aligned independently, and of a long text only every n-th pair.

    Args:
        src: The source sentences, with EOS.
        tgt: The target sentences, with EOS.
        n_tokens: Size V of the vocabulary.
        n_best: Number of target tokens to keep of every source token.
        links_per_chunk: Number of possible links in a chunk; 2**23 take 0.7 GB of memory.
        max_links: Maximum number of possible links; 240,000 pairs of news have 2**28.

    Returns:
        Source token * V + target token, by source token and decreasing count, and the counts.
    """
    # All lengths include the EOS; a target token may also be linked to the empty word.
    n_links = int((src.lengths * (tgt.lengths - 1)).sum())
    step = max(1, math.ceil(n_links / max_links))
    keys = np.zeros(0, np.int64)
    counts = np.zeros(0)
    chunk: list[tuple[Int64Array, Int64Array]] = []
    n_chunk = 0
    for i in range(0, len(src), step):
        a = src.ids[src.offsets[i] : src.offsets[i + 1] - 1].astype(np.int64)
        b = tgt.ids[tgt.offsets[i] : tgt.offsets[i + 1] - 1].astype(np.int64)
        chunk.append((a, b))
        n_chunk += (len(a) + 1) * len(b)
        if n_chunk >= links_per_chunk or i + step >= len(src):
            new_keys, new_counts = _align(chunk, n_tokens)
            keys, counts = _best(
                np.concatenate([keys, new_keys]),
                np.concatenate([counts, new_counts]),
                n_tokens,
                n_best,
            )
            chunk = []
            n_chunk = 0
    return keys, counts


def _align(
    pairs: Sequence[tuple[Int64Array, Int64Array]], n_tokens: int
) -> tuple[Int64Array, Float64Array]:
    """Align sentence pairs, and return the keys and expected counts of linked tokens."""
    links = []
    positions = []  # of the target tokens, one after the other
    n_positions = 0
    for src, tgt in pairs:
        # A target token may also be linked to the empty word.
        words = np.concatenate([np.array([PAD_ID]), src])
        links.append((words[:, None] * n_tokens + tgt).ravel())
        positions.append(np.tile(np.arange(n_positions, n_positions + len(tgt)), len(words)))
        n_positions += len(tgt)
    keys, index = np.unique(np.concatenate(links), return_inverse=True)
    position = np.concatenate(positions)
    src_tokens = keys // n_tokens
    probabilities = np.ones(len(keys))  # of the target token, given the source token
    for _ in range(N_ITERATIONS):
        weights = probabilities[index]
        totals = np.bincount(position, weights, n_positions)
        counts = np.bincount(index, weights / totals[position], len(keys))
        probabilities = counts / np.bincount(src_tokens, counts)[src_tokens]
    return keys, counts.astype(np.float64)


def _best(
    keys: Int64Array, counts: Float64Array, n_tokens: int, n_best: int
) -> tuple[Int64Array, Float64Array]:
    """Add the counts of equal keys, and keep the largest of every source token."""
    keys, index = np.unique(keys, return_inverse=True)
    counts = np.bincount(index, counts, len(keys)).astype(np.float64)
    src_tokens = keys // n_tokens
    order = np.lexsort((-counts, src_tokens))
    src_tokens = src_tokens[order]
    rank = np.arange(len(order)) - np.searchsorted(src_tokens, src_tokens)
    kept = order[rank < n_best]
    return keys[kept], counts[kept]
