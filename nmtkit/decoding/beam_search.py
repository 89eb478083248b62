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

from nmtkit.config.recipe import DecodingConfig
from nmtkit.corpus.special_tokens import BOS_ID, EOS_ID
from nmtkit.decoding.engine import Hypothesis, length_penalty

BLOCK = 64  # tokens; see _continuations
LOWER_HALF = 0xFFFF_FFFF  # of a key


class StepModel(Protocol):
    """A model that has encoded its source sentences, as the search needs it."""

    def step(self, tokens: Tensor) -> Iterator[Tensor]:
        """Append the newest token (B, K), int64, of each beam; yield what may follow.

        That is float32 log-probabilities, none above 0: (b, K, V) of the first b sentences, then of
        the next ones, each perhaps in the place of the one before.
        """

    def reorder(self, sentences: Tensor, beams: Tensor) -> None:
        """Keep the places `sentences` (B',) and of each its `beams` (B', K'), in this order."""


def beam_search(
    model: StepModel, src_lengths: Tensor, decoding: DecodingConfig, n_best: int = 1
) -> list[list[Hypothesis]]:
    """Search for the at most `n_best` highest-scoring hypotheses of each sentence, best first.

    There are fewer if the search met fewer with a probability above 0, and none if the model
    returned NaN. `src_lengths` (B,), int64, are without the EOS, on the model's device.

    As in tensor2tensor (3d9c62f2), each step considers the 2 * beam_size best continuations. Those
    that end in an EOS are finished, and the best `beam_size` of the others continue.

    Deviation: a hypothesis of maximum length must end, and its score has the log-probability of
    that EOS. In tensor2tensor, the maximum is that of the longest source of the batch, and if
    nothing is finished by then, the most probable hypothesis is returned as it is.
    """
    beam_size = decoding.beam_size
    assert 1 <= n_best <= beam_size
    max_lengths = src_lengths + decoding.max_extra_tokens
    results: list[list[Hypothesis]] = [[] for _ in range(len(max_lengths))]
    shortest, longest = min(max_lengths.tolist(), default=0), max(max_lengths.tolist(), default=0)
    # Computed on the host in float64, so a score depends on neither batch nor device.
    table = [length_penalty(n, decoding) for n in range(longest + 2)]
    penalties = torch.tensor(table, dtype=torch.float32, device=max_lengths.device)
    trellis = _Trellis(max_lengths, len(penalties), beam_size)
    state = _start(max_lengths, n_best)
    length = 0  # of all hypotheses in progress
    while len(state.sentences):
        must_end = state.max_lengths <= length if shortest <= length else None
        log_probs = model.step(state.live.tokens)
        candidates = _candidates(state.live.log_probs, log_probs, 2 * beam_size, must_end)
        ended = candidates.tokens == EOS_ID
        going = candidates.log_probs.masked_fill(ended, -torch.inf)
        places = _top(going, beam_size)
        live = _Beams(*(each.gather(1, places) for each in candidates._replace(log_probs=going)))
        finished = _finish(state.finished, candidates, ended, length, penalties[length + 1])
        state = state._replace(live=live, finished=finished)
        trellis.add(length, state.sentences, live)
        # A log-probability is never above 0 and can only fall, and the penalty grows with the
        # length: this is the highest score that a beam can still reach.
        highest = state.live.log_probs[:, 0] / penalties[state.max_lengths + 1]
        goes_on = highest > state.finished.scores[:, -1]
        remaining = _remaining(goes_on)
        if len(remaining) < len(goes_on):
            done = state.rows(~goes_on)
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

    tokens: Tensor  # (B, K) int64, the newest of each
    log_probs: Tensor  # (B, K) float32
    parents: Tensor  # (B, K) int64, the beam of the step before that each one continues


class _Finished(NamedTuple):
    """The best complete hypotheses so far, best first."""

    scores: Tensor  # (B, N) float32
    log_probs: Tensor  # (B, N) float32
    lengths: Tensor  # (B, N) int64, without the EOS
    parents: Tensor  # (B, N) int64, the beam that the EOS follows


class _State(NamedTuple):
    sentences: Tensor  # (B,) int64, indices into the caller's batch
    max_lengths: Tensor  # (B,) int64
    live: _Beams
    finished: _Finished

    def rows(self, keep: Tensor) -> "_State":
        return _State(
            self.sentences[keep],
            self.max_lengths[keep],
            _Beams(*(each[keep] for each in self.live)),
            _Finished(*(each[keep] for each in self.finished)),
        )


class _Trellis:
    """The beams of every step, with links back, for all sentences of the caller's batch."""

    def __init__(self, max_lengths: Tensor, n_steps: int, beam_size: int) -> None:
        shape = 2, len(max_lengths), n_steps, beam_size
        self._tokens, self._parents = max_lengths.new_zeros(shape, dtype=torch.int64)

    def add(self, step: int, sentences: Tensor, live: _Beams) -> None:
        n_beams = live.tokens.shape[1]
        self._tokens[sentences, step, :n_beams] = live.tokens
        self._parents[sentences, step, :n_beams] = live.parents

    def hypotheses(self, sentences: Tensor, finished: _Finished) -> list[list[Hypothesis]]:
        """Return the finished hypotheses of `sentences` (B,)."""
        n_steps = int(finished.lengths.max())
        traces = self._tokens[sentences, :n_steps], self._parents[sentences, :n_steps]
        columns = [each.tolist() for each in (*traces, *finished)]
        return [
            [
                Hypothesis(_trace(tokens, parents, length, parent), score, log_prob)
                for score, log_prob, length, parent in zip(*of_hypotheses, strict=True)
                if score > -torch.inf
            ]
            for tokens, parents, *of_hypotheses in zip(*columns, strict=True)
        ]


