"""The checkpoints of a training that are kept.

- The last [training] keep_checkpoints of the scheduled ones: to be averaged.
- The same number up to the best evaluation: to be averaged if training ends by early stopping.
- The same number with the best evaluations: to be averaged with [averaging] which = "best".
- The last two of all, until training is over: to resume. There are two in case one is damaged.

Only the last two of the scheduled ones, and the last two of all, have the moments of Adam, which
are twice the size of the weights: training resumes from them, also with a larger max_steps.
"""

from contextlib import suppress
from pathlib import Path

from nmtkit.config.recipe import TrainingConfig
from nmtkit.store import files
from nmtkit.store.artifacts import withdraw
from nmtkit.store.files import DRAFT
from nmtkit.store.records import DamagedError
from nmtkit.training.checkpoint import (
    MOMENTS,
    NAMES,
    OPTIMIZER,
    checkpoint_step,
    checkpoints,
    is_over,
    read_progress,
)

N_WITH_MOMENTS = 2  # of the scheduled checkpoints, and of all checkpoints
DELETED = ".deleted"  # suffix of a checkpoint that is being deleted


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
    # Those that are not scheduled depend on when they were saved. None of them stays once training
    # is over, so that the artifact does not depend on time.
    if not is_over(config, read_progress(existing[-1])):
        kept.update(existing[-N_WITH_MOMENTS:])
        with_moments.update(existing[-N_WITH_MOMENTS:])

    for path in existing:
        # Renamed first, so that a kill leaves no folder that looks like a damaged checkpoint.
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
