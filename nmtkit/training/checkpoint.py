"""Checkpoints: all that training needs to go on, published whole.

Weights and moments are safetensors. There is no random state in them: data order and dropout are
functions of the seed and the step.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from nmtkit import artifacts
from nmtkit.errors import UserError

MODEL, OPTIMIZER, PROGRESS = "model.safetensors", "optimizer.safetensors", "progress.json"
MOMENTS = ("exp_avg", "exp_avg_sq")  # m and v of Adam


@dataclass(frozen=True)
class Progress:
    """How far training has come."""

    step: int  # optimizer steps done
    epoch: int  # of the next update
    index: int  # of the next update within its epoch
    tgt_tokens: int  # seen so far
    scheduled: bool  # written because the recipe says so, not because somebody stopped the run
    skipped: int = 0  # of the steps, those whose loss or gradient was not finite


def save_checkpoint(
    directory: Path, model: nn.Module, optimizer: torch.optim.Adam, progress: Progress
) -> Path:
    """Publish `step-N` in `directory` and return its path; one that is there stays as it is."""
    place = directory / f"step-{progress.step:08d}"
    if place in checkpoints(directory) and read_progress(place).scheduled >= progress.scheduled:
        return place
    draft = directory / f"{place.name}.partial"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    save_tensors(_weights(model), draft / MODEL)
    save_tensors(_moments(model, optimizer), draft / OPTIMIZER)
    artifacts.write_json(draft / PROGRESS, vars(progress))
    if place.is_dir():  # of a run that was stopped at this step, or half deleted
        _delete(place)
    artifacts.publish_directory(draft, place, {"kind": "checkpoint"})
    return place


def load_checkpoint(path: Path, model: nn.Module, optimizer: torch.optim.Adam) -> Progress:
    """Put a checkpoint's weights and moments into `model` and `optimizer`.

    Raises:
        UserError: a file was altered, or belongs to another model.
    """
    artifacts.verify(artifacts.open_directory(path))
    load_weights(model, path / MODEL)
    moments = _load(path / OPTIMIZER)
    progress = read_progress(path)
    adam_steps = progress.step - progress.skipped
    for name, parameter in model.named_parameters():
        optimizer.state[parameter] = {
            "step": torch.tensor(float(adam_steps), device=parameter.device),
            **{moment: moments[f"{moment}.{name}"].to(parameter.device) for moment in MOMENTS},
        }
    return progress


def save_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Write a safetensors file.

    Raises:
        UserError: the disk is full, or the like.
    """
    try:
        save_file(tensors, path)
    except SafetensorError as error:  # which says in words alone what the system said
        raise UserError(
            f"{path} can't be written: {error}; mend that (is the disk full?) and run the same "
            "command again, nothing finished is lost"
        ) from None


def load_weights(model: nn.Module, path: Path) -> None:
    """Put the weights of a safetensors file into `model`.

    Raises:
        UserError: the file is no safetensors file, or holds another model.
    """
    weights = _load(path)
    parameters = dict(model.named_parameters())
    expected = {name: tuple(parameter.shape) for name, parameter in parameters.items()}
    found = {name: tuple(weight.shape) for name, weight in weights.items()}
    if found != expected:
        names = found.keys() | expected.keys()
        name = min(name for name in names if found.get(name) != expected.get(name))
        raise UserError(
            f"{path} holds another model than is described beside it: {name} has shape "
            f"{found.get(name)}, expected {expected.get(name)}; delete its folder and make it again"
        )
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(weights[name])


def read_progress(path: Path) -> Progress:
    """How far the checkpoint at `path` has come."""
    return Progress(**artifacts.read_json(path / PROGRESS))


def checkpoints(directory: Path) -> list[Path]:
    """The whole checkpoints of `directory`, oldest first."""
    return sorted(path.parent for path in directory.glob(f"step-????????/{artifacts.MANIFEST}"))


def forget_old(directory: Path, keep: int) -> None:
    """Delete all but the last `keep` scheduled checkpoints, once the newest can be read back.

    Drafts and half-deleted checkpoints that a kill left go too.
    """
    existing = checkpoints(directory)
    if not existing or not read_progress(existing[-1]).scheduled:
        return
    artifacts.open_directory(existing[-1])
    scheduled = [path for path in existing if read_progress(path).scheduled]
    for path in set(directory.glob("step-*")) - set(scheduled[-keep:]):
        _delete(path)


def _delete(path: Path) -> None:
    # Without its manifest it is no checkpoint, also if this is interrupted.
    (path / artifacts.MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(path)


def _weights(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter under one name: a tied one has several in a state dict."""
    return {name: parameter.detach().cpu() for name, parameter in model.named_parameters()}


def _moments(model: nn.Module, optimizer: torch.optim.Adam) -> dict[str, Tensor]:
    return {
        f"{moment}.{name}": optimizer.state[parameter][moment].cpu()
        for name, parameter in model.named_parameters()
        for moment in MOMENTS
    }


def _load(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise UserError(
            f"{path} can't be read as safetensors: {error}; delete its folder"
        ) from None
