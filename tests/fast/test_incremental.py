"""Decoding token by token, compared with the whole decoder on the same prefixes."""

import random
from copy import deepcopy
from itertools import chain
from typing import Any

import pytest
import torch
from models import next_log_probs, random_transformer, step_of, tiny

from nmtkit.fast.accelerate import accelerate
from nmtkit.fast.incremental import IncrementalDecoder
from nmtkit.fast.packing import PackedLayout
from nmtkit.model.transformer import Transformer

V = 29
FORBIDDEN = [0, 3, 27, 28]
SRC_LENGTHS = [5, 1, 8, 3]
STEPS = 7  # past max_positions


def random_model(**changes: Any) -> Transformer:
    values = {"d_model": 10, "d_ff": 18, "d_v": 7, "dropout": 0.4, "max_positions": 5}
    return random_transformer(tiny(**{**values, **changes}), V, seed=3, spread=0.1).eval()


@torch.inference_mode()
@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("positions", ["sinusoid", "fairseq", "learned"])
@pytest.mark.parametrize("tie_embeddings", [True, False])
@pytest.mark.parametrize("neighbourhood", [None, 1, 3])
def test_steps_equal_whole_decoder(
    norm: str, positions: str, tie_embeddings: bool, neighbourhood: int | None
) -> None:
    plain = random_model(
        norm=norm,
        positions=positions,
        tie_embeddings=tie_embeddings,
        neighbourhood=neighbourhood,
        output_bias=tie_embeddings,
        attention_dropout=0.3,  # off, as all dropout is in evaluation
    )
    model = accelerate(deepcopy(plain))
    rng = random.Random(7)
    sources = [rng.choices(range(V), k=length) for length in SRC_LENGTHS]
    layout = PackedLayout.from_lengths(SRC_LENGTHS)
    memory = model.encode(torch.tensor(list(chain(*sources))), layout)
    decoder = IncrementalDecoder(model, memory, layout, torch.tensor(FORBIDDEN))
    prefixes: list[list[list[int]]] = [[[]] for _ in sources]
    for number in range(STEPS):
        newest = torch.tensor([[rng.randrange(V) for _ in beams] for beams in prefixes])
        for beams, tokens in zip(prefixes, newest.tolist(), strict=True):
            for beam, token in enumerate(tokens):
                beams[beam] = [*beams[beam], token]
        log_probs = step_of(decoder, newest)
        assert log_probs.dtype == torch.float32
        for ours, source, beams in zip(log_probs, sources, prefixes, strict=True):
            expected = next_log_probs(plain, source, beams)
            expected[:, FORBIDDEN] = -torch.inf
            torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-5)

        kept = list(range(len(sources)))
        if number in (2, 4):
            kept.remove(rng.choice(kept))
        width = rng.choice([2, 3, 5])
        orders = [rng.choices(range(len(prefixes[0])), k=width) for _ in kept]
        decoder.reorder(torch.tensor(kept), torch.tensor(orders))
        sources = [sources[row] for row in kept]
        reordered = []
        for row, order in zip(kept, orders, strict=True):
            reordered.append([prefixes[row][beam] for beam in order])
        prefixes = reordered
