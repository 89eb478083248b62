"""The training loop (section 5), from the last checkpoint to the last step."""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nmtkit.config.recipe import TrainingConfig
from nmtkit.evaluation.perplexity import perplexity_from_nll
from nmtkit.model.transformer import Transformer
from nmtkit.store.files import sync
from nmtkit.store.links import write_own
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
from nmtkit.utils.progress import log, warn

SAVE_EVERY_S = 600.0  # a kill loses no more work; as in the paper (section 6.1)
MAX_SKIPPED = 5  # consecutive steps without a finite gradient; a single one may be the data
STEPS_BEFORE_RESTART = 2  # a training that never did this many is not restarted after a loss

Evaluate = Callable[[Transformer], dict[str, Any]]  # returns the `dev_...` fields of `Metrics`


class TrainingLoop:
    """Trains from the last intact checkpoint to the last step, in one process of a group."""

    def __init__(
        self,
        trainer: Trainer,
        dev_pairs: Pairs,
        directory: Path,
        *,
        aside: Path,
        evaluate: Evaluate,
        report: Callable[[Metrics], None],
        should_stop: Callable[[], bool],
        origin: Origin | None = None,
    ) -> None:
        """Prepare a loop; nothing is read or written before `run`.

        Args:
            trainer: The model with its optimizer and training corpus.
            dev_pairs: The development set, for perplexity.
            directory: Folder of checkpoints and metrics; only the first process writes to it.
            aside: Folder to which damaged checkpoints are moved.
            evaluate: Translates and scores the development set.
            report: Called with the metrics of each step.
            should_stop: Whether this process has received a signal to stop. If any process has,
                all of them save and stop after the same step.
            origin: The origin that the manifests of checkpoints record.
        """
        self.trainer = trainer
        self.dev_pairs = dev_pairs
        self.directory = directory
        self.aside = aside
        self.evaluate = evaluate
        self.report = report
        self.should_stop = should_stop
        self.origin = origin
        self.progress = checkpoint.BEGINNING  # after the last step whose result was read
        self.n_results = 0  # results that this process has read
        self.must_save = False  # a process requested a checkpoint
        self.must_stop = False  # a process was requested to stop

    def run(self) -> Progress:
        """Train until the last step, or until any process should stop.

        From the last checkpoint on: queue a step (`train_step`), write the metrics of the one
        before it and evaluate its model where that is due (`read_result`), save, stop.

        Returns:
            The progress at the end. Training is over, or was stopped.

        Raises:
            DivergedError: The loss, the gradient or the weights stay infinite or NaN.
        """
        trainer = self.trainer
        config = trainer.config
        self.resume()
        n_left = 0 if is_over(config, self.progress) else config.max_steps - self.progress.step
        queue = deque[QueuedStep]()
        with self.open_outputs():
            for prepared in trainer.prepared_updates(n_left, self.progress):
                is_time_to_save = time.monotonic() - self.saved_at >= SAVE_EVERY_S
                save = trainer.group.is_first and is_time_to_save
                queue.append(trainer.train_step(prepared, save=save, stop=self.should_stop()))
                # The result of a step is read once the next step is queued. If an evaluation or a
                # checkpoint follows, it is read at once: the device is idle for a moment, and the
                # weights are those of the step.
                is_due = config.is_scheduled(prepared.step) or config.is_evaluated(prepared.step)
                while queue and (
                    len(queue) > trainer.max_queued or is_due or self.must_save or self.must_stop
                ):
                    self.read_result(queue.popleft())
                # All processes learn of a request to save or stop from the result of the step that
                # carried it. By then the next step may be queued: it is finished and saved instead.
                if queue:
                    continue
                if self.must_save or self.must_stop or config.is_scheduled(self.progress.step):
                    self.save()
                if self.must_stop or is_over(config, self.progress):
                    break
                self.must_save = False
                # The time for evaluation and checkpoints is not part of a step.
                self.step_begin = time.perf_counter()
            self.publishing.result()
        trainer.group.wait()  # until the first process has published the last checkpoint
        return self.progress

    def resume(self) -> None:
        """Load the last intact checkpoint into the trainer of every process."""
        trainer = self.trainer
        group = trainer.group
        if group.is_first:
            for sentence in checkpoint.move_damaged(self.directory, self.aside):
                warn(f"train: {sentence}")
        group.wait()
        existing = checkpoint.checkpoints(self.directory)
        if existing:
            self.progress = checkpoint.load_checkpoint(
                existing[-1], trainer.model, trainer.optimizer
            )
            trainer.loss_scale.restore(self.progress.loss_scale, self.progress.n_finite)
        step = self.progress.step
        # Machines without a shared disk would train from different weights.
        disk = "--runs-dir, on a shared disk,"
        group.check_same("the last checkpoint that they find", step, disk)
        group.copy_from_first(trainer.model)
        if group.is_first:
            if step:
                log(f"train: resuming after step {step:,} of {trainer.config.max_steps:,}")
            # A run that was killed may have left these.
            checkpoint.delete_old(self.directory, trainer.config)
            (self.directory / DIVERGED).unlink(missing_ok=True)

    @contextmanager
    def open_outputs(self) -> Iterator[None]:
        """Open the metrics and the thread that writes checkpoints, and start the clocks."""
        is_first = self.trainer.group.is_first
        path = self.directory / METRICS
        with (
            continue_metrics(path, self.progress.step, is_first) as self.metrics_file,
            ThreadPoolExecutor(1, thread_name_prefix="publish") as self.background,
        ):
            self.publishing = self.background.submit(lambda: None)  # the last checkpoint
            self.saved_at = time.monotonic()  # time of the last checkpoint
            self.step_begin = time.perf_counter()  # of the present step
            yield

    def read_result(self, queued: QueuedStep) -> None:
        """Wait for a step, write its metrics, and evaluate the model if the step is due for it.

        Args:
            queued: The oldest step whose result was not read. If it is evaluated, it is the only
                one.

        Raises:
            DivergedError: Too many steps in a row were skipped, or an evaluation is not a number.
        """
        group = self.trainer.group
        config = self.trainer.config
        result = queued.wait()
        step_end = time.perf_counter()
        metrics = replace(result.metrics, seconds=step_end - self.step_begin)
        self.step_begin = step_end
        self.n_results += 1
        if self.n_results == STEPS_BEFORE_RESTART:
            group.mark_trained()
        self.must_save |= result.save_requests > 0
        self.must_stop |= result.stop_requests > 0

        # This raises if writing the last checkpoint failed.
        if self.publishing.done():
            self.publishing.result()
        if group.is_first and config.is_evaluated(metrics.step):
            try:
                scores = evaluate_dev(self.trainer, self.dev_pairs, self.evaluate)
                metrics = replace(metrics, **scores)
            except DivergedError:
                self.publishing.result()
                cause = f"evaluation after step {metrics.step:,}"
                raise _diverged(cause, self.directory) from None
        self.metrics_file.write(metrics.line())
        self.report(metrics)
        self.progress = self.next_progress(queued.prepared.update, result, metrics)

        is_last = self.progress.step == config.max_steps
        if self.progress.skipped_in_a_row >= (1 if is_last else MAX_SKIPPED):
            self.publishing.result()
            group.wait()  # all processes report the same checkpoints
            cause = f"loss or gradient up to step {self.progress.step:,}"
            raise _diverged(cause, self.directory)

    def next_progress(self, update: Update, result: StepResult, metrics: Metrics) -> Progress:
        """Return the progress after a step. All processes call this function.

        Args:
            metrics: Its metrics. Only those of the first process have scores.
        """
        progress = self.progress
        config = self.trainer.config
        # Only the first process has scores. It sends this one to the others: all decide the same.
        judged: dict[str, Any] = {"best": progress.best, "ranked": progress.ranked}
        if config.is_judged(metrics.step):
            score = getattr(metrics, f"dev_{config.patience_metric or 'perplexity'}")
            score = self.trainer.group.first(score or 0.0)
            judged = judge(progress, config, metrics.step, score)
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

    def save(self) -> None:
        """Let the background thread write a checkpoint, if this is the first process.

        Raises:
            DivergedError: A weight is not finite.
        """
        trainer = self.trainer
        if not trainer.group.is_first:
            return
        self.publishing.result()
        # Weights may become infinite although all gradients were finite.
        weights = [parameter.detach() for parameter in trainer.model.parameters()]
        if not torch.nn.utils.get_total_norm(weights).isfinite():
            raise _diverged(f"weights after step {self.progress.step:,}", self.directory)
        snapshot = Snapshot.of(trainer.model, trainer.optimizer, self.progress)
        self.publishing = self.background.submit(
            _publish, snapshot, self.directory, self.origin, trainer.config
        )
        self.saved_at = time.monotonic()


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
    write_own(directory / DIVERGED, note)
    kept = "no checkpoint was saved before"
    if checkpoint.checkpoints(directory):
        kept = f"the last good checkpoint is kept in {directory}"
    return DivergedError(f"{note}; {kept}; {REMEDY}")


