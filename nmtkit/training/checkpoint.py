"""Checkpoints: everything that training needs to resume, published atomically.

There is no random state, because data order and dropout are functions of the seed and the step.

These checkpoints are kept:

- The last [training] keep_checkpoints of the scheduled ones: to be averaged.
- The same number up to the best evaluation: to be averaged if training ends by early stopping.
- The same number with the best evaluations: to be averaged with [averaging] which = "best".
- The last two of all, until training is over: to resume. There are two in case one is damaged.

The moments of Adam are twice the size of the weights. Only the last two of the scheduled ones, and
the last two of all, have them: training resumes from these, also with a larger max_steps.
"""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
from pydantic import Field, ValidationError
from torch import Tensor, nn

from nmtkit.config.recipe import TrainingConfig
from nmtkit.model.weights import WEIGHTS, Description, load_weights
from nmtkit.store import files, records
from nmtkit.store.artifacts import Artifact, open_directory, publish_directory, verify, withdraw
from nmtkit.store.files import DRAFT
from nmtkit.store.manifests import MANIFEST
from nmtkit.store.records import DamagedError, NewerVersionError, Record
from nmtkit.store.tensors import load_tensors, save_tensors
from nmtkit.utils.errors import UserError

OPTIMIZER = "optimizer.safetensors"
PROGRESS = "progress.json"
MOMENTS = ("exp_avg", "exp_avg_sq")  # m and v of Adam
NAMES = "step-" + 8 * "[0-9]"
DELETED = ".deleted"  # suffix of a checkpoint that is being deleted
N_WITH_MOMENTS = 2  # of the scheduled checkpoints, and of all checkpoints

Number = Annotated[int, Field(ge=0, lt=2**53)]


class Evaluation(Record):
    """The score of a model on the development set, by [training] patience_metric."""

    step: Number
    score: Annotated[float, Field(ge=0)]


class BestEvaluation(Evaluation):
    """The best evaluation so far, for early stopping."""

    n_worse: Number = 0  # evaluations since then, none of which was better


class Progress(Record):
    """The position of a training after a step."""

    step: Number  # optimizer steps so far
    epoch: Number  # of the next update
    index: Number  # of the next update within its epoch
    tgt_tokens: Number  # so far
    skipped: Number = 0  # steps whose loss or gradient was not finite
    skipped_in_a_row: Number = 0  # up to the present step
    overflows: Number = 0  # steps whose gradient exceeded float16
    loss_scale: Annotated[float, Field(ge=1)] = 1.0
    n_finite: Number = 0  # steps in a row since the loss scale changed
    best: BestEvaluation | None = None  # None: no early stopping, or no evaluation yet
    ranked: list[Evaluation] | None = None  # the best ones, best first; None: no patience_metric


BEGINNING = Progress(step=0, epoch=0, index=0, tgt_tokens=0)


def is_over(config: TrainingConfig, progress: Progress) -> bool:
    """Return whether training has reached its last step, or has run out of patience."""
    n_worse = progress.best.n_worse if progress.best is not None else 0
    if config.patience and n_worse >= config.patience:
        return True
    return progress.step == config.max_steps


class Origin(Record):
    """The model, text and training of a checkpoint, as its manifest records them."""

    model: Description
    text: dict[str, str]  # hashes of the files of the subword model and the tokenization
    training: str | None = None  # a hash of everything the training depends on, without max_steps


@dataclass(frozen=True)
class Snapshot:
    """The state of training after a step, in host memory: later steps do not change it."""

    weights: dict[str, Tensor]  # by the first name of a parameter; a tied one has several
    moments: dict[str, Tensor]
    progress: Progress

    @classmethod
    def of(cls, model: nn.Module, optimizer: torch.optim.Adam, progress: Progress) -> "Snapshot":
        """Copy the weights and the moments of Adam.

        Args:
            optimizer: Its optimizer, after at least one step.
            progress: The position of the training.
        """
        # Copies, since the next steps overwrite the originals while the checkpoint is written.
        weights = {}
        moments = {}
        for name, parameter in model.named_parameters():
            weights[name] = parameter.detach().to("cpu", copy=True)
            for moment in MOMENTS:
                value = optimizer.state[parameter][moment]
                moments[f"{moment}.{name}"] = value.to("cpu", copy=True)
        return cls(weights, moments, progress)

    def publish(self, directory: Path, origin: Origin | None = None) -> Path:
        """Write the checkpoint to `directory`, and return its path."""
        path = directory / _name(self.progress.step)
        draft = _draft(path)
        save_tensors(self.weights, draft / WEIGHTS)
        save_tensors(self.moments, draft / OPTIMIZER)
        records.write_json(draft / PROGRESS, self.progress.model_dump(exclude_none=True))
        depends_on = {}
        if origin is not None:
            depends_on = origin.model_dump(mode="json", exclude_defaults=True)
        publish_directory(draft, path, {"kind": "checkpoint", "depends_on": depends_on})
        return path


