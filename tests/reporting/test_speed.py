"""Speed and MFU, by hand."""

import pytest
from models import tiny

from nmtkit.model.cost import update_flops
from nmtkit.reporting.training import Speed

CONFIG = tiny()


def speed(peak_flops: float) -> Speed:
    return Speed(CONFIG, 23, length=7, peak_flops=peak_flops)


def test_steady_steps_give_their_speed() -> None:
    steady = speed(peak_flops=0.0)
    for _ in range(40):
        steady.add(900, 1_000, 0.5)
    assert steady.parts() == ["2,000 target tokens/s"]


def test_share_of_the_peak_is_of_the_arithmetic_that_was_done() -> None:
    peak = 10 * update_flops(CONFIG, 23, 900, 1_000, 7)
    half_a_second = speed(peak)
    half_a_second.add(900, 1_000, 0.5)
    assert half_a_second.parts()[1:] == ["20.0% MFU"]


def test_last_steps_count_most() -> None:
    changing = speed(peak_flops=0.0)
    changing.add(900, 1_000, 100.0)
    for _ in range(200):
        changing.add(900, 1_000, 0.25)
    per_second = float(changing.parts()[0].split(" ")[0].replace(",", ""))
    assert per_second == pytest.approx(4_000, rel=0.01)
