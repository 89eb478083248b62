"""Accelerated models compute the same as plain ones."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from models import BFLOAT16, random_transformer, tiny
from torch import Tensor

from nmtkit.fast.accelerate import accelerate, cast
from nmtkit.fast.packing import PackedLayout
from nmtkit.model.transformer import Transformer

V = 29
SRC_LENGTHS = [5, 1, 8, 90, 2]
TGT_LENGTHS = [4, 6, 1, 80, 3]
CONFIGS: list[dict[str, Any]] = [
    {},
    {"norm": "pre", "positions": "learned", "tie_embeddings": False},
    {"attention_bias": True, "positions": "fairseq", "d_k": 5, "d_v": 7},
    {"neighbourhood": 4, "max_positions": 100},
    {"activation": "swish"},
]


def model_of(**changes: Any) -> Transformer:
    return random_transformer(tiny(**changes), V, seed=5, spread=0.1)


def output(model: Transformer) -> Tensor:
    torch.manual_seed(6)
    src = torch.randint(V, (sum(SRC_LENGTHS),))
    tgt = torch.randint(V, (sum(TGT_LENGTHS),))
    src_layout = PackedLayout.from_lengths(SRC_LENGTHS, (3, 4))
    tgt_layout = PackedLayout.from_lengths(TGT_LENGTHS, (3, 4))
    hidden: Tensor = model(src, src_layout, tgt, tgt_layout)
    return hidden


@pytest.mark.parametrize("changes", CONFIGS)
def test_accelerated_equals_plain_model(changes: dict[str, Any]) -> None:
    plain = model_of(**changes)
    fast = accelerate(deepcopy(plain))
    expected = output(plain)
    found = output(fast)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    weights = torch.randn_like(expected)
    for hidden in (expected, found):
        (hidden * weights).sum().backward()  # type: ignore[no-untyped-call]
    for (name, theirs), ours in zip(plain.named_parameters(), fast.parameters(), strict=True):
        if theirs.grad is not None:  # the output does not depend on an untied output matrix
            torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-4, rtol=1e-4, msg=name)


@pytest.mark.parametrize("kind", ["dropout", "attention_dropout"])
def test_dropout_only_in_training(kind: str) -> None:
    for model in (model_of(**{kind: 0.2}), accelerate(model_of(**{kind: 0.2}))):
        without = output(model.eval())
        torch.testing.assert_close(without, output(model_of().eval()))
        assert torch.equal(without, output(model))
        assert not torch.equal(without, output(model.train()))


@torch.inference_mode()
@pytest.mark.parametrize("dtype", [torch.float32, BFLOAT16])
@pytest.mark.parametrize("changes", CONFIGS[:3])
def test_cast_model_has_its_precision(changes: dict[str, Any], dtype: torch.dtype) -> None:
    plain = model_of(**changes)
    expected = output(plain)
    found = output(cast(accelerate(plain), dtype))
    assert found.dtype == dtype
    tolerance = 1e-5 if dtype == torch.float32 else 0.05
    difference = (found.float() - expected).abs().max() / expected.abs().max()
    assert difference < tolerance
