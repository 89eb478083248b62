"""Checkpoints: they restore every bit, are refused if damaged, and deleted if old."""

import hashlib
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from models import tiny
from system.command import flip_byte
from system.kills import BeforeOperation, attempt
from torch import nn

from nmtkit.config.loading import load_recipe
from nmtkit.config.recipe import TrainingConfig
from nmtkit.model.description import Description
from nmtkit.model.weights import WEIGHTS, load_weights
from nmtkit.store.artifacts import open_directory
from nmtkit.store.manifests import MANIFEST
from nmtkit.store.records import DamagedError, NewerVersionError, sealed, write_json
from nmtkit.store.tensors import load_tensors
from nmtkit.store.verification import verify
from nmtkit.training.checkpoint import (
    MOMENTS,
    OPTIMIZER,
    PROGRESS,
    BestEvaluation,
    Evaluation,
    Origin,
    Progress,
    Snapshot,
    checkpoint_step,
    checkpoints,
    checkpoints_bytes,
    delete_old,
    load_checkpoint,
    move_damaged,
    read_origin,
    read_progress,
    share_checkpoint,
)
from nmtkit.utils.errors import UserError


class Tied(nn.Module):
    """A model with one matrix under two names, as the Transformer has."""

    def __init__(self, width: int = 5) -> None:
        super().__init__()
        self.first = nn.Linear(width, 7)
        self.second = nn.Linear(width, 7, bias=False)
        self.second.weight = self.first.weight


def trained(width: int = 5, seed: int = 1) -> tuple[Tied, torch.optim.Adam]:
    """A model and its optimizer after two steps."""
    torch.manual_seed(seed)
    model = Tied(width)
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    for _ in range(2):
        x = torch.randn(3, width)
        optimizer.zero_grad()
        (model.first(x) * model.second(x)).sum().backward()
        optimizer.step()
    return model, optimizer


def progress_at(step: int, **evaluation: Any) -> Progress:
    return Progress(step=step, epoch=1, index=step + 3, tgt_tokens=50 * step, **evaluation)


def save(directory: Path, step: int, **evaluation: Any) -> Path:
    return Snapshot.of(*trained(), progress_at(step, **evaluation)).publish(directory)


def keeping(keep: int, *, max_steps: int, every: int = 1, **changes: Any) -> TrainingConfig:
    """The settings of a training that keeps `keep` checkpoints, one every `every` steps."""
    values = {"keep_checkpoints": keep, "max_steps": max_steps, "checkpoint_every_steps": every}
    return load_recipe("demo").training.model_copy(update={**values, **changes})


def steps(directory: Path) -> list[int]:
    return [checkpoint_step(path) for path in checkpoints(directory)]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_load_restores_every_bit(tmp_path: Path) -> None:
    model, optimizer = trained()
    path = Snapshot.of(model, optimizer, progress_at(2)).publish(tmp_path)
    other, other_optimizer = trained(seed=9)
    assert load_checkpoint(path, other, other_optimizer) == progress_at(2)
    for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(ours, theirs)
        assert optimizer.state[ours]["step"] == other_optimizer.state[theirs]["step"]
        for moment in MOMENTS:
            assert optimizer.state[ours][moment].abs().sum() > 0
            assert torch.equal(optimizer.state[ours][moment], other_optimizer.state[theirs][moment])
    assert other.second.weight is other.first.weight


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


def test_shared_checkpoint_has_origin(tmp_path: Path) -> None:
    origin = Origin(
        model=Description(config=tiny(layer_norm_epsilon=1e-5), n_rows=5),
        text={"codes.bpe": "0" * 64},
        training="0123456789abcdef",
    )
    path = Snapshot.of(*trained(), progress_at(2)).publish(tmp_path / "a", origin)
    (tmp_path / "b").mkdir()
    share_checkpoint(path, tmp_path / "b")
    assert contents(tmp_path / "b" / path.name) == contents(path)
    for folder in ("a", "b"):
        found = open_directory(tmp_path / folder / path.name)
        assert read_origin(found) == origin
        assert found.manifest.depends_on["model"]["config"]["layer_norm_epsilon"] == 1e-5


# Damaged


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def overwrite(file: Path) -> None:
    file.write_bytes(b"{" * file.stat().st_size)


FILES = (WEIGHTS, OPTIMIZER, PROGRESS, MANIFEST)
DAMAGE = list(itertools.product((cut, flip_byte, overwrite, Path.unlink), FILES))


