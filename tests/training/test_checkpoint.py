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
from torch import nn

from nmtkit.config.loading import load_recipe
from nmtkit.config.recipe import TrainingConfig
from nmtkit.model.weights import WEIGHTS, Description
from nmtkit.store.artifacts import open_directory
from nmtkit.store.manifests import MANIFEST
from nmtkit.store.records import DamagedError, NewerVersionError, sealed, write_json
from nmtkit.training.checkpoint import (
    MOMENTS,
    OPTIMIZER,
    PROGRESS,
    Origin,
    Progress,
    Snapshot,
    checkpoint_step,
    checkpoints,
    delete_old,
    load_checkpoint,
    move_damaged,
    read_origin,
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
    directory = tmp_path / "checkpoints"
    aside = tmp_path / "aside"
    before = save(directory, 2)
    newest = save(directory, 3)
    damage(newest / name)
    content = contents(newest)
    (sentence,) = move_damaged(directory, aside)
    assert sentence.startswith(f"{newest} is damaged ({newest}")
    assert name in sentence
    assert sentence.endswith(f" and was moved to {aside / 'step-00000003.1'}")
    assert contents(aside / "step-00000003.1") == content
    assert checkpoints(directory) == [before]


def test_all_damaged_are_set_aside(tmp_path: Path) -> None:
    directory = tmp_path / "checkpoints"
    aside = tmp_path / "aside"
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
    directory = tmp_path / "checkpoints"
    aside = tmp_path / "aside"
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
