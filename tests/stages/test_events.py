"""TensorBoard's event files."""

from pathlib import Path

import pytest

from nmtkit.stages.curves import event_writer

METRICS = {"step": 7, "loss": 2.5, "skipped": False, "dev_perplexity": None, "text": "greedy"}


def test_events_of_repeated_steps_once(tmp_path: Path) -> None:
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="no tensorboard here"
    )
    expected = {}
    killed = []  # writers that are not closed
    for first, last in ((1, 7), (5, 9), (6, 6), (1, 2), (3, 8)):
        killed.append(event_writer(tmp_path, first))
        for step in range(first, last + 1):
            loss = float(100 * len(killed) + step)
            killed[-1]({**METRICS, "step": step, "loss": loss})
            expected[step] = loss
        expected = {step: loss for step, loss in expected.items() if step <= last}
    read = accumulator.EventAccumulator(str(tmp_path), size_guidance={"scalars": 0}).Reload()
    assert set(read.Tags()["scalars"]) == {"loss", "skipped"}
    assert [(event.step, event.value) for event in read.Scalars("loss")] == list(expected.items())
