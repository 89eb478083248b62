"""Forced decoding: how a model rates given translations, and where it looks for each token.

One pass of `Transformer.decode` over whole translations; there is no search. Dimensions: S source
tokens and T target tokens of a batch, Ls and Lt those of one sentence, all with the EOS; H heads.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from nmtkit.decoding.engine import DIVERGED, Forced, Link
from nmtkit.decoding.ensemble import log_mean_probability
from nmtkit.errors import DivergedError
from nmtkit.model.attention import attention_weights
from nmtkit.model.packing import Layout
from nmtkit.model.transformer import CrossAttention, DecoderLayer, Transformer, split_heads
from nmtkit.symbols import BOS_ID, EOS_ID

BATCH_TOKENS = 4_096  # of both sides
LOGIT_ROWS = 512  # tokens whose logits are in memory at a time


@torch.inference_mode()
def force_ids(
    model: Transformer,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    *,
    align: bool,
    others: Sequence[Transformer] = (),
) -> list[Forced]:
    """Rate given translations.

    Args:
        model: The model.
        sources: The token ids of each sentence, with the EOS.
        targets: The token ids of each translation, without the EOS.
        align: Whether to find the source token of each target token.
        others: The other models of an ensemble.

    Returns:
        The ratings, in input order.

    Raises:
        DivergedError: The model does not produce probabilities.
    """
    models = [each.eval() for each in (model, *others)]
    device = model.output_matrix.device
    results: dict[int, Forced] = {}
    for numbers in _batches(sources, targets):
        batch = _Batch.of([sources[i] for i in numbers], [targets[i] for i in numbers], device)
        passes = [_run(each, batch) for each in models]
        log_probs = log_mean_probability([of_tokens for of_tokens, _ in passes])
        attention = zip(*(weights for _, weights in passes), strict=True)
        if log_probs.isnan().any():
            raise DivergedError(DIVERGED)
        links: list[list[Link]] = [[] for _ in numbers]
        if align:
            links = [_links(torch.stack(weights).mean(0)) for weights in attention]
        of_sentences = zip(numbers, torch.split(log_probs, batch.tgt_lengths), links, strict=True)
        for i, of_tokens, of_sentence in of_sentences:
            results[i] = Forced(of_tokens.tolist(), of_sentence)
    return [results[i] for i in range(len(sources))]


def _batches(
    sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> Iterator[list[int]]:
    """Yield the numbers of sentences of like length, the longest first."""
    lengths = [len(src) + len(tgt) + 1 for src, tgt in zip(sources, targets, strict=True)]
    waiting = sorted(range(len(lengths)), key=lambda i: lengths[i])
    while waiting:
        n = max(1, BATCH_TOKENS // lengths[waiting[-1]])
        yield waiting[-n:]
        del waiting[-n:]


@dataclass(frozen=True)
class _Batch:
    """Sentences and their translations, packed."""

    src: Tensor  # (S,)
    tgt_in: Tensor  # (T,)
    tgt_out: Tensor  # (T,)
    src_lengths: list[int]
    tgt_lengths: list[int]

    @classmethod
    def of(
        cls,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        device: torch.device,
    ) -> "_Batch":
        def row(sentences: Iterable[Sequence[int]]) -> Tensor:
            return torch.tensor([id_ for ids in sentences for id_ in ids], device=device)

        return cls(
            row(sources),
            row([BOS_ID, *ids] for ids in targets),
            row([*ids, EOS_ID] for ids in targets),
            [len(ids) for ids in sources],
            [len(ids) + 1 for ids in targets],
        )


def _run(model: Transformer, batch: _Batch) -> tuple[Tensor, Iterator[Tensor]]:
    """Return the log-probabilities (T,) of the target tokens and the attention of each sentence.

    The attention is that of the last decoder layer to the source, averaged over its heads, as in
    fairseq's --print-alignment. It is computed when it is asked for.
    """
    src_layout = Layout.of_lengths(batch.src_lengths).to(batch.src.device)
    tgt_layout = Layout.of_lengths(batch.tgt_lengths).to(batch.src.device)
    memory = model.encode(batch.src, src_layout)
    layer = model.decoder[-1]
    assert isinstance(layer, DecoderLayer)
    queries: list[Tensor] = []
    hook = layer.cross_attention.register_forward_pre_hook(lambda _, args: queries.append(args[0]))
    hidden = model.decode(batch.tgt_in, tgt_layout, memory, src_layout)
    hook.remove()
    log_probs = [
        -cross_entropy(model.logits(rows).float(), tokens, reduction="none")
        for rows, tokens in zip(
            torch.split(hidden, LOGIT_ROWS), torch.split(batch.tgt_out, LOGIT_ROWS), strict=True
        )
    ]
    return torch.cat(log_probs), _attention(layer.cross_attention, queries[0], memory, batch)


def _attention(cross: CrossAttention, x: Tensor, memory: Tensor, batch: _Batch) -> Iterator[Tensor]:
    """Yield the mean weights (Lt, Ls) of the heads for each sentence.

    Args:
        cross: The attention of a decoder layer to the source.
        x: Its input (T, D).
        memory: The encoder's output (S, D).
        batch: The lengths of the sentences.
    """
    q = split_heads(cross.q(x), cross.heads)
    k, _ = cross.keys_values(memory)
    sentences = zip(
        torch.split(q, batch.tgt_lengths), torch.split(k, batch.src_lengths), strict=True
    )
    for queries, keys in sentences:  # (Lt, H, K) and (Ls, H, K)
        yield attention_weights(queries.transpose(0, 1), keys.transpose(0, 1), None).mean(0)


def _links(weights: Tensor) -> list[Link]:
    """Link each target token to the source token with the greatest of the `weights` (Lt, Ls).

    As in fairseq, neither EOS is linked.
    """
    weights = weights[:-1, :-1]
    if not weights.numel():
        return []
    return [(src, tgt) for tgt, src in enumerate(weights.argmax(1).tolist())]
