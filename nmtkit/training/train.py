"""The training loop (section 5), from the last checkpoint to the last step."""

import math
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nmtkit.config.recipe import TrainingConfig
from nmtkit.evaluation.perplexity import perplexity_from_nll
from nmtkit.model.transformer import Transformer
from nmtkit.store.files import sync
from nmtkit.training import checkpoint
from nmtkit.training.batches import Ints, Pairs, Update, cut
from nmtkit.training.checkpoint import (
    BestEvaluation,
    Evaluation,
    Origin,
    Progress,
    Snapshot,
    is_over,
)
from nmtkit.training.gradients import batch_losses
from nmtkit.training.metrics import DIVERGED, METRICS, REMEDY, Metrics, continue_metrics
from nmtkit.training.micro_batches import pack
from nmtkit.training.step import QueuedStep, StepResult, Trainer
from nmtkit.utils.errors import DivergedError

SAVE_EVERY_S = 600.0  # a kill loses no more work; as in the paper (section 6.1)
MAX_SKIPPED = 5  # consecutive steps without a finite gradient; a single one may be the data
STEPS_BEFORE_RESTART = 2  # a training that never did this many is not restarted after a loss

Evaluate = Callable[[Transformer], dict[str, Any]]  # returns the `dev_...` fields of `Metrics`


def train(
    trainer: Trainer,
    dev_pairs: Pairs,
    directory: Path,
    *,
    origin: Origin | None = None,
    aside: Path,
    evaluate: Evaluate,
    report: Callable[[Metrics], None],
    log: Callable[[str], None],
    warn: Callable[[str], None],
    should_stop: Callable[[], bool],
) -> Progress:
    """Train from the last intact checkpoint to the last step.

    Args:
        trainer: The model with its optimizer and training corpus.
        dev_pairs: The development set, for perplexity.
        directory: Folder of checkpoints and metrics; only the first process writes to it.
        origin: The origin that the manifests of checkpoints record.
        aside: Folder to which damaged checkpoints are moved.
        evaluate: Translates and scores the development set.
        report: Called with the metrics of a step.
        log: Prints a message.
        warn: Prints a warning.
        should_stop: Whether this process has received a signal to stop. If any process has, all of
            them save and stop after the same step.

    Returns:
        The progress at the end. Training is over, or was stopped.

    Raises:
        DivergedError: The loss, the gradient or the weights stay infinite or NaN.
    """
    config = trainer.config
    group = trainer.group
    progress = _resume(trainer, directory, aside, log, warn)
    n_left = 0 if is_over(config, progress) else config.max_steps - progress.step
    queue = deque[QueuedStep]()
    is_save_requested = False
    is_stop_requested = False
    saved_at = time.monotonic()
    n_results = 0

    with (
        continue_metrics(directory / METRICS, progress.step, group.is_first, warn) as metrics_file,
        ThreadPoolExecutor(1, thread_name_prefix="publish") as background,
    ):
        publishing = background.submit(lambda: None)  # the last checkpoint
        step_begin = time.perf_counter()
        for prepared in trainer.prepared_updates(n_left, progress):
            is_time_to_save = group.is_first and time.monotonic() - saved_at >= SAVE_EVERY_S
            queue.append(trainer.train_step(prepared, save=is_time_to_save, stop=should_stop()))
            is_due = config.is_scheduled(prepared.step) or config.is_evaluated(prepared.step)
            # The result of a step is read once the next step is queued. If an evaluation or a
            # checkpoint follows, it is read at once: the device is idle for a moment, and the
            # weights are those of the step.
            while queue:
                must_wait = is_due or is_save_requested or is_stop_requested
                if len(queue) <= trainer.max_queued and not must_wait:
                    break
                queued = queue.popleft()
                result = queued.wait()
                step_end = time.perf_counter()
                metrics = replace(result.metrics, seconds=step_end - step_begin)
                n_results += 1
                if n_results == STEPS_BEFORE_RESTART:
                    group.mark_trained()
                is_save_requested |= result.save_requests > 0
                is_stop_requested |= result.stop_requests > 0

                # This raises if writing the last checkpoint failed.
                if publishing.done():
                    publishing.result()
                if group.is_first and config.is_evaluated(metrics.step):
                    try:
                        dev_scores = _evaluate(trainer, dev_pairs, evaluate)
                    except DivergedError:
                        publishing.result()
                        cause = f"evaluation after step {metrics.step:,}"
                        raise _diverged(cause, directory) from None
                    metrics = replace(metrics, **dev_scores)
                metrics_file.write(metrics.line())
                report(metrics)
                update = queued.prepared.update
                progress = _next_progress(trainer, progress, update, result, metrics)

                is_last = progress.step == config.max_steps
                if progress.skipped_in_a_row >= (1 if is_last else MAX_SKIPPED):
                    publishing.result()
                    group.wait()  # so that all processes report the same checkpoints
                    raise _diverged(f"loss or gradient up to step {progress.step:,}", directory)
                # The time for evaluation and checkpoints is not part of a step.
                step_begin = step_end if queue else time.perf_counter()

            if queue:
                continue  # the model is one step ahead of the metrics
            is_requested = is_save_requested or is_stop_requested
            if group.is_first and (is_requested or config.is_scheduled(progress.step)):
                publishing.result()
                # Weights may become infinite although all gradients were finite.
                if not _has_finite_weights(trainer.model):
                    raise _diverged(f"weights after step {progress.step:,}", directory)
                snapshot = Snapshot.of(trainer.model, trainer.optimizer, progress)
                publishing = background.submit(_publish, snapshot, directory, origin, config)
                saved_at = time.monotonic()
            if is_stop_requested or is_over(config, progress):
                break
            is_save_requested = False
            step_begin = time.perf_counter()
        publishing.result()
    group.wait()  # until the first process has published the last checkpoint
    return progress


