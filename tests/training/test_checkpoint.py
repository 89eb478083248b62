"""Checkpoints: exact, refused when damaged, deleted when old."""

from pathlib import Path

import pytest
import torch
from torch import nn

from nmtkit import artifacts
from nmtkit.errors import UserError
from nmtkit.training.checkpoint import (
    MODEL,
    MOMENTS,
    OPTIMIZER,
    PROGRESS,
    Progress,
    checkpoints,
    forget_old,
    load_checkpoint,
    load_weights,
    read_progress,
    save_checkpoint,
)


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


def progress_at(step: int, *, scheduled: bool = True) -> Progress:
    return Progress(step, epoch=1, index=step + 3, tgt_tokens=50 * step, scheduled=scheduled)


def save(directory: Path, step: int, *, scheduled: bool = True) -> Path:
    return save_checkpoint(directory, *trained(), progress_at(step, scheduled=scheduled))


def steps(directory: Path) -> list[int]:
    return [read_progress(path).step for path in checkpoints(directory)]


def test_loading_gives_back_every_bit_of_weights_and_moments(tmp_path: Path) -> None:
    model, optimizer = trained()
    path = save_checkpoint(tmp_path, model, optimizer, progress_at(2))
    other, other_optimizer = trained(seed=9)
    assert load_checkpoint(path, other, other_optimizer) == progress_at(2)
    for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(ours, theirs)
        assert optimizer.state[ours]["step"] == other_optimizer.state[theirs]["step"]
        for moment in MOMENTS:
            assert optimizer.state[ours][moment].abs().sum() > 0
            assert torch.equal(optimizer.state[ours][moment], other_optimizer.state[theirs][moment])
    assert other.second.weight is other.first.weight


@pytest.mark.parametrize("name", [MODEL, OPTIMIZER, PROGRESS])
def test_flipped_bit_is_refused(tmp_path: Path, name: str) -> None:
    file = save(tmp_path, 2) / name
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)
    with pytest.raises(UserError, match=f"{name} was altered"):
        load_checkpoint(file.parent, *trained())


@pytest.mark.parametrize("name", [MODEL, OPTIMIZER, PROGRESS])
def test_truncated_file_is_refused(tmp_path: Path, name: str) -> None:
    file = save(tmp_path, 2) / name
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(UserError, match=f"{name} has .* bytes where .* were written"):
        load_checkpoint(file.parent, *trained())


@pytest.mark.parametrize("name", [MODEL, OPTIMIZER, PROGRESS])
def test_missing_file_is_refused(tmp_path: Path, name: str) -> None:
    file = save(tmp_path, 2) / name
    file.unlink()
    with pytest.raises(UserError, match=f"{name} is missing"):
        load_checkpoint(file.parent, *trained())


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    path = save(tmp_path, 2) / MODEL
    model, _ = trained(width=6)
    with pytest.raises(UserError, match=r"first\.weight has shape \(7, 5\), expected \(7, 6\)"):
        load_weights(model, path)


def test_file_that_is_no_safetensors_is_refused(tmp_path: Path) -> None:
    path = tmp_path / MODEL
    path.write_bytes(b"these are no weights")
    with pytest.raises(UserError, match=f"{MODEL} can't be read as safetensors"):
        load_weights(trained()[0], path)


def test_directory_without_manifest_is_no_checkpoint(tmp_path: Path) -> None:
    save(tmp_path, 2)
    (save(tmp_path, 3) / artifacts.MANIFEST).unlink()
    assert steps(tmp_path) == [2]
    with pytest.raises(UserError, match="no finished artifact"):
        load_checkpoint(tmp_path / "step-00000003", *trained())


def test_half_deleted_checkpoint_is_written_again(tmp_path: Path) -> None:
    path = save(tmp_path, 3)
    (path / artifacts.MANIFEST).unlink()
    (path / PROGRESS).unlink()
    assert save(tmp_path, 3) == path
    assert load_checkpoint(path, *trained()) == progress_at(3)


def test_draft_that_a_kill_left_is_no_checkpoint_and_in_nobodys_way(tmp_path: Path) -> None:
    draft = tmp_path / "step-00000002.partial"
    draft.mkdir()
    (draft / MODEL).write_bytes(b"half")
    assert checkpoints(tmp_path) == []
    load_checkpoint(save(tmp_path, 2), *trained())
    assert not draft.exists()


def test_checkpoints_come_oldest_first(tmp_path: Path) -> None:
    for step in (1000, 9, 200):
        save(tmp_path, step)
    assert steps(tmp_path) == [9, 200, 1000]


def test_checkpoint_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    path = save(tmp_path, 2)
    inode = path.stat().st_ino
    save(tmp_path, 2, scheduled=False)
    assert path.stat().st_ino == inode
    assert read_progress(path).scheduled


def test_scheduled_checkpoint_takes_the_place_of_one_that_was_not(tmp_path: Path) -> None:
    path = save(tmp_path, 2, scheduled=False)
    assert save(tmp_path, 2) == path
    assert load_checkpoint(path, *trained()).scheduled


def test_the_last_scheduled_checkpoints_are_kept(tmp_path: Path) -> None:
    for step in (1, 2, 3, 4, 5):
        save(tmp_path, step)
    forget_old(tmp_path, keep=3)
    assert steps(tmp_path) == [3, 4, 5]
    assert sorted(path.name[-1] for path in tmp_path.iterdir()) == ["3", "4", "5"]


def test_unscheduled_checkpoint_goes_once_a_scheduled_one_is_newer(tmp_path: Path) -> None:
    save(tmp_path, 2)
    save(tmp_path, 3, scheduled=False)
    forget_old(tmp_path, keep=1)
    assert steps(tmp_path) == [2, 3]
    save(tmp_path, 4)
    forget_old(tmp_path, keep=2)
    assert steps(tmp_path) == [2, 4]


def test_nothing_is_deleted_while_the_newest_checkpoint_is_damaged(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save(tmp_path, step)
    (tmp_path / "step-00000003" / MODEL).unlink()
    with pytest.raises(UserError, match=f"{MODEL} is missing"):
        forget_old(tmp_path, keep=1)
    assert steps(tmp_path) == [1, 2, 3]


def test_forgetting_in_an_empty_folder_does_nothing(tmp_path: Path) -> None:
    forget_old(tmp_path, keep=1)
    assert list(tmp_path.iterdir()) == []
