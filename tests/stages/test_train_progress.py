"""The warning of a training that has become slow."""

from nmtkit.stages.train_progress import SpeedWatch
from nmtkit.training.metrics import Metrics


def step(tgt_tokens: int, seconds: float) -> Metrics:
    return Metrics(1, 1, 2.0, 2.0, 1.0, False, 1e-3, 7, tgt_tokens, seconds)


def test_slow_minute_is_a_warning() -> None:
    watch = SpeedWatch()
    for _ in range(3):  # the first minute: 100 target tokens/s
        assert watch.add(step(2_000, 20.0)) is None
    for _ in range(3):  # a quarter of it
        assert watch.add(step(500, 20.0)) is None
    assert watch.add(step(100, 30.0)) is None  # slow, but not for a minute
    assert watch.add(step(5_000, 30.0)) is None
    assert watch.add(step(500, 40.0)) is None
    warning = watch.add(step(500, 30.0))
    assert warning is not None
    assert "from 100 to 14 " in warning
    assert "OMP_NUM_THREADS" in warning


def test_slow_first_minute_is_no_warning() -> None:
    watch = SpeedWatch()
    assert [watch.add(step(1, 61.0)) for _ in range(3)] == [None] * 3
