"""The models that tests build."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from nmtkit.config.model import ModelConfig
from nmtkit.corpus.special_tokens import BOS_ID, PAD_ID, UNK_ID
from nmtkit.fast.incremental import IncrementalDecoder
from nmtkit.fast.packing import PackedLayout
from nmtkit.model.transformer import Transformer

needs_bfloat16 = pytest.mark.skipif(
    not torch.ops.mkldnn._is_mkldnn_bf16_supported(),
    reason="oneDNN does not compute in bfloat16 on this processor",
)
BFLOAT16 = pytest.param(torch.bfloat16, marks=needs_bfloat16)

# The size of the paper's base model (Table 3).
BASE: dict[str, Any] = {
    "n_layers": 6,
    "d_model": 512,
    "d_ff": 2_048,
    "n_heads": 8,
    "d_k": 64,
    "d_v": 64,
}


def tiny(**changes: Any) -> ModelConfig:
    """The configuration of a model that computes in milliseconds, with `changes`."""
    values: dict[str, Any] = {
        "n_layers": 2,
        "d_model": 12,
        "d_ff": 20,
        "n_heads": 3,
        "d_k": 4,
        "d_v": 4,
        "dropout": 0.0,
        "positions": "sinusoid",
        "max_positions": 9,
        "norm": "post",
        "tie_embeddings": True,
        "vocabulary_multiple": 1,
    }
    return ModelConfig(**{**values, **changes})


def step_of(decoder: IncrementalDecoder, tokens: Tensor) -> Tensor:
    """Log-probabilities (B, W, V) of the next tokens after `tokens` (B, W)."""
    return torch.cat([part.clone() for part in decoder.step(tokens)])


def random_transformer(
    config: ModelConfig, n_rows: int, seed: int, *, spread: float = 0.3, peaked: float = 1.0
) -> Transformer:
    """A model whose biases and norms are random too; `peaked` above 1 makes it more certain."""
    torch.manual_seed(seed)
    model = Transformer(config, n_rows)
    for parameter in model.parameters():
        parameter.data.add_(torch.randn_like(parameter), alpha=spread)
    model.output_matrix.data.mul_(peaked)
    return model


def next_log_probs(model: Transformer, source: list[int], prefixes: list[list[int]]) -> Tensor:
    """Log-probabilities (W, V) of the next token after every prefix, without caches.

    Args:
        model: The model.
        source: Token ids of one source sentence.
        prefixes: Token ids of W beginnings of its translation.
    """
    n = len(prefixes)
    src = PackedLayout.from_lengths([len(source)] * n)
    tgt = PackedLayout.from_lengths([len(prefix) for prefix in prefixes])
    packed = torch.cat([torch.tensor(prefix) for prefix in prefixes])
    hidden = model(torch.tensor(source * n), src, packed, tgt)
    return model.logits(hidden[tgt.cu_seqlens[1:] - 1]).log_softmax(-1)


class Uncached:
    """An ensemble that runs its whole decoders on every prefix of one sentence's translation.

    The probabilities of the first `n_tokens` tokens are averaged.
    """

    def __init__(self, models: Sequence[Transformer], source: list[int], n_tokens: int) -> None:
        self.models = models
        self.source = source
        self.n_tokens = n_tokens
        self.prefixes: list[list[int]] = [[]]

    def step(self, tokens: Tensor) -> Iterator[Tensor]:
        """Append the newest token of every beam; return log-probabilities (1, W, V) of the next."""
        newest = tokens[0].tolist()
        pairs = zip(self.prefixes, newest, strict=True)
        self.prefixes = [[*prefix, token] for prefix, token in pairs]
        probs = []
        for model in self.models:
            log_probs = next_log_probs(model, self.source, self.prefixes)
            probs.append(log_probs[:, : self.n_tokens].exp())
        log_probs = torch.stack(probs).mean(0).log()
        log_probs[:, [PAD_ID, BOS_ID, UNK_ID]] = -torch.inf
        return iter([log_probs[None]])

    def reorder(self, sentences: Tensor, beams: Tensor) -> None:
        """Keep the beams of the only sentence."""
        assert sentences.tolist() == [0]
        self.prefixes = [self.prefixes[beam] for beam in beams[0].tolist()]