# Evaluations on the development set


def evaluate_dev(trainer: Trainer, dev_pairs: Pairs, evaluate: Evaluate) -> dict[str, Any]:
    """Return the perplexity and the scores of the development set: the `dev_...` fields of Metrics.

    Args:
        dev_pairs: The development set, for perplexity.
        evaluate: Translates and scores the development set.

    Raises:
        DivergedError: The perplexity is not a number.
    """
    model = trainer.model
    device = trainer.group.device
    with torch.compiler.set_stance("force_eager"):  # dev batches have many shapes
        dev_perplexity = perplexity(
            model, dev_pairs, device=device, max_tokens=trainer.setup.max_tokens
        )
        return {"dev_perplexity": dev_perplexity, **evaluate(model)}


@torch.no_grad()
def perplexity(model: Transformer, pairs: Pairs, *, device: torch.device, max_tokens: int) -> float:
    """Compute exp of the mean negative log-likelihood per subword, with end symbols (Table 3).

    Args:
        model: The model. It is in evaluation mode afterwards.
        max_tokens: Maximum number of tokens per side of a batch.

    Raises:
        DivergedError: It is not a number.
    """
    # Sorted by length, batches have little padding.
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


def judge(progress: Progress, config: TrainingConfig, step: int, score: float) -> dict[str, Any]:
    """Return the best evaluations after another one; of equal scores, the first is better.

    Args:
        progress: The progress with the best evaluations so far.
        config: [training] of the recipe.
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