def _resume(
    trainer: Trainer,
    directory: Path,
    aside: Path,
    log: Callable[[str], None],
    warn: Callable[[str], None],
) -> Progress:
    """Load the last intact checkpoint into the trainer of every process.

    Args:
        trainer: The trainer, whose weights are those of the start.
        directory: Folder of checkpoints, the same for all processes.
        aside: Folder to which damaged checkpoints are moved.
        log: Prints a message.
        warn: Prints a warning.

    Returns:
        The progress of the checkpoint, or BEGINNING.
    """
    group = trainer.group
    max_steps = trainer.config.max_steps
    if group.is_first:
        for sentence in checkpoint.move_damaged(directory, aside):
            warn(f"train: {sentence}")
    group.wait()
    progress = checkpoint.BEGINNING
    existing = checkpoint.checkpoints(directory)
    if existing:
        progress = checkpoint.load_checkpoint(existing[-1], trainer.model, trainer.optimizer)
        trainer.loss_scale.restore(progress.loss_scale, progress.n_finite)
    disk = "--runs-dir, on a shared disk,"
    # Machines without a shared disk would train from different weights.
    group.check_same("the last checkpoint that they find", progress.step, disk)
    group.copy_from_first(trainer.model)
    if group.is_first:
        if progress.step:
            log(f"train: resuming after step {progress.step:,} of {max_steps:,}")
        # A run that was killed may have left these.
        checkpoint.delete_old(directory, trainer.config)
        (directory / DIVERGED).unlink(missing_ok=True)
    return progress


def _has_finite_weights(model: Transformer) -> bool:
    """Return whether all weights are finite. It waits for the device."""
    weights = [parameter.detach() for parameter in model.parameters()]
    return bool(torch.nn.utils.get_total_norm(weights).isfinite())


def _evaluate(trainer: Trainer, dev_pairs: Pairs, evaluate: Evaluate) -> dict[str, Any]:
    """Return the perplexity and the scores of the development set: the `dev_...` fields of Metrics.

    Args:
        trainer: The trainer of the model.
        dev_pairs: The development set, for perplexity.
        evaluate: Translates and scores the development set.
    """
    model = trainer.model
    device = trainer.group.device
    with torch.compiler.set_stance("force_eager"):  # dev batches have many shapes
        dev_perplexity = perplexity(model, dev_pairs, device=device, max_tokens=trainer.max_tokens)
        return {"dev_perplexity": dev_perplexity, **evaluate(model)}