def _trace(tokens: list[list[int]], parents: list[list[int]], length: int, beam: int) -> list[int]:
    """Return the `length` tokens that lead to a `beam`, first to last."""
    traced = []
    for step in reversed(range(length)):
        traced.append(tokens[step][beam])
        beam = parents[step][beam]
    return traced[::-1]


def _start(max_lengths: Tensor, n_best: int) -> _State:
    """Return a state with one beam per sentence, which holds only the BOS."""
    n, device = len(max_lengths), max_lengths.device
    zeros = torch.zeros(n, 1, dtype=torch.int64, device=device)
    nothing = torch.full((n, n_best), -torch.inf, device=device)
    return _State(
        sentences=torch.arange(n, device=device),
        max_lengths=max_lengths,
        live=_Beams(zeros + BOS_ID, torch.zeros(n, 1, device=device), zeros),
        finished=_Finished(nothing, nothing, zeros.expand(n, n_best), zeros.expand(n, n_best)),
    )


def _candidates(
    live: Tensor, log_probs: Iterable[Tensor], n: int, must_end: Tensor | None
) -> _Beams:
    """Return the `n` most probable continuations of each sentence, or all if there are fewer.

    `live` are the log-probabilities of the beams (B, K), and `log_probs` what `StepModel.step`
    yields; after the sentences of `must_end` (B,), only the EOS may follow.
    """
    parts, n_done = [], 0
    for part in log_probs:
        rows = slice(n_done, n_done := n_done + len(part))
        ends = None if must_end is None else must_end[rows]
        parts.append(_continuations(live[rows], part, n, ends))
    values, tokens, parents = (torch.cat(each) for each in zip(*parts, strict=True))
    return _Beams(tokens=tokens, log_probs=values, parents=parents)


def _continuations(
    live: Tensor, log_probs: Tensor, n: int, must_end: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the most probable continuations of a few sentences.

    They are in the n blocks of tokens with the greatest maxima, so that only n * BLOCK values of a
    sentence are compared. A continuation's place is beam * n_blocks * BLOCK + token.
    """
    n_more = -log_probs.shape[2] % BLOCK
    if n_more:
        log_probs = pad(log_probs, (0, n_more), value=-torch.inf)
    blocks = torch.unflatten(log_probs, 2, (-1, BLOCK))
    n_sentences, n_beams, n_blocks, _ = blocks.shape

    maxima = live[:, :, None] + blocks.amax(3)
    if must_end is not None:
        no_end = torch.arange(n_blocks, device=live.device) != EOS_ID // BLOCK
        maxima.masked_fill_(must_end[:, None, None] & no_end, -torch.inf)
    n_of_sentence = n_beams * n_blocks
    best = _top(maxima.flatten(1), n)  # (b, C)
    firsts = torch.arange(0, n_sentences * n_of_sentence, n_of_sentence, device=live.device)
    totals = embedding(best + firsts[:, None], blocks.flatten(0, 2))  # (b, C, BLOCK)
    totals += live.gather(1, best // n_blocks)[:, :, None]
    places = torch.arange(BLOCK, device=live.device).add(best[:, :, None], alpha=BLOCK)
    if must_end is not None:
        no_end = places % (n_blocks * BLOCK) != EOS_ID
        totals.masked_fill_(must_end[:, None, None] & no_end, -torch.inf)
    keys = _least(_keys(totals, places).flatten(1), n)
    values, places = 0 - (keys >> 32).int().view(torch.float32), keys & LOWER_HALF
    parents = places // (n_blocks * BLOCK)
    tokens = places - parents * (n_blocks * BLOCK)
    if n_more:
        # Where 2 * beam_size is more than the vocabulary, the tokens that were added to fill a
        # block are among the candidates, at -inf. The model has no embeddings for them.
        tokens.clamp_(max=n_blocks * BLOCK - n_more - 1)
    return values, tokens, parents


def _finish(
    finished: _Finished, candidates: _Beams, ended: Tensor, length: int, penalty: Tensor
) -> _Finished:
    """Add the candidates that have `ended` (B, C) to the finished ones, and keep the best N."""
    new_scores = (candidates.log_probs / penalty).masked_fill(~ended, -torch.inf)
    lengths = torch.full_like(candidates.parents, length)
    new = _Finished(new_scores, candidates.log_probs, lengths, candidates.parents)
    both = _Finished(*(torch.cat(each, 1) for each in zip(finished, new, strict=True)))
    places = _top(both.scores, finished.scores.shape[1])
    return _Finished(*(each.gather(1, places) for each in both))


def _remaining(goes_on: Tensor) -> Tensor:
    """Return the places that remain: where one leaves, one of the last takes its place."""
    places = goes_on.nonzero().squeeze(1)  # the only host sync of a step
    remaining = torch.arange(len(places), device=places.device)
    is_free = ~goes_on[: len(places)]
    remaining[is_free] = places[places >= len(places)]
    return remaining


def _top(values: Tensor, n: int) -> Tensor:
    """Return the indices of the `n` greatest `values` (B, ...), greatest first; see `_keys`."""
    places = torch.arange(values.shape[-1], device=values.device)
    return _least(_keys(values, places), n) & LOWER_HALF


def _keys(values: Tensor, places: Tensor) -> Tensor:
    """Return integers that grow as `values` decrease, and where these are equal, with `places`."""
    # torch.topk breaks ties differently for different devices and shapes. `values` are float32,
    # none above 0: without the sign, their bit patterns grow as they decrease. NaN comes last.
    return torch.add(places, values.abs().view(torch.int32), alpha=1 << 32)


def _least(keys: Tensor, n: int) -> Tensor:
    """Return the `n` least `keys` along the last dimension, or all if there are fewer."""
    return keys.topk(min(n, keys.shape[-1]), largest=False).values
