"""Forced decoding: how a model rates given translations, and where it looks for each token.

One pass over whole translations; there is no search. Dimensions: S source tokens and T target
tokens of a batch, Ls and Lt those of one sentence, all with the EOS; N layers, H heads.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from copy import copy

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from nmtkit.corpus.special_tokens import BOS_ID, EOS_ID
from nmtkit.decoding.engine import DIVERGED, Forced, Link, Sentences
from nmtkit.fast.accelerate import fast_attention
from nmtkit.fast.packing import PackedLayout, PackedMask
from nmtkit.model.attention import Window, attention_weights, visible
from nmtkit.model.transformer import Transformer
from nmtkit.utils.errors import DivergedError

BATCH_TOKENS = 4_096  # of both sides
LOGIT_ROWS = 512  # tokens whose logits are in memory at a time


@torch.inference_mode()
def force_ids(
    models: Sequence[Transformer], sources: Sentences, targets: Sentences, *, align: bool
) -> list[Forced]:
    """Rate given translations by a model or an ensemble, as `Engine.force` says."""
    results: dict[int, Forced] = {}
    for numbers in _batches(sources, targets):
        src, tgt = [sources[i] for i in numbers], [targets[i] for i in numbers]
        passes = [_run(model, src, tgt, watch=align) for model in models]
        log_probs = log_mean_probability([of_tokens for of_tokens, _ in passes])
        if log_probs.isnan().any():
            raise DivergedError(DIVERGED)
        links: Iterable[list[Link]] = [[]] * len(numbers)
        if align:
            of_models = (masks[-1].of_sentences() for _, masks in passes)
            links = (_links(torch.stack(each).mean(0)) for each in zip(*of_models, strict=True))
        of_sentences = torch.split(log_probs, [len(ids) + 1 for ids in tgt])
        for i, of_tokens, of_sentence in zip(numbers, of_sentences, links, strict=True):
            results[i] = Forced(of_tokens.tolist(), of_sentence)
    return [results[i] for i in range(len(sources))]


def log_mean_probability(log_probs: Sequence[Tensor]) -> Tensor:
    """Return the logarithm of the mean probability (..., V) of models, none above 0.

    Where one has more rows V than others, beyond the vocabulary, the smallest number counts.
    """
    if len(log_probs) == 1:
        return log_probs[0]
    n_rows = min(each.shape[-1] for each in log_probs)
    total = torch.stack([each[..., :n_rows] for each in log_probs]).logsumexp(0)
    return total.sub_(math.log(len(log_probs))).clamp_(max=0)


@torch.inference_mode()
def attended(model: Transformer, source: Sequence[int], target: Sequence[int]) -> dict[str, Tensor]:
    """Return the weights of all N layers for a sentence with its EOS and a translation without.

    They are "encoder" (N, H, Ls, Ls), "decoder" (N, H, Lt, Lt) and "cross" (N, H, Lt, Ls), of the
    decoder to the encoder's output; those of a query (second to last dimension) sum to 1.
    """
    _, masks = _run(model, [source], [target], watch=True)
    return dict(zip(("encoder", "decoder", "cross"), (m.of_layers() for m in masks), strict=True))


def _batches(sources: Sentences, targets: Sentences) -> Iterator[list[int]]:
    """Yield the numbers of sentences of like length, the longest first."""
    lengths = [len(src) + len(tgt) + 1 for src, tgt in zip(sources, targets, strict=True)]
    waiting = sorted(range(len(lengths)), key=lambda i: lengths[i])
    while waiting:
        n = max(1, BATCH_TOKENS // lengths[waiting[-1]])
        yield waiting[-n:]
        del waiting[-n:]


def _run(
    model: Transformer, sources: Sentences, targets: Sentences, *, watch: bool
) -> tuple[Tensor, list["_Watched"]]:
    """Return the log-probabilities (T,) of the target tokens, and the masks that `watch` adds."""
    device = model.eval().output_matrix.device
    masks: list[_Watched] = []

    def row(sentences: Iterable[Sequence[int]]) -> Tensor:
        return torch.tensor([id_ for ids in sentences for id_ in ids], device=device)

    def watched(queries: PackedLayout, keys: PackedLayout, window: Window) -> _Watched:
        masks.append(_Watched(PackedMask(queries, keys, window)))
        return masks[-1]

    if watch:
        model = copy(model)  # with the same weights: another thread may use the other one
        model.mask = watched
    src_layout = PackedLayout.of_lengths([len(ids) for ids in sources]).to(device)
    tgt_layout = PackedLayout.of_lengths([len(ids) + 1 for ids in targets]).to(device)
    tgt_in = row([BOS_ID, *ids] for ids in targets)
    tgt_out = row([*ids, EOS_ID] for ids in targets)
    hidden = model(row(sources), src_layout, tgt_in, tgt_layout)
    parts = (torch.split(each, LOGIT_ROWS) for each in (hidden, tgt_out))
    log_probs = [
        -cross_entropy(model.logits(rows).float(), tokens, reduction="none")
        for rows, tokens in zip(*parts, strict=True)
    ]
    return torch.cat(log_probs), masks


class _Watched:
    """A mask that records the queries and keys of each layer, from which weights follow."""

    def __init__(self, mask: PackedMask) -> None:
        self._mask = mask
        self._layers: list[tuple[Tensor, Tensor]] = []

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        self._layers.append((q, k))
        return fast_attention(q, k, v, self._mask)

    def of_layers(self) -> Tensor:
        """Return the weights (N, H, Lq, Lk) of a row that is one sentence."""
        seen = visible(self._mask.queries, self._mask.keys, self._mask.window)
        layers = ((q.float(), k.float()) for q, k in self._layers)
        return torch.stack([attention_weights(q, k, seen).cpu() for q, k in layers])

    def of_sentences(self) -> Iterator[Tensor]:
        """Yield the mean (Lq, Lk) of the last layer's heads, as fairseq's --print-alignment."""
        q, k = self._layers[-1]
        sides = ((q, self._mask.queries), (k, self._mask.keys))
        of_sides = (torch.split(each, layout.lengths.tolist(), 1) for each, layout in sides)
        for queries, keys in zip(*of_sides, strict=True):
            yield attention_weights(queries, keys, None).mean(0)


def _links(weights: Tensor) -> list[Link]:
    """Link each target token but the EOS to the greatest of its `weights` (Lt, Ls)."""
    weights = weights[:-1, :-1]
    best = weights.argmax(1).tolist() if weights.numel() else []
    return [(src, tgt) for tgt, src in enumerate(best)]
