"""Counts of weights and arithmetic against the model itself and the paper."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from models import BASE, tiny
from torch.utils.flop_counter import FlopCounterMode

from nmtkit.fast.accelerate import accelerate
from nmtkit.fast.packing import PackedLayout
from nmtkit.model.cost import update_flops
from nmtkit.model.transformer import Transformer
from nmtkit.model.weights import count_parameters
from nmtkit.recipe import ModelConfig
from nmtkit.training.loss import smoothed_cross_entropy

N_ROWS = 40_960  # 37,000 tokens rounded up to the multiple of 8,192 that Table 3 needs


def base(**changes: Any) -> ModelConfig:
    return tiny(**{**BASE, **changes})


def actual_parameters(config: ModelConfig, n_rows: int) -> int:
    with torch.device("meta"):
        model = Transformer(config, n_rows)
    return sum(parameter.numel() for parameter in model.parameters())


@settings(max_examples=40, deadline=None)
@given(
    st.builds(
        base,
        n_layers=st.integers(1, 3),
        d_model=st.sampled_from([2, 6, 16]),
        d_ff=st.integers(1, 40),
        n_heads=st.integers(1, 5),
        d_k=st.integers(1, 9),
        d_v=st.integers(1, 9),
        attention_bias=st.booleans(),
        positions=st.sampled_from(["sinusoid", "learned"]),
        max_positions=st.integers(1, 30),
        norm=st.sampled_from(["post", "pre"]),
        tie_embeddings=st.booleans(),
    ),
    st.integers(8, 70),
)
def test_total_is_the_number_of_weights_of_the_model(config: ModelConfig, n_rows: int) -> None:
    assert count_parameters(config, n_rows).total == actual_parameters(config, n_rows)


def test_update_of_the_base_model_costs_what_a_count_by_hand_says() -> None:
    # Sentences of 29 source and 31 target subwords, 37,000 rows: linear layers 2.203, output 0.947
    # and attention 0.037 TFLOP forward; three times that with the backward pass.
    assert update_flops(base(), 37_000, 25_000, 25_000, 30) == pytest.approx(9.56e12, rel=0.02)


def test_restricted_self_attention_costs_what_its_neighbourhood_says() -> None:
    costs = [update_flops(base(neighbourhood=r), 8, 600, 900, 40) for r in (None, 40, 30, 20)]
    assert costs[0] == costs[1]
    # 10 positions less for 600 + 900 tokens, in 6 layers of 8 heads with d_k + d_v = 128.
    less = 3 * 6 * 2 * 8 * 128 * 10 * (600 + 900)
    assert (costs[1] - costs[2], costs[2] - costs[3]) == (less, less)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_update_costs_what_is_counted_while_it_runs(norm: str) -> None:
    config = base(n_layers=2, d_model=32, d_ff=48, n_heads=4, d_k=8, d_v=12, dropout=0.0, norm=norm)
    n_sentences, length, n_rows = 6, 20, 71
    n_tokens = n_sentences * length
    model = accelerate(Transformer(config, n_rows))
    layout = PackedLayout.of_lengths([length] * n_sentences)
    src, tgt_in, tgt_out = torch.randint(n_rows, (3, n_tokens))
    with FlopCounterMode(display=False) as counter:
        hidden = model(src, layout, tgt_in, layout)
        losses = smoothed_cross_entropy(hidden, model.output_matrix, tgt_out, 0.1)
        losses.smoothed.backward()  # type: ignore[no-untyped-call]
    expected = update_flops(config, n_rows, n_tokens, n_tokens, length)
    uncounted = 2 * n_tokens * n_rows * config.d_model  # the counter does not know addmm_
    assert counter.get_total_flops() + uncounted == expected
