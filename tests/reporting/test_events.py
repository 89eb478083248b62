"""TensorBoard's event files."""

from contextlib import closing
from pathlib import Path

import pytest

from nmtkit.reporting.events import EventWriter

METRICS = {"step": 7, "loss": 2.5, "skipped": False, "dev_perplexity": None, "how": "greedy"}


def test_numbers_of_a_step_come_back_under_their_names(tmp_path: Path) -> None:
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="no tensorboard here"
    )
    with closing(EventWriter(tmp_path, 7)) as events:
        events.write(METRICS)
        events.write({**METRICS, "step": 8, "loss": 2.25})
    read = accumulator.EventAccumulator(str(tmp_path)).Reload()
    assert set(read.Tags()["scalars"]) == {"loss", "skipped"}
    assert [(event.step, event.value) for event in read.Scalars("loss")] == [(7, 2.5), (8, 2.25)]


def test_steps_that_are_made_again_after_a_kill_occur_once(tmp_path: Path) -> None:
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="no tensorboard here"
    )
    expected = {}
    killed = []  # never closed
    for first, last in ((1, 7), (5, 9), (6, 6), (1, 2), (3, 8)):
        killed.append(EventWriter(tmp_path, first))
        for step in range(first, last + 1):
            loss = float(100 * len(killed) + step)
            killed[-1].write({**METRICS, "step": step, "loss": loss})
            expected[step] = loss
        expected = {step: loss for step, loss in expected.items() if step <= last}
    read = accumulator.EventAccumulator(str(tmp_path), size_guidance={"scalars": 0}).Reload()
    assert [(event.step, event.value) for event in read.Scalars("loss")] == list(expected.items())
