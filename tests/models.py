"""The models that tests build."""

from typing import Any

import pytest
import torch
from torch import Tensor

from nmtkit.fast.step import IncrementalDecoder
from nmtkit.recipe import ModelConfig

# On a CPU without AVX-512, `nmtkit translate` refuses bfloat16.
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
    """A model that takes milliseconds, with `changes`."""
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
    """Log-probabilities (B, W, V) of what follows `tokens` (B, W)."""
    return torch.cat([part.clone() for part in decoder.step(tokens)])
