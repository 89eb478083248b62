"""Checkpoints: all that training needs to resume, published whole.

There is no random state, because data order and dropout are functions of the seed and the step.
Some are scheduled by their steps, to be averaged; others are to resume from. The last two of each
have moments, in case one is damaged, which is never a reason to delete it.
"""

from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Annotated

import torch
from pydantic import Field, ValidationError
from torch import Tensor, nn

from nmtkit.config.recipe import TrainingConfig
from nmtkit.model.description import Description
from nmtkit.model.weights import WEIGHTS, load_weights
from nmtkit.store import files, records
from nmtkit.store.artifacts import Artifact, open_directory, publish_directory, withdraw
from nmtkit.store.files import DRAFT
from nmtkit.store.manifests import MANIFEST
from nmtkit.store.records import DamagedError, NewerVersionError, Record
from nmtkit.store.tensors import load_tensors, save_tensors
from nmtkit.store.verification import verify
from nmtkit.utils.errors import UserError

OPTIMIZER, PROGRESS = "optimizer.safetensors", "progress.json"
MOMENTS = ("exp_avg", "exp_avg_sq")  # m and v of Adam
N_WITH_MOMENTS = 2  # of the scheduled checkpoints and of all, the last ones
NAMES = "step-" + 8 * "[0-9]"
DELETED = ".deleted"  # suffix of what is not deleted completely

Number = Annotated[int, Field(ge=0, lt=2**53)]


class Evaluation(Record):
    """What a model scored on dev, by [training] patience_metric."""

    step: Number
    score: Annotated[float, Field(ge=0)]


class Best(Evaluation):
    """The best evaluation so far, for early stopping."""

    n_worse: Number = 0  # evaluations since then, none of which was better


class Progress(Record):
    step: Number  # optimizer steps done
    epoch: Number  # of the next update
    index: Number  # of the next update within its epoch
    tgt_tokens: Number  # seen so far
    skipped: Number = 0  # steps whose loss or gradient was not finite
    skipped_in_a_row: Number = 0  # the last ones of all
    overflows: Number = 0  # steps whose gradient exceeded float16
    loss_scale: Annotated[float, Field(ge=1)] = 1.0
    n_finite: Number = 0  # steps in a row since the loss scale changed
    best: Best | None = None  # None: no early stopping, or no evaluation yet
    ranked: list[Evaluation] | None = None  # the best ones, best first, if averaging may need them


BEGINNING = Progress(step=0, epoch=0, index=0, tgt_tokens=0)


def is_over(config: TrainingConfig, progress: Progress) -> bool:
    """Return whether training has done its last step, or has run out of patience."""
    if config.patience and progress.best and progress.best.n_worse >= config.patience:
        return True
    return progress.step == config.max_steps


class Origin(Record):
    """What the weights of a model are of, besides a step: the manifest of a checkpoint tells it."""

    model: Description
    text: dict[str, str]  # the hash of each file of its subwords and its tokenization
    training: str | None = None  # a hash of all that its training depends on but the steps


@dataclass(frozen=True)
class Snapshot:
    """The state of training after a step, in host memory, which later steps do not change."""

    weights: dict[str, Tensor]  # each parameter under one name; a tied one has several
    moments: dict[str, Tensor]
    progress: Progress

    @classmethod
    def of(cls, model: nn.Module, optimizer: torch.optim.Adam, progress: Progress) -> "Snapshot":
        weights, moments = {}, {}
        for name, parameter in model.named_parameters():
            weights[name] = parameter.detach().to("cpu", copy=True)
            for moment in MOMENTS:
                value = optimizer.state[parameter][moment]
                moments[f"{moment}.{name}"] = value.to("cpu", copy=True)
        return cls(weights, moments, progress)

    def publish(self, directory: Path, origin: Origin | None = None) -> Path:
        draft = _draft(path := directory / _name(self.progress.step))
        save_tensors(self.weights, draft / WEIGHTS)
        save_tensors(self.moments, draft / OPTIMIZER)
        records.write_json(draft / PROGRESS, self.progress.model_dump(exclude_none=True))
        told = origin.model_dump(mode="json", exclude_defaults=True) if origin else {}
        publish_directory(draft, path, {"kind": "checkpoint", "depends_on": told})
        return path


def share_checkpoint(path: Path, directory: Path) -> None:
    """Publish the checkpoint at `path` in `directory` too; its files are shared, not copied."""
    shared = verify(open_directory(path)).manifest.files
    draft = _draft(directory / path.name)
    for name in (*shared, MANIFEST):
        files.share_file(path / name, draft / name)
    files.move(draft, directory / path.name)


def _draft(path: Path) -> Path:
    draft = path.with_suffix(DRAFT)
    files.delete(draft)
    draft.mkdir(parents=True)
    return draft


def read_origin(checkpoint: Artifact) -> Origin:
    """Return what a checkpoint is of; raise DamagedError if its manifest does not tell it."""
    try:
        return Origin.model_validate(checkpoint.manifest.depends_on)
    except ValidationError as error:
        reason = f"{checkpoint.path / MANIFEST} is damaged ({records.first_problem(error)})"
        raise DamagedError(reason, "restore it from a copy") from None


