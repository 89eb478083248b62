"""Speed, MFU and time left, by hand."""

import pytest
from models import tiny

from nmtkit.model.cost import update_flops
from nmtkit.reporting.speed import Speed

CONFIG = tiny()


def speed(peak_flops: float) -> Speed:
    return Speed(CONFIG, 23, length=7, peak_flops=peak_flops)


def test_steady_steps_give_their_speed_and_the_time_left() -> None:
    steady = speed(peak_flops=0.0)
    for _ in range(40):
        steady.add(900, 1_000, 0.5)
    assert steady.describe(steps_left=720) == "2,000 target tokens/s, 6 min left"


def test_share_of_the_peak_is_of_the_arithmetic_that_was_done() -> None:
    peak = 10 * update_flops(CONFIG, 23, 900, 1_000, 7)
    half_a_second = speed(peak)
    half_a_second.add(900, 1_000, 0.5)
    assert ", 20.0% MFU, " in half_a_second.describe(steps_left=1)


def test_last_steps_count_most() -> None:
    changing = speed(peak_flops=0.0)
    changing.add(900, 1_000, 100.0)
    for _ in range(200):
        changing.add(900, 1_000, 0.25)
    per_second = float(changing.describe(1).split(" ")[0].replace(",", ""))
    assert per_second == pytest.approx(4_000, rel=0.01)