@pytest.mark.parametrize(
    ("damage", "name"), DAMAGE, ids=lambda part: getattr(part, "__name__", part)
)
def test_damaged_checkpoint_is_set_aside(
    tmp_path: Path, damage: Callable[[Path], None], name: str
) -> None:
    directory, aside = tmp_path / "checkpoints", tmp_path / "aside"
    before, newest = save(directory, 2), save(directory, 3)
    damage(newest / name)
    content = contents(newest)
    (sentence,) = move_damaged(directory, aside)
    assert sentence.startswith(f"{newest} is damaged ({newest}")
    assert name in sentence
    assert sentence.endswith(f" and was moved to {aside / 'step-00000003.1'}")
    assert contents(aside / "step-00000003.1") == content
    assert checkpoints(directory) == [before]


def test_all_damaged_are_set_aside(tmp_path: Path) -> None:
    directory, aside = tmp_path / "checkpoints", tmp_path / "aside"
    for step in (1, 2, 3, 4):
        save(directory, step)
    for step in (1, 3, 4):
        cut(directory / f"step-0000000{step}" / WEIGHTS)
    assert len(move_damaged(directory, aside)) == 2
    assert names(aside) == ["step-00000003.1", "step-00000004.1"]
    assert names(directory) == ["step-00000001", "step-00000002"]
    cut(save(directory, 3) / WEIGHTS)
    (sentence,) = move_damaged(directory, aside)
    assert sentence.endswith("step-00000003.2")
    assert names(aside) == ["step-00000003.1", "step-00000003.2", "step-00000004.1"]


def test_resuming_needs_moments(tmp_path: Path) -> None:
    directory = tmp_path / "checkpoints"
    for step in (1, 2, 3, 4):
        save(directory, step)
    delete_old(directory, keeping(4, max_steps=4))
    cut(directory / "step-00000004" / OPTIMIZER)
    move_damaged(directory, tmp_path / "aside")
    assert steps(directory) == [1, 2, 3]
    load_checkpoint(checkpoints(directory)[-1], *trained())
    cut(directory / "step-00000003" / WEIGHTS)
    with pytest.raises(UserError, match="moments"):
        move_damaged(directory, tmp_path / "aside")
    assert names(directory) == ["step-00000001", "step-00000002", "step-00000003"]


# Checkpoints of others, whose manifests have the right hashes


def forge(path: Path, name: str, content: bytes) -> None:
    """Replace a file of a checkpoint, and its hash in the manifest."""
    (path / name).write_bytes(content)
    manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    entry = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    manifest["files"][name] = entry
    del manifest["sha256"]
    write_json(path / MANIFEST, sealed(manifest))


def test_newer_version_is_kept(tmp_path: Path) -> None:
    directory, aside = tmp_path / "checkpoints", tmp_path / "aside"
    save(directory, 2)
    newest = save(directory, 3)
    progress = json.loads((newest / PROGRESS).read_bytes())
    forge(newest, PROGRESS, json.dumps({**progress, "novelty": 1}).encode())
    manifest = json.loads((newest / MANIFEST).read_bytes())
    manifest["made_by"]["nmtkit"] = "99.0"
    del manifest["sha256"]
    write_json(newest / MANIFEST, sealed(manifest))
    content = contents(newest)
    with pytest.raises(NewerVersionError, match=r"newer version .*99\.0.*update nmtkit"):
        move_damaged(directory, aside)
    assert contents(newest) == content
    assert not aside.exists()


VALID = {"step": 2, "epoch": 1, "index": 5, "tgt_tokens": 100, "skipped": 0}
INTEGER = "Input should be a valid integer"


def changed_progress(**changes: object) -> bytes:
    return json.dumps({**VALID, **changes}).encode()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "EOF while parsing"),
        (b"[" * 100_000, "recursion limit"),
        (changed_progress(step="2"), rf"\['step'\] = .*: {INTEGER}"),
        (changed_progress(epoch=2**63), r"\['epoch'\] = .*: Input should be less"),
        (changed_progress(more=1), r"\['more'\] = 1: Extra"),
        (changed_progress(step=3), "is that of step 3"),
    ],
)
def test_forged_progress_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = save(tmp_path, 2)
    forge(path, PROGRESS, content)
    with pytest.raises(DamagedError, match=message) as caught:
        load_checkpoint(path, *trained())
    assert f"{PROGRESS} " in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500
