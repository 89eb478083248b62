"""Decoding on a GPU equals decoding on a CPU; all of these tests need a GPU."""

import random
from collections.abc import Sequence

import pytest
import torch
from models import random_transformer, tiny

from nmtkit.config.model import DecodingConfig
from nmtkit.corpus.special_tokens import EOS_ID, SPECIALS
from nmtkit.decoding.engine import ForcedDecoding, Hypothesis
from nmtkit.decoding.torch_engine import TorchEngine
from nmtkit.fast.accelerate import accelerate, cast

pytestmark = pytest.mark.gpu
CPU = torch.device("cpu")
CUDA = torch.device("cuda")
N_TOKENS = 200
N_ROWS = 208
DECODING = DecodingConfig(beam_size=4, length_penalty=0.6, max_extra_tokens=9)


def engine_on(device: torch.device, dtype: torch.dtype = torch.float32) -> TorchEngine:
    """A random model that is certain of its choices, with heads that flash attention supports."""
    config = tiny(d_model=64, d_ff=96, n_heads=4, d_k=16, d_v=16, max_positions=40)
    model = random_transformer(config, N_ROWS, seed=3, spread=0.1, peaked=2.0).to(device)
    return TorchEngine([cast(accelerate(model), dtype)], N_TOKENS)


def sentences(n: int, longest: int, seed: int) -> list[list[int]]:
    generator = random.Random(seed)
    ids = range(len(SPECIALS), N_TOKENS)
    return [generator.choices(ids, k=generator.randint(0, longest)) for _ in range(n)]


SOURCES = [[*ids, EOS_ID] for ids in sentences(150, 60, seed=1)]  # some beyond max_positions
TARGETS = sentences(150, 50, seed=2)


def translate(engine: TorchEngine, sources: Sequence[list[int]]) -> list[list[Hypothesis]]:
    return engine.translate(sources, DECODING, 2, lambda _: None)


def log_probs(ratings: list[ForcedDecoding]) -> torch.Tensor:
    return torch.tensor([value for rating in ratings for value in rating.log_probs])


def test_gpu_translations_equal_cpu() -> None:
    expected, found = (translate(engine_on(device), SOURCES) for device in (CPU, CUDA))
    n_same = 0
    for ours, theirs in zip(found, expected, strict=True):
        n_same += ours[0].tokens == theirs[0].tokens
        # If rounding decides between two hypotheses, their scores are equal.
        assert ours[0].score == pytest.approx(theirs[0].score, abs=1e-3)
    assert n_same >= 0.98 * len(SOURCES)


@pytest.mark.parametrize(
    ("dtype", "atol"), [(torch.float32, 1e-3), (torch.bfloat16, 0.5)], ids=["float32", "bfloat16"]
)
def test_gpu_forced_log_probs_equal_cpu(dtype: torch.dtype, atol: float) -> None:
    expected = engine_on(CPU).force(SOURCES, TARGETS, align=True)
    found = engine_on(CUDA, dtype).force(SOURCES, TARGETS, align=True)
    torch.testing.assert_close(log_probs(found), log_probs(expected), rtol=0.0, atol=atol)
    n_links = sum(len(rating.links) for rating in expected)
    n_same = 0
    for mine, theirs in zip(found, expected, strict=True):
        for our_link, their_link in zip(mine.links, theirs.links, strict=True):
            n_same += our_link == their_link
    assert n_same >= (0.99 if dtype == torch.float32 else 0.8) * n_links