def share_checkpoint(path: Path, directory: Path) -> None:
    """Publish the checkpoint at `path` also in `directory`; its files are linked, not copied."""
    # Two folders can share the files of a published checkpoint because they never change.
    names = [*verify(open_directory(path)).manifest.files, MANIFEST]
    draft = _draft(directory / path.name)
    for name in names:
        files.share_file(path / name, draft / name)
    files.move(draft, directory / path.name)


def _draft(path: Path) -> Path:
    """Create the empty draft of a checkpoint."""
    draft = path.with_suffix(DRAFT)
    files.delete(draft)
    draft.mkdir(parents=True)
    return draft


def read_origin(checkpoint: Artifact) -> Origin:
    """Return the origin of a checkpoint.

    Raises:
        DamagedError: Its manifest does not have one.
    """
    try:
        return Origin.model_validate(checkpoint.manifest.depends_on)
    except ValidationError as error:
        reason = f"{checkpoint.path / MANIFEST} is damaged ({records.first_problem(error)})"
        raise DamagedError(reason, "restore it from a backup") from None


def load_checkpoint(path: Path, model: nn.Module, optimizer: torch.optim.Adam) -> Progress:
    """Load a checkpoint into a model and its optimizer, and return its progress.

    Args:
        path: The checkpoint. It must have moments.
        model: The model, whose parameters are overwritten.
        optimizer: Its optimizer, whose state is replaced.

    Raises:
        DamagedError: A file is missing or does not match its hash.
    """
    progress = verify_resumable(path)
    load_weights(model, path / WEIGHTS)
    moments = load_tensors(path / OPTIMIZER)
    # Adam does not count the steps that it skips.
    adam_steps = float(progress.step - progress.skipped - progress.overflows)
    for name, parameter in model.named_parameters():
        state = {"step": torch.tensor(adam_steps, device=parameter.device)}
        for moment in MOMENTS:
            state[moment] = moments[f"{moment}.{name}"].to(parameter)
        optimizer.state[parameter] = state
    return progress


def verify_resumable(path: Path) -> Progress:
    """Verify all files that training needs to resume, and return the progress.

    Raises:
        DamagedError: A file is missing or does not match its hash.
    """
    verify(open_directory(path), WEIGHTS, OPTIMIZER)
    return read_progress(path)


def move_damaged(directory: Path, aside: Path) -> list[str]:
    """Move the checkpoints that are newer than the last intact one, and damaged, to another folder.

    A damaged checkpoint is never deleted: the user may be able to repair it.

    Args:
        directory: The folder of checkpoints.
        aside: The folder to move them to. It is created if necessary.

    Returns:
        Messages about the moved checkpoints.

    Raises:
        UserError: There are checkpoints, but none from which training could resume.
        NewerVersionError: The newest one was written by a newer version of nmtkit.
    """
    # From the newest on, until one is intact: older ones are not needed to resume.
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
                f"training cannot resume from any of the {len(damaged):,} checkpoints in "
                f"{directory} (the newest: {damaged[0][1]}; only the last ones have "
                f"optimizer moments); restore one from a backup, or delete {directory} to train "
                "from the first step"
            )
    messages = []
    for path, reason in damaged:
        aside.mkdir(exist_ok=True)
        # An earlier one of the same step may have been damaged too.
        number = 1
        while (aside / f"{path.name}.{number}").exists():
            number += 1
        place = aside / f"{path.name}.{number}"
        files.move(path, place)
        messages.append(f"{path} is damaged ({reason}) and was moved to {place}")
    return messages


def read_progress(path: Path) -> Progress:
    """Return the progress of the checkpoint at `path`.

    Raises:
        DamagedError: The file does not match its hash, or belongs to another step.
    """
    verify(open_directory(path), PROGRESS)
    progress = records.read_record(path / PROGRESS, Progress)
    if path.name != _name(progress.step):
        reason = f"{path / PROGRESS} is that of step {progress.step:,}"
        raise DamagedError(reason, "restore it from a backup")
    return progress