def load_checkpoint(path: Path, model: nn.Module, optimizer: torch.optim.Adam) -> Progress:
    progress = verify_resumable(path)
    load_weights(model, path / WEIGHTS)
    moments = load_tensors(path / OPTIMIZER)
    adam_steps = float(progress.step - progress.skipped - progress.overflows)
    for name, parameter in model.named_parameters():
        optimizer.state[parameter] = {
            "step": torch.tensor(adam_steps, device=parameter.device),
            **{moment: moments[f"{moment}.{name}"].to(parameter) for moment in MOMENTS},
        }
    return progress


def verify_resumable(path: Path) -> Progress:
    """Check the hash of every file that training needs to resume, and return the progress."""
    verify(open_directory(path), WEIGHTS, OPTIMIZER)
    return read_progress(path)


def set_damaged_aside(directory: Path, aside: Path) -> list[str]:
    """Move checkpoints newer than the last intact one to `aside`; return a sentence for each."""
    damaged: list[tuple[Path, str]] = []
    for path in reversed(checkpoints(directory)):
        try:
            verify_resumable(path)
            break
        except NewerVersionError:
            raise
        except DamagedError as error:
            damaged.append((path, error.reason))
    else:
        if damaged:
            raise UserError(
                f"training cannot resume from any of the {len(damaged)} checkpoints in {directory} "
                f"(the newest: {damaged[0][1]}; the last {N_WITH_MOMENTS} have moments); restore "
                f"one from a copy, or delete {directory} to train from the first step"
            )
    sentences = []
    for path, reason in damaged:
        aside.mkdir(exist_ok=True)
        names = (aside / f"{path.name}.{number}" for number in count(1))
        place = next(name for name in names if not name.exists())
        files.move(path, place)
        sentences.append(f"{path} is damaged ({reason}) and was moved to {place}")
    return sentences


def read_progress(path: Path) -> Progress:
    """Return the progress of the checkpoint at `path`; raise DamagedError if it is altered."""
    verify(open_directory(path), PROGRESS)
    progress = records.read_record(path / PROGRESS, Progress)
    if path.name != _name(progress.step):
        reason = f"{path / PROGRESS} is that of step {progress.step:,}"
        raise DamagedError(reason, "restore it from a copy")
    return progress


def checkpoints(directory: Path) -> list[Path]:
    """Return the checkpoints in `directory`, intact or damaged, oldest first."""
    return sorted(directory.glob(NAMES))


def step_of(checkpoint: Path) -> int:
    return int(checkpoint.name[-8:])


def last_step(directory: Path) -> int:
    return max(map(step_of, checkpoints(directory)), default=0)


def to_average(
    directory: Path, config: TrainingConfig, n_checkpoints: int, which: str = "last"
) -> list[Path]:
    """Return the best checkpoints in `directory`, or the last ones up to the best, oldest first."""
    existing = checkpoints(directory)
    newest = read_progress(existing[-1])
    if which == "best":
        path_of = {step_of(path): path for path in existing}
        ranked = [path_of[each.step] for each in newest.ranked or () if each.step in path_of]
        return sorted(ranked[:n_checkpoints])
    last = newest.best.step if newest.best else config.max_steps
    scheduled = (path for path in existing if config.is_scheduled(step_of(path)))
    return [path for path in scheduled if step_of(path) <= last][-n_checkpoints:]


def forget_old(directory: Path, config: TrainingConfig) -> None:
    """Keep the last scheduled checkpoints, those up to the best, the best and, to resume, the last.

    Once training is over, those that are not scheduled go too, so that no clock decides what stays.
    """
    for left in [*directory.glob(NAMES + DRAFT), *directory.glob(NAMES + DELETED)]:
        files.delete(left)
    if not (existing := checkpoints(directory)):
        return
    newest, keep = read_progress(existing[-1]), config.keep_checkpoints
    to_resume = [] if is_over(config, newest) else existing[-N_WITH_MOMENTS:]
    scheduled = [path for path in existing if config.is_scheduled(step_of(path))]
    kept = [*scheduled[-keep:], *to_average(directory, config, keep)]
    kept += to_average(directory, config, keep, "best")
    for path in {*existing} - {*kept, *to_resume}:
        files.discard(path, path.with_suffix(DELETED))
    for path in {*kept} - {*scheduled[-N_WITH_MOMENTS:], *to_resume}:
        if (path / OPTIMIZER).exists():
            with suppress(DamagedError):
                withdraw(path, OPTIMIZER)


def checkpoints_bytes(training: TrainingConfig, n_parameters: int) -> int:
    """Return the maximum size of the checkpoints: those kept, plus the one being written."""
    # The last ones, those up to the best one, and the best ones.
    n_kinds = 1 + (training.patience is not None) + (training.patience_metric is not None)
    n_scheduled = training.keep_checkpoints * n_kinds
    n_most = min(n_scheduled + N_WITH_MOMENTS + 1, training.max_steps)
    n_moments = len(MOMENTS) * min(2 * N_WITH_MOMENTS + 1, n_most)
    return (n_most + n_moments) * 4 * n_parameters  # float32


def _name(step: int) -> str:
    return f"step-{step:08d}"
