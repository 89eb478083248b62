"""Which checkpoints are kept, and when others are deleted."""

import json
from pathlib import Path

import pytest
from system.kills import BeforeOperation, attempt
from test_checkpoint import contents, keeping, names, save, steps, trained

from nmtkit.model.weights import WEIGHTS, load_weights
from nmtkit.store.artifacts import open_directory, verify
from nmtkit.store.manifests import MANIFEST
from nmtkit.store.tensors import load_tensors
from nmtkit.training.checkpoint import (
    OPTIMIZER,
    PROGRESS,
    BestEvaluation,
    Evaluation,
    checkpoints,
    checkpoints_bytes,
    delete_old,
    load_checkpoint,
    read_progress,
)
from nmtkit.utils.errors import UserError


@pytest.mark.parametrize(("patience", "metric"), [(None, None), (3, None), (None, "chrf")])
def test_scheduled_steps(patience: int | None, metric: str | None) -> None:
    """A shorter training also schedules every step that a longer one schedules in its range."""
    found: dict[int, set[int]] = {}
    for n_steps in range(1, 30):
        stopping = {"patience": patience, "patience_metric": metric, "dev_every_steps": 8}
        config = keeping(3, max_steps=n_steps, every=4, **stopping)
        due = [step for step in range(1, n_steps + 1) if step % 4 == 0 or step == n_steps]
        found[n_steps] = {step for step in range(1, n_steps + 1) if config.is_scheduled(step)}
        evaluated = {step for step in due if metric and step % 8 == 0}
        assert found[n_steps] == {*(due if patience else due[-3:]), *evaluated}
        for shorter in range(1, n_steps):
            assert {step for step in found[n_steps] if step <= shorter} <= found[shorter]


def test_newest_two_are_kept(tmp_path: Path) -> None:
    """Steps 3, 6 and 7 are scheduled, and every step is saved."""
    config = keeping(3, max_steps=7, every=3)
    kept = {1: [1], 2: [1, 2], 3: [2, 3], 4: [3, 4], 5: [3, 4, 5], 6: [3, 5, 6], 7: [3, 6, 7]}
    moments = {**kept, 7: [6, 7]}
    for step in range(1, 8):
        save(tmp_path, step)
        delete_old(tmp_path, config)
        assert steps(tmp_path) == kept[step]
        assert with_moments(tmp_path) == moments[step]


def test_damage_of_newest_keeps_all(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save(tmp_path, step)
    (tmp_path / "step-00000003" / WEIGHTS).unlink()
    with pytest.raises(UserError, match=f"{WEIGHTS} is missing"):
        delete_old(tmp_path, keeping(1, max_steps=3))
    assert steps(tmp_path) == [1, 2, 3]


def test_damaged_old_ones_are_deleted(tmp_path: Path) -> None:
    for step in (1, 2, 3, 4):
        save(tmp_path, step)
    for step in (1, 3):
        (tmp_path / f"step-0000000{step}" / PROGRESS).write_bytes(b"x" * 132)
    delete_old(tmp_path, keeping(3, max_steps=4))
    assert names(tmp_path) == ["step-00000002", "step-00000003", "step-00000004"]


def test_kill_while_deleting_old(tmp_path: Path) -> None:
    def forget(folder: Path) -> None:
        delete_old(folder, keeping(3, max_steps=4))

    for number in range(1, 100):
        folder = tmp_path / str(number)
        for step in (1, 2, 3, 4):
            save(folder, step)
        is_killed = attempt(forget, folder, "sorted", BeforeOperation(number)).killed
        for path in checkpoints(folder):
            verify(open_directory(path))
        assert with_moments(folder)[-2:] == [3, 4]
        forget(folder)
        assert names(folder) == ["step-00000002", "step-00000003", "step-00000004"]
        assert with_moments(folder) == [3, 4]
        if not is_killed:
            break
    assert number > 5


def with_moments(directory: Path) -> list[int]:
    """The steps of the checkpoints that have moments."""
    return [
        read_progress(path).step for path in checkpoints(directory) if (path / OPTIMIZER).exists()
    ]


def test_moments_of_last_two_are_kept(tmp_path: Path) -> None:
    before = {}
    for step in (1, 2, 3, 4, 5):
        before[step] = contents(save(tmp_path, step))
        delete_old(tmp_path, keeping(4, max_steps=5))
    assert steps(tmp_path) == [2, 3, 4, 5]
    assert with_moments(tmp_path) == [4, 5]
    for step, path in zip((2, 3), checkpoints(tmp_path), strict=False):
        after = contents(path)
        assert after.keys() == {WEIGHTS, PROGRESS, MANIFEST}
        manifest = json.loads(before[step].pop(MANIFEST))
        del manifest["files"][OPTIMIZER], manifest["sha256"]
        assert json.loads(after.pop(MANIFEST)).items() > manifest.items()
        assert after.items() < before[step].items()
        verify(open_directory(path))
        load_weights(trained()[0], path / WEIGHTS)
        with pytest.raises(UserError, match=f"published without {OPTIMIZER}"):
            load_checkpoint(path, *trained())


@pytest.mark.parametrize(("patience", "metric"), [(None, None), (9, None), (9, "chrf")])
def test_checkpoints_bytes_is_a_bound(
    tmp_path: Path, patience: int | None, metric: str | None
) -> None:
    """The model has 42 weights, and every step is saved.

    With patience, the last `keep` checkpoints up to the best one are kept. A metric also keeps
    later ones with a high score.
    """
    for keep, n_steps, every in ((1, 3, 1), (2, 3, 9), (9, 40, 1), (2, 16, 2), (9, 3, 1)):
        config = keeping(
            keep, max_steps=n_steps, every=every, patience=patience, patience_metric=metric
        )
        at = keep * every
        ranked = [Evaluation(step=at + n * every, score=9.0) for n in range(1, keep + 1)]
        folder = tmp_path / f"{keep} {n_steps}"
        peak = 0
        for step in range(1, n_steps + 1):
            best = BestEvaluation(step=at, score=2.0) if patience and step >= at else None
            save(folder, step, best=best, ranked=ranked if metric else None)
            files = folder.rglob("*.safetensors")
            n_bytes = 0
            for file in files:
                n_bytes += sum(tensor.nbytes for tensor in load_tensors(file).values())
            peak = max(peak, n_bytes)
            delete_old(folder, config)
        planned = checkpoints_bytes(config, n_parameters=42)
        assert peak <= planned <= 2 * peak


def test_best_evaluations_are_kept(tmp_path: Path) -> None:
    """Those with the best scores are neither the last ones nor the last ones up to the best."""
    config = keeping(2, max_steps=9, patience_metric="chrf", dev_every_steps=1)
    ranked = [Evaluation(step=2, score=30.0), Evaluation(step=4, score=29.0)]
    for step in range(1, 8):
        save(tmp_path, step, ranked=[best for best in ranked if best.step <= step])
        delete_old(tmp_path, config)
    assert steps(tmp_path) == [2, 4, 6, 7]