def checkpoints(directory: Path) -> list[Path]:
    """Return the checkpoints in `directory`, intact or damaged, oldest first."""
    return sorted(directory.glob(NAMES))


def checkpoint_step(checkpoint: Path) -> int:
    """Return the step of a checkpoint, from its name."""
    return int(checkpoint.name[-8:])


def last_step(directory: Path) -> int:
    """Return the step of the last checkpoint in `directory`, or 0."""
    existing = checkpoints(directory)
    return checkpoint_step(existing[-1]) if existing else 0


def _name(step: int) -> str:
    """Return the name of the checkpoint of a step."""
    return f"step-{step:08d}"


def checkpoints_to_average(
    directory: Path, config: TrainingConfig, n_checkpoints: int, which: str = "last"
) -> list[Path]:
    """Return the checkpoints to average, oldest first.

    Args:
        directory: The folder of checkpoints, of which there is at least one.
        config: [training] of the recipe.
        n_checkpoints: Maximum number of checkpoints.
        which: "last": the last scheduled ones, up to the best evaluation if training may end by
            early stopping; "best": those with the best evaluations.
    """
    # The newest checkpoint records the best evaluations so far.
    existing = checkpoints(directory)
    newest = read_progress(existing[-1])
    if which == "best":
        paths = {checkpoint_step(path): path for path in existing}
        ranked = []
        for evaluation in newest.ranked or []:
            if evaluation.step in paths:
                ranked.append(paths[evaluation.step])
        return sorted(ranked[:n_checkpoints])
    # With early stopping, the checkpoints after the best evaluation are not averaged.
    last = newest.best.step if newest.best is not None else config.max_steps
    scheduled = []
    for path in existing:
        step = checkpoint_step(path)
        if config.is_scheduled(step) and step <= last:
            scheduled.append(path)
    return scheduled[-n_checkpoints:]


def delete_old(directory: Path, config: TrainingConfig) -> None:
    """Delete the checkpoints and the moments that are not needed any more.

    Args:
        directory: The folder of checkpoints.
        config: [training] of the recipe.
    """
    # A killed run may have left drafts, and checkpoints that are not deleted completely.
    for path in [*directory.glob(NAMES + DRAFT), *directory.glob(NAMES + DELETED)]:
        files.delete(path)
    existing = checkpoints(directory)
    if not existing:
        return
    n_kept = config.keep_checkpoints
    scheduled = [path for path in existing if config.is_scheduled(checkpoint_step(path))]

    kept = set(scheduled[-n_kept:])
    kept.update(checkpoints_to_average(directory, config, n_kept))  # up to the best evaluation
    kept.update(checkpoints_to_average(directory, config, n_kept, "best"))
    with_moments = set(scheduled[-N_WITH_MOMENTS:])
    # Those that are not scheduled depend on when they were saved. Once training is over, none of
    # them stays: the artifact does not depend on time.
    if not is_over(config, read_progress(existing[-1])):
        kept.update(existing[-N_WITH_MOMENTS:])
        with_moments.update(existing[-N_WITH_MOMENTS:])

    for path in existing:
        # Renamed first: otherwise, a kill could leave what looks like a damaged checkpoint.
        if path not in kept:
            files.discard(path, path.with_suffix(DELETED))
        elif path not in with_moments and (path / OPTIMIZER).exists():
            with suppress(DamagedError):  # a damaged one stays as it is
                withdraw(path, OPTIMIZER)


def checkpoints_bytes(training: TrainingConfig, n_parameters: int) -> int:
    """Return the maximum size of all checkpoints of a training: the kept ones, and a draft.

    Args:
        training: [training] of the recipe.
        n_parameters: Number of parameters of the model.
    """
    # The kinds may overlap; this is their maximum.
    n_kinds = 1  # the last ones
    if training.patience is not None:
        n_kinds += 1  # those up to the best evaluation
    if training.patience_metric is not None:
        n_kinds += 1  # those with the best evaluations
    n_checkpoints = n_kinds * training.keep_checkpoints + N_WITH_MOMENTS + 1
    n_checkpoints = min(n_checkpoints, training.max_steps)
    n_with_moments = min(2 * N_WITH_MOMENTS + 1, n_checkpoints)
    n_copies = n_checkpoints + len(MOMENTS) * n_with_moments  # of all parameters
    return 4 * n_copies * n_parameters  # float32