@torch.no_grad()
def perplexity(model: Transformer, pairs: Pairs, *, device: torch.device, max_tokens: int) -> float:
    """Compute exp of the mean negative log-likelihood per subword, with end symbols (Table 3).

    Args:
        model: The model, which is in evaluation mode afterwards.
        pairs: The sentence pairs.
        device: Device of the model.
        max_tokens: Maximum number of tokens per side of a batch.

    Raises:
        DivergedError: It is not a number.
    """
    # Sorted by length, so that batches have little padding.
    model.eval()
    by_length: Ints = np.argsort(pairs.tgt_lengths, kind="stable")
    groups = cut(by_length, [(pairs.src_lengths, max_tokens), (pairs.tgt_lengths, max_tokens)])
    nll = 0.0
    for chosen in groups:
        batch = pack(pairs, chosen, device)
        nll += batch_losses(model, batch, label_smoothing=0.0).nll.item()
    if math.isnan(nll):
        raise DivergedError("the perplexity on dev is not a number")
    return perplexity_from_nll(nll, int(pairs.tgt_lengths.sum()))


def _next_progress(
    trainer: Trainer,
    progress: Progress,
    update: Update,
    result: StepResult,
    metrics: Metrics,
) -> Progress:
    """Return the progress after a step.

    Args:
        trainer: The trainer. All processes call this function.
        progress: The progress before the step.
        update: The update of the step.
        result: Its result.
        metrics: Its metrics. Only those of the first process have scores.
    """
    # The first process has the scores. It sends one to the others, so that all decide the same.
    config = trainer.config
    judged: dict[str, Any] = {"best": progress.best, "ranked": progress.ranked}
    if config.is_judged(metrics.step):
        score = getattr(metrics, f"dev_{config.patience_metric or 'perplexity'}")
        judged = judge(progress, config, metrics.step, trainer.group.first(score or 0.0))
    return Progress(
        step=metrics.step,
        epoch=update.epoch,
        index=update.index + 1,
        tgt_tokens=progress.tgt_tokens + metrics.tgt_tokens,
        skipped=progress.skipped + metrics.skipped,
        skipped_in_a_row=progress.skipped_in_a_row + 1 if metrics.skipped else 0,
        overflows=progress.overflows + metrics.overflow,
        loss_scale=result.loss_scale,
        n_finite=result.n_finite,
        **judged,
    )


def judge(progress: Progress, config: TrainingConfig, step: int, score: float) -> dict[str, Any]:
    """Return the best evaluations after another one; of equal scores, the first is better.

    Args:
        progress: The progress with the best evaluations so far.
        config: [training] of the recipe.
        step: The step of the evaluation.
        score: Its score by [training] patience_metric.

    Returns:
        The fields `best` and `ranked` of Progress.
    """
    metric = config.patience_metric
    sign = 1 if metric in (None, "perplexity") else -1  # lower perplexity is better
    best = BestEvaluation(step=step, score=score)
    if progress.best is not None and sign * score >= sign * progress.best.score:
        best = progress.best.model_copy(update={"n_worse": progress.best.n_worse + 1})
    ranked = [*(progress.ranked or ()), Evaluation(step=step, score=score)]
    ranked.sort(key=lambda evaluation: sign * evaluation.score)
    return {
        "best": best if config.patience else None,
        "ranked": ranked[: config.keep_checkpoints] if metric else None,
    }


def _publish(
    snapshot: Snapshot, directory: Path, origin: Origin | None, config: TrainingConfig
) -> None:
    """Write a checkpoint, and delete those that are not needed any more.

    Args:
        snapshot: The state of training.
        directory: Folder of checkpoints and metrics.
        origin: Recorded in the manifest.
        config: [training] of the recipe.
    """
    sync(directory / METRICS)  # it must not have fewer steps than a checkpoint
    snapshot.publish(directory, origin)
    checkpoint.delete_old(directory, config)


def _diverged(cause: str, directory: Path) -> DivergedError:
    """Record that training diverged, and return the error to raise.

    Args:
        cause: The values that are not finite, and their step.
        directory: Folder of checkpoints.
    """
    note = f"{cause}: not finite"  # the same in all processes
    (directory / DIVERGED).write_text(note, encoding="utf-8", newline="\n")
    kept = "no checkpoint was saved before"
    if checkpoint.checkpoints(directory):
        kept = f"the last good checkpoint is kept in {directory}"
    return DivergedError(f"{note}; {kept}; {REMEDY}")
