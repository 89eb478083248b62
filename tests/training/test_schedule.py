"""Equation 3."""

import pytest

from nmtkit.training.schedule import learning_rate


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (1, 1.746928107e-07),  # 1 / (sqrt(512) * 4000 sqrt(4000))
        (1_000, 1.746928107e-04),
        (4_000, 6.987712430e-04),  # 1 / (sqrt(512) sqrt(4000)), the peak
        (16_000, 3.493856215e-04),  # half of it at four times the step
        (100_000, 1.397542486e-04),  # a fifth of it at 25 times the step
    ],
)
def test_learning_rate_of_base_model(step: int, expected: float) -> None:
    assert learning_rate(step, d_model=512, warmup_steps=4_000) == pytest.approx(expected, rel=1e-9)


def test_scale_multiplies_learning_rate() -> None:
    plain = learning_rate(7, d_model=64, warmup_steps=5)
    assert learning_rate(7, d_model=64, warmup_steps=5, scale=2.5) == pytest.approx(2.5 * plain)
