"""TensorBoard's event files."""

from pathlib import Path

import pytest

from nmtkit.reporting.events import EventWriter

METRICS = {"step": 7, "loss": 2.5, "skipped": False, "dev_perplexity": None, "how": "greedy"}


def test_numbers_of_a_step_come_back_under_their_names(tmp_path: Path) -> None:
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="no tensorboard here"
    )
    with EventWriter(tmp_path) as events:
        events.write(METRICS)
        events.write({**METRICS, "step": 8, "loss": 2.25})
    read = accumulator.EventAccumulator(str(tmp_path)).Reload()
    assert set(read.Tags()["scalars"]) == {"loss", "skipped"}
    assert [(event.step, event.value) for event in read.Scalars("loss")] == [(7, 2.5), (8, 2.25)]
