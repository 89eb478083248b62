"""Beam search with a length penalty (paper section 6.1).

Dimensions: B sentences in progress, K beams, C = 2 * beam_size candidates, N finished hypotheses,
V vocabulary. Empty slots have log-probability -inf. Ties are broken by beam, then by token id, on
every device.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn.functional import embedding, pad

from nmtkit.config.model import DecodingConfig
from nmtkit.corpus.special_tokens import BOS_ID, EOS_ID
from nmtkit.decoding.engine import Hypothesis, length_penalty

BLOCK = 64  # tokens; see _continuations
LOWER_HALF = 0xFFFF_FFFF  # of a key; see _keys


class StepModel(Protocol):
    """A model that has encoded its source sentences, and predicts target tokens step by step."""

    def step(self, tokens: Tensor) -> Iterator[Tensor]:
        """Append the newest token (B, K), int64, of every beam.

        Yields:
            Log-probabilities of the next tokens, float32, none above 0: (b, K, V) of the first b
            sentences, then of the next ones. One may overwrite the memory of the one before.
        """

    def reorder(self, sentences: Tensor, beams: Tensor) -> None:
        """Keep some of the sentences and beams.

        Args:
            sentences: Places of the sentences to keep (B',), in their new order.
            beams: Beams of these sentences to keep (B', K'), in their new order.
        """


def beam_search(
    model: StepModel, src_lengths: Tensor, decoding: DecodingConfig, n_best: int = 1
) -> list[list[Hypothesis]]:
    """Search for the highest-scoring hypotheses of sentences.

    As in tensor2tensor (3d9c62f2), a step considers the 2 * beam_size best continuations. Those
    that end in an EOS are finished, and the best `beam_size` of the others continue.

    Deviation: a hypothesis of maximum length must end, and its score has the log-probability of
    that EOS. In tensor2tensor, the maximum is that of the longest source of the batch, and if
    nothing is finished by then, the most probable hypothesis is returned as it is.

    Args:
        model: Predicts the next tokens.
        src_lengths: Lengths of the sources without EOS (B,), int64, on the model's device.
        decoding: Beam size, length penalty and maximum length.
        n_best: Maximum number of hypotheses per sentence, up to the beam size.

    Returns:
        The hypotheses by sentence, best first: fewer than `n_best` if the search finds fewer with a
        probability above 0, and none if the model returns NaN.
    """
    beam_size = decoding.beam_size
    assert 1 <= n_best <= beam_size
    max_lengths = src_lengths + decoding.max_extra_tokens
    if decoding.max_length is not None:
        max_lengths = max_lengths.clamp(max=decoding.max_length)
    # On the host, where comparing them at every step does not wait for the device.
    shortest = min(max_lengths.tolist(), default=0)
    longest = max(max_lengths.tolist(), default=0)
    results: list[list[Hypothesis]] = [[] for _ in range(len(max_lengths))]

    # Computed on the host in float64: a score depends on neither batch nor device.
    table = [length_penalty(n, decoding) for n in range(longest + 2)]
    penalties = torch.tensor(table, dtype=torch.float32, device=max_lengths.device)
    # The trellis holds all steps: a hypothesis is read back once, when its sentence is done.
    trellis = _Trellis(max_lengths, len(penalties), beam_size)
    state = _start(max_lengths, n_best)
    length = 0  # of all hypotheses in progress
    while len(state.sentences):
        must_end = state.max_lengths <= length if shortest <= length else None
        log_probs = model.step(state.live.tokens)
        candidates = _candidates(state.live.log_probs, log_probs, 2 * beam_size, must_end)

        # Candidates that end in an EOS may become finished hypotheses; the others continue.
        ended = candidates.tokens == EOS_ID  # (B, C)
        finished = _finish(state.finished, candidates, ended, length, penalties[length + 1])
        unended = candidates.log_probs.masked_fill(ended, -torch.inf)
        live = candidates._replace(log_probs=unended).gather(_largest(unended, beam_size))
        state = state._replace(live=live, finished=finished)
        trellis.add(length, state.sentences, live)

        # A log-probability is never above 0 and can only fall, and the penalty grows with the
        # length: this is the highest score that a beam can still reach.
        highest = state.live.log_probs[:, 0] / penalties[state.max_lengths + 1]
        is_unfinished = highest > state.finished.scores[:, -1]  # (B,)
        remaining = _remaining(is_unfinished)
        if len(remaining) < len(is_unfinished):
            done = state.rows(~is_unfinished)
            best = trellis.hypotheses(done.sentences, done.finished)
            for sentence, hypotheses in zip(done.sentences.tolist(), best, strict=True):
                results[sentence] = hypotheses
            state = state.rows(remaining)
        if len(remaining):
            model.reorder(remaining, state.live.parents)
        length += 1
    return results


class _Beams(NamedTuple):
    """Unfinished hypotheses, or candidates, most probable first."""

    tokens: Tensor  # (B, K) int64, the newest ones
    log_probs: Tensor  # (B, K) float32
    parents: Tensor  # (B, K) int64, the beams of the step before that they continue

    def gather(self, indices: Tensor) -> "_Beams":
        """Select beams by their indices (B, K')."""
        return _Beams(
            self.tokens.gather(1, indices),
            self.log_probs.gather(1, indices),
            self.parents.gather(1, indices),
        )

    def rows(self, keep: Tensor) -> "_Beams":
        """Select sentences by a mask (B,) or by their indices."""
        return _Beams(self.tokens[keep], self.log_probs[keep], self.parents[keep])


class _FinishedBeams(NamedTuple):
    """The best complete hypotheses so far, best first."""

    scores: Tensor  # (B, N) float32
    log_probs: Tensor  # (B, N) float32
    lengths: Tensor  # (B, N) int64, without the EOS
    parents: Tensor  # (B, N) int64, the beam that the EOS follows

    def gather(self, indices: Tensor) -> "_FinishedBeams":
        """Select hypotheses by their indices (B, N')."""
        return _FinishedBeams(
            self.scores.gather(1, indices),
            self.log_probs.gather(1, indices),
            self.lengths.gather(1, indices),
            self.parents.gather(1, indices),
        )

    def rows(self, keep: Tensor) -> "_FinishedBeams":
        """Select sentences by a mask (B,) or by their indices."""
        return _FinishedBeams(
            self.scores[keep], self.log_probs[keep], self.lengths[keep], self.parents[keep]
        )


class _State(NamedTuple):
    """The sentences in progress."""

    sentences: Tensor  # (B,) int64, indices into the caller's batch
    max_lengths: Tensor  # (B,) int64
    live: _Beams
    finished: _FinishedBeams

    def rows(self, keep: Tensor) -> "_State":
        """Select sentences by a mask (B,) or by their indices."""
        return _State(
            self.sentences[keep],
            self.max_lengths[keep],
            self.live.rows(keep),
            self.finished.rows(keep),
        )


class _Trellis:
    """The beams of all steps, with links to their parents, for all sentences of the batch."""

    def __init__(self, max_lengths: Tensor, n_steps: int, beam_size: int) -> None:
        """Allocate the trellis of sentences with `max_lengths` (B,)."""
        shape = (len(max_lengths), n_steps, beam_size)
        self._tokens = max_lengths.new_zeros(shape, dtype=torch.int64)
        self._parents = max_lengths.new_zeros(shape, dtype=torch.int64)

    def add(self, step: int, sentences: Tensor, live: _Beams) -> None:
        """Record the beams of a step.

        Args:
            step: Number of the step, from 0.
            sentences: Indices of the sentences whose beams are live (B,).
        """
        n_beams = live.tokens.shape[1]
        self._tokens[sentences, step, :n_beams] = live.tokens
        self._parents[sentences, step, :n_beams] = live.parents

    def hypotheses(self, sentences: Tensor, finished: _FinishedBeams) -> list[list[Hypothesis]]:
        """Return the finished hypotheses of `sentences` (B,)."""
        n_steps = int(finished.lengths.max())
        # One copy to the host for all sentences, instead of one per token.
        tokens = self._tokens[sentences, :n_steps].tolist()
        parents = self._parents[sentences, :n_steps].tolist()
        rows = zip(*[values.tolist() for values in finished], strict=True)
        hypotheses = []
        for number, columns in enumerate(rows):
            best = []
            for score, log_prob, length, parent in zip(*columns, strict=True):
                if score > -torch.inf:
                    traced = _trace(tokens[number], parents[number], length, parent)
                    best.append(Hypothesis(traced, score, log_prob))
            hypotheses.append(best)
        return hypotheses


def _trace(tokens: list[list[int]], parents: list[list[int]], length: int, beam: int) -> list[int]:
    """Follow the links from a beam back to the beginning.

    Args:
        tokens: Tokens of a sentence, by step and beam.
        parents: For every token, the number of the beam that it continues.
        length: Number of steps.
        beam: The beam of the last step.

    Returns:
        The tokens of the hypothesis, first to last.
    """
    traced = []
    for step in reversed(range(length)):
        traced.append(tokens[step][beam])
        beam = parents[step][beam]
    return traced[::-1]


def _start(max_lengths: Tensor, n_best: int) -> _State:
    """Return a state with one beam per sentence: the BOS."""
    n = len(max_lengths)
    device = max_lengths.device
    zeros = torch.zeros(n, 1, dtype=torch.int64, device=device)
    nothing = torch.full((n, n_best), -torch.inf, device=device)
    return _State(
        sentences=torch.arange(n, device=device),
        max_lengths=max_lengths,
        live=_Beams(zeros + BOS_ID, torch.zeros(n, 1, device=device), zeros),
        finished=_FinishedBeams(nothing, nothing, zeros.expand(n, n_best), zeros.expand(n, n_best)),
    )


def _candidates(
    live: Tensor, log_probs: Iterable[Tensor], n: int, must_end: Tensor | None
) -> _Beams:
    """Return the most probable continuations of the beams.

    Args:
        live: Log-probabilities of the beams (B, K).
        log_probs: Log-probabilities of the next tokens, as `StepModel.step` yields them.
        n: Number of continuations per sentence C; if there are fewer, all are returned.
        must_end: Sentences after which only the EOS may follow (B,), or None.
    """
    tokens = []
    totals = []
    parents = []
    n_done = 0
    for part in log_probs:
        rows = slice(n_done, n_done + len(part))
        n_done += len(part)
        part_must_end = None if must_end is None else must_end[rows]
        best = _continuations(live[rows], part, n, part_must_end)
        tokens.append(best.tokens)
        totals.append(best.log_probs)
        parents.append(best.parents)
    return _Beams(torch.cat(tokens), torch.cat(totals), torch.cat(parents))


def _continuations(live: Tensor, log_probs: Tensor, n: int, must_end: Tensor | None) -> _Beams:
    """Return the most probable continuations of a few sentences.

    The n best continuations are in the n blocks of tokens with the greatest maxima, and only
    n * BLOCK values of a sentence are compared. The index of a continuation is
    beam * n_blocks * BLOCK + token.

    Args:
        live: Log-probabilities of the beams (b, K).
        log_probs: Log-probabilities of the next tokens (b, K, V).
        n: Number of continuations per sentence C.
        must_end: Sentences after which only the EOS may follow (b,), or None.
    """
    n_added = -log_probs.shape[2] % BLOCK
    if n_added:
        log_probs = pad(log_probs, (0, n_added), value=-torch.inf)
    blocks = torch.unflatten(log_probs, 2, (-1, BLOCK))  # (b, K, n_blocks, BLOCK)
    n_sentences, n_beams, n_blocks, _ = blocks.shape
    n_block_tokens = n_blocks * BLOCK  # of a beam

    maxima = live[:, :, None] + blocks.amax(3)  # (b, K, n_blocks)
    if must_end is not None:
        has_no_eos = torch.arange(n_blocks, device=live.device) != EOS_ID // BLOCK
        maxima.masked_fill_(must_end[:, None, None] & has_no_eos, -torch.inf)
    best = _largest(maxima.flatten(1), n)  # (b, C) beam * n_blocks + block

    # Looking up the best blocks as rows of a table is faster than gathering values.
    n_sentence_blocks = n_beams * n_blocks
    firsts = torch.arange(0, n_sentences * n_sentence_blocks, n_sentence_blocks, device=live.device)
    totals = embedding(best + firsts[:, None], blocks.flatten(0, 2))  # (b, C, BLOCK)
    totals += live.gather(1, best // n_blocks)[:, :, None]
    indices = torch.arange(BLOCK, device=live.device).add(best[:, :, None], alpha=BLOCK)
    if must_end is not None:
        is_not_eos = indices % n_block_tokens != EOS_ID
        totals.masked_fill_(must_end[:, None, None] & is_not_eos, -torch.inf)

    keys = _smallest(_keys(totals, indices).flatten(1), n)  # (b, C)
    indices = keys & LOWER_HALF
    parents = indices // n_block_tokens
    tokens = indices - parents * n_block_tokens
    if n_added:
        # Where 2 * beam_size is more than the vocabulary, the tokens that were added to fill a
        # block are among the candidates, at -inf. The model has no embeddings for them.
        tokens.clamp_(max=n_block_tokens - n_added - 1)
    return _Beams(tokens, _values(keys), parents)


def _finish(
    finished: _FinishedBeams, candidates: _Beams, ended: Tensor, length: int, penalty: Tensor
) -> _FinishedBeams:
    """Add finished candidates to the finished hypotheses, and keep the best N.

    Args:
        finished: The hypotheses so far.
        ended: The candidates that are an EOS (B, C).
        length: Number of tokens before the EOS.
        penalty: The length penalty with the EOS, a scalar.
    """
    scores = (candidates.log_probs / penalty).masked_fill(~ended, -torch.inf)
    lengths = torch.full_like(candidates.parents, length)
    both = _FinishedBeams(
        torch.cat([finished.scores, scores], 1),
        torch.cat([finished.log_probs, candidates.log_probs], 1),
        torch.cat([finished.lengths, lengths], 1),
        torch.cat([finished.parents, candidates.parents], 1),
    )
    return both.gather(_largest(both.scores, finished.scores.shape[1]))


def _remaining(is_unfinished: Tensor) -> Tensor:
    """Return the new order of the sentences that remain: indices (B',) in the old order.

    A finished sentence is replaced by one of the last, to move few caches.
    """
    indices = is_unfinished.nonzero().squeeze(1)  # the only host sync of a step
    remaining = torch.arange(len(indices), device=indices.device)
    is_free = ~is_unfinished[: len(indices)]
    remaining[is_free] = indices[indices >= len(indices)]
    return remaining


def _largest(values: Tensor, n: int) -> Tensor:
    """Return the indices of the `n` largest `values` (B, ...), largest first; see `_keys`."""
    indices = torch.arange(values.shape[-1], device=values.device)
    return _smallest(_keys(values, indices), n) & LOWER_HALF


def _keys(values: Tensor, indices: Tensor) -> Tensor:
    """Return integers that grow as `values` decrease, and where these are equal, with `indices`."""
    # torch.topk breaks ties differently for different devices and shapes. `values` are float32,
    # none above 0: without the sign, their bit patterns grow as they decrease. NaN comes last.
    return torch.add(indices, values.abs().view(torch.int32), alpha=1 << 32)


def _values(keys: Tensor) -> Tensor:
    """Return the values of `_keys`."""
    return 0 - (keys >> 32).int().view(torch.float32)


def _smallest(keys: Tensor, n: int) -> Tensor:
    """Return the `n` smallest `keys` along the last dimension, or all if there are fewer."""
    return keys.topk(min(n, keys.shape[-1]), largest=False).values
