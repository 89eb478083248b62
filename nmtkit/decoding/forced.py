"""Forced decoding: log-probabilities of existing translations, and attention weights.

One forward pass over whole translations, without a search. Dimensions: S source tokens and T
target tokens of a batch, Ls and Lt those of one sentence, all with EOS; N layers, H heads.
"""

import math
from collections.abc import Iterator, Sequence
from copy import copy

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from nmtkit.corpus.special_tokens import BOS_ID, EOS_ID
from nmtkit.decoding.engine import DIVERGED, ForcedDecoding, Link, Sentences
from nmtkit.fast.accelerate import fast_attention
from nmtkit.fast.packing import PackedLayout, PackedMask
from nmtkit.model.attention import Window, attention_weights, visible
from nmtkit.model.transformer import Transformer
from nmtkit.utils.errors import DivergedError

BATCH_TOKENS = 4_096  # tokens of both sides in a batch
LOGIT_ROWS = 512  # number of tokens whose logits are in memory at a time


@torch.inference_mode()
def force_ids(
    models: Sequence[Transformer], sources: Sentences, targets: Sentences, *, align: bool
) -> list[ForcedDecoding]:
    """Compute the log-probabilities of translations, as specified by `Engine.force`.

    Args:
        models: One model, or the models of an ensemble.
        sources: Ids of the sources, with EOS.
        targets: Ids of their translations, without EOS.
        align: Also link target tokens to source tokens.

    Returns:
        The results, in input order.

    Raises:
        DivergedError: A model outputs NaN.
    """
    results: dict[int, ForcedDecoding] = {}
    for numbers in _batches(sources, targets):
        src = [sources[i] for i in numbers]
        tgt = [targets[i] for i in numbers]
        passes = [_run(model, src, tgt, record=align) for model in models]
        # An ensemble predicts the mean of its models' probabilities.
        log_probs = log_mean_probability([model_log_probs for model_log_probs, _ in passes])  # (T,)
        if log_probs.isnan().any():
            raise DivergedError(DIVERGED)
        links: list[list[Link]] = [[] for _ in numbers]
        if align:
            # The last mask is that of the decoder's attention to the encoder's output.
            model_weights = [masks[-1].sentence_weights() for _, masks in passes]
            sentence_weights = zip(*model_weights, strict=True)
            links = [_links(torch.stack(weights).mean(0)) for weights in sentence_weights]
        sentence_log_probs = torch.split(log_probs, [len(ids) + 1 for ids in tgt])
        for i, token_log_probs, token_links in zip(numbers, sentence_log_probs, links, strict=True):
            results[i] = ForcedDecoding(token_log_probs.tolist(), token_links)
    return [results[i] for i in range(len(sources))]


def log_mean_probability(log_probs: Sequence[Tensor]) -> Tensor:
    """Compute the logarithm of the mean probability (..., V) of models; none is above 0.

    If models have different numbers of rows V (padding beyond the vocabulary), the smallest counts.
    """
    if len(log_probs) == 1:
        return log_probs[0]
    n_rows = min(model_log_probs.shape[-1] for model_log_probs in log_probs)
    common = [model_log_probs[..., :n_rows] for model_log_probs in log_probs]
    total = torch.stack(common).logsumexp(0)
    return total.sub_(math.log(len(log_probs))).clamp_(max=0)


@torch.inference_mode()
def compute_attention_weights(
    model: Transformer, source: Sequence[int], target: Sequence[int]
) -> dict[str, Tensor]:
    """Compute the attention weights of all N layers for one sentence and its translation.

    Args:
        source: Ids of the source, with EOS.
        target: Ids of the translation, without EOS.

    Returns:
        "encoder" (N, H, Ls, Ls), "decoder" (N, H, Lt, Lt) and "cross" (N, H, Lt, Ls), the attention
        of the decoder to the encoder's output. The weights of a query (second to last dimension)
        sum to 1.
    """
    _, masks = _run(model, [source], [target], record=True)
    weights = [mask.layer_weights() for mask in masks]
    return dict(zip(("encoder", "decoder", "cross"), weights, strict=True))


