"""Counts of weights and operations, compared with the model and with counts by hand."""

from typing import Any

import pytest
import torch
from models import BASE, tiny
from torch.utils.flop_counter import FlopCounterMode

from nmtkit.config.model import ModelConfig
from nmtkit.fast.accelerate import accelerate
from nmtkit.fast.packing import PackedLayout
from nmtkit.model.flops import update_flops
from nmtkit.model.transformer import Transformer
from nmtkit.model.weights import count_parameters, shapes
from nmtkit.training.loss import smoothed_cross_entropy


def base(**changes: Any) -> ModelConfig:
    return tiny(**{**BASE, **changes})


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("positions", ["sinusoid", "fairseq", "learned"])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("decoder_layers", [None, 1, 3])
def test_shapes_equal_model(
    norm: str, positions: str, tied: bool, bias: bool, decoder_layers: int | None
) -> None:
    config = tiny(
        n_decoder_layers=decoder_layers,
        norm=norm,
        positions=positions,
        tie_embeddings=tied,
        attention_bias=bias,
        output_bias=bias,
        d_k=5,
        d_v=3,
    )
    parameters = dict(Transformer(config, n_rows=11).named_parameters())
    listed = list(shapes(config, n_rows=11))
    assert dict(listed) == {name: tuple(weight.shape) for name, weight in parameters.items()}
    assert len(listed) == len(parameters)
    total = sum(parameter.numel() for parameter in parameters.values())
    assert count_parameters(config, n_rows=11).total == total


def test_base_model_flops_by_hand() -> None:
    # Sentences of 29 source and 31 target subwords, 37,000 rows: linear layers 2.203, output 0.947
    # and attention 0.037 TFLOP forward; three times that with the backward pass.
    assert update_flops(base(), 37_000, 25_000, 25_000, 30) == pytest.approx(9.56e12, rel=0.02)


def test_neighbourhood_flops_by_hand() -> None:
    costs = [update_flops(base(neighbourhood=r), 8, 600, 900, 40) for r in (None, 40, 30, 20)]
    assert costs[0] == costs[1]
    # 10 positions less for 600 + 900 tokens, in 6 layers of 8 heads with d_k + d_v = 128.
    less = 3 * 6 * 2 * 8 * 128 * 10 * (600 + 900)
    assert (costs[1] - costs[2], costs[2] - costs[3]) == (less, less)


@pytest.mark.parametrize(
    "changes", [{}, {"norm": "pre"}, {"n_decoder_layers": 1}, {"n_decoder_layers": 3}], ids=str
)
def test_flops_equal_counter(changes: dict[str, Any]) -> None:
    shape = {"n_layers": 2, "d_model": 32, "d_ff": 48, "n_heads": 4, "d_k": 8, "d_v": 12}
    config = base(**shape, dropout=0.0, **changes)
    n_sentences, length, n_rows = 6, 20, 71
    n_tokens = n_sentences * length
    model = accelerate(Transformer(config, n_rows))
    layout = PackedLayout.from_lengths([length] * n_sentences)
    src, tgt_in, tgt_out = torch.randint(n_rows, (3, n_tokens))
    with FlopCounterMode(display=False) as counter:
        hidden = model(src, layout, tgt_in, layout)
        losses = smoothed_cross_entropy(hidden, model.output_matrix, tgt_out, 0.1)
        losses.smoothed.backward()  # type: ignore[no-untyped-call]
    expected = update_flops(config, n_rows, n_tokens, n_tokens, length)
    assert counter.get_total_flops() == expected
