"""`metrics.jsonl`: the last line may be incomplete, and published files are verified."""

import json
from pathlib import Path
from typing import Any

import pytest
from system.command import flip_byte

from nmtkit.store.artifacts import Artifact, Store
from nmtkit.training.metrics import (
    METRICS,
    Metrics,
    continue_metrics,
    read_metrics,
    read_published,
)
from nmtkit.utils import progress

N_STEPS = 3


def line(step: int) -> str:
    return Metrics(step, 0, 2.5, 2.5, 0.5, False, 0.1, 5, 5, 0.1).line()


def write_steps(path: Path) -> None:
    lines = [line(step) for step in range(1, N_STEPS + 1)]
    path.write_text("".join(lines), encoding="utf-8", newline="\n")


def published(folder: Path) -> Artifact:
    store = Store(folder)
    with store.draft("train", "0" * 16) as draft:
        write_steps(draft / METRICS)
        return store.publish("train", "0" * 16, depends_on={}, measurements={}, measured=[METRICS])


def test_metrics_cut_by_a_kill(tmp_path: Path) -> None:
    path = tmp_path / METRICS
    write_steps(path)
    content = path.read_bytes()
    for n_bytes in range(len(content)):
        path.write_bytes(content[:n_bytes])
        steps = [values["step"] for values in read_metrics(path)]
        n_whole = content[: n_bytes + 1].count(b"\n")  # a line without its "\n" is complete
        assert steps == list(range(1, n_whole + 1))
        with continue_metrics(path, min(2, n_whole), True) as file:
            file.write(line(min(2, n_whole) + 1))
        steps = [values["step"] for values in read_metrics(path)]
        assert steps == list(range(1, min(2, n_whole) + 2))
        assert path.read_bytes().endswith(b"}\n")


def test_published_metrics_are_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = published(tmp_path).path
    assert len(read_published(path, 2)) == 2
    assert not capsys.readouterr().err
    content = (path / METRICS).read_bytes()
    for place in range(0, len(content), 7):
        (path / METRICS).write_bytes(content)
        flip_byte(path / METRICS, place)
        assert read_published(path, N_STEPS) == []
        assert str(path / METRICS) in capsys.readouterr().err
        progress.printed_kinds.clear()
    (path / METRICS).unlink()
    assert read_published(path, N_STEPS) == []
    assert str(path / METRICS) in capsys.readouterr().err


@pytest.mark.parametrize(
    "change",
    [{"step": 6.0}, {"step": "6"}, {"step": True}, {"src_tokens": -1}, {"tgt_tokens": 2**70},
     {"seconds": float("nan")}, {"seconds": float("inf")}, {"seconds": -1}],
    ids=str,
)  # fmt: skip
def test_invalid_numbers_are_left_out(change: dict[str, Any], tmp_path: Path) -> None:
    valid = {"step": 5, "src_tokens": 2, "tgt_tokens": 3, "seconds": 0.5}
    path = tmp_path / METRICS
    path.write_text(f"{json.dumps(valid)}\n{json.dumps({**valid, **change})}\n", encoding="utf-8")
    assert read_metrics(path) == [valid]