def _batches(sources: Sentences, targets: Sentences) -> Iterator[list[int]]:
    """Yield the numbers of sentences of similar lengths, the longest first."""
    lengths = [len(src) + len(tgt) + 1 for src, tgt in zip(sources, targets, strict=True)]
    # Batches are taken from the end of the list, because removing is cheap there.
    waiting = sorted(range(len(lengths)), key=lambda i: lengths[i])
    while waiting:
        n = max(1, BATCH_TOKENS // lengths[waiting[-1]])
        yield waiting[-n:]
        del waiting[-n:]


def _run(
    model: Transformer, sources: Sentences, targets: Sentences, *, record: bool
) -> tuple[Tensor, list["_RecordingMask"]]:
    """Run one forward pass over a batch.

    Args:
        sources: Ids with EOS.
        targets: Ids without EOS.
        record: Record the queries and keys of all layers.

    Returns:
        The log-probabilities (T,) of the target tokens, EOS included, and the masks of the encoder,
        the decoder and the attention between them, if `record`.
    """
    device = model.eval().output_matrix.device
    masks: list[_RecordingMask] = []

    def recording_mask(queries: PackedLayout, keys: PackedLayout, window: Window) -> _RecordingMask:
        masks.append(_RecordingMask(PackedMask(queries, keys, window)))
        return masks[-1]

    if record:
        # A copy with the same weights, since other threads may use the model meanwhile.
        model = copy(model)
        model.mask = recording_mask
    src, src_layout = pack(sources, device)  # (S,)
    tgt_in, tgt_layout = pack([[BOS_ID, *ids] for ids in targets], device)  # (T,)
    tgt_out, _ = pack([[*ids, EOS_ID] for ids in targets], device)  # (T,)
    hidden = model(src, src_layout, tgt_in, tgt_layout)  # (T, d_model)
    # The logits of all tokens would not fit into memory, so they are computed in chunks.
    log_probs = []
    chunks = zip(torch.split(hidden, LOGIT_ROWS), torch.split(tgt_out, LOGIT_ROWS), strict=True)
    for rows, tokens in chunks:
        logits = model.logits(rows).float()
        log_probs.append(-cross_entropy(logits, tokens, reduction="none"))
    return torch.cat(log_probs), masks


def pack(sentences: Sentences, device: torch.device) -> tuple[Tensor, PackedLayout]:
    """Lay sentences end to end.

    Returns:
        The ids of all sentences (S,), int64, and their layout.
    """
    tokens: list[int] = []
    for ids in sentences:
        tokens += ids
    layout = PackedLayout.from_lengths([len(ids) for ids in sentences])
    return torch.tensor(tokens, device=device), layout.to(device)


class _RecordingMask:
    """A mask that records the queries and keys of all layers, to compute attention weights."""

    def __init__(self, mask: PackedMask) -> None:
        """Record the layers that attend by `mask`."""
        self._mask = mask
        self._layers: list[tuple[Tensor, Tensor]] = []  # queries and keys

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Compute equation 1 for queries (H, T, K), keys (H, S, K) and values (H, S, U)."""
        self._layers.append((q, k))
        return fast_attention(q, k, v, self._mask)

    def layer_weights(self) -> Tensor:
        """Return the weights (N, H, Lq, Lk) of all layers, if the batch is one sentence."""
        mask = visible(self._mask.queries, self._mask.keys, self._mask.window)
        layers = [attention_weights(q.float(), k.float(), mask).cpu() for q, k in self._layers]
        return torch.stack(layers)

    def sentence_weights(self) -> Iterator[Tensor]:
        """Yield the weights (Lq, Lk) sentence by sentence: the last layer, averaged over its heads.

        This is what fairseq's --print-alignment uses.
        """
        q, k = self._layers[-1]
        queries = torch.split(q, self._mask.queries.lengths.tolist(), 1)
        keys = torch.split(k, self._mask.keys.lengths.tolist(), 1)
        for sentence_queries, sentence_keys in zip(queries, keys, strict=True):
            yield attention_weights(sentence_queries, sentence_keys, None).mean(0)


def _links(weights: Tensor) -> list[Link]:
    """Link the target tokens to the source tokens with the greatest weights, without EOS.

    Args:
        weights: Attention weights (Lt, Ls).
    """
    # EOS attends, but does not stand for a word.
    weights = weights[:-1, :-1]
    best = weights.argmax(1).tolist() if weights.numel() else []
    return [(src, tgt) for tgt, src in enumerate(best)]
