"""The training loop (section 5), from the last checkpoint to the last step."""

import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nmtkit.errors import DivergedError
from nmtkit.files import sync
from nmtkit.model.transformer import Transformer
from nmtkit.perplexity import perplexity_of
from nmtkit.recipe import TrainingConfig
from nmtkit.training import checkpoint
from nmtkit.training.acceleration import batch_losses
from nmtkit.training.batches import Ints, Pairs, cut, pack
from nmtkit.training.checkpoint import Best, Evaluation, Origin, Progress, Snapshot, is_over
from nmtkit.training.metrics import DIVERGED, METRICS, WHAT_HELPS, Metrics, continue_metrics
from nmtkit.training.trainer import Trainer, Work

SAVE_EVERY_S = 600.0  # or more often: a kill loses no more work; as in the paper (section 6.1)
SAVE, END = 1, 2  # what a process asks for; only the first one asks to save
MAX_SKIPPED = 5  # steps in a row without a finite loss and gradient end a run; one may be the data

Evaluate = Callable[[Transformer], dict[str, Any]]  # returns the `dev_...` of `Metrics`


def train(
    trainer: Trainer,
    dev_pairs: Pairs,
    directory: Path,
    *,
    origin: Origin | None = None,
    aside: Path,
    evaluate: Evaluate,
    report: Callable[[Metrics], None],
    say: Callable[[str], None],
    warn: Callable[[str], None],
    should_stop: Callable[[], bool],
) -> Progress:
    """Train from the last intact checkpoint on; if any process `should_stop`, all save and end."""
    config, group = trainer.config, trainer.group
    progress = _resume(trainer, directory, aside, say, warn)
    n_left = 0 if is_over(config, progress) else config.max_steps - progress.step
    saved_at = time.monotonic()

    def is_due(step: int) -> bool:
        return config.is_scheduled(step) or config.is_evaluated(step)

    def ask() -> int:
        is_time = group.is_first and time.monotonic() - saved_at >= SAVE_EVERY_S
        return END * should_stop() + SAVE * is_time

    with (
        continue_metrics(directory / METRICS, progress.step, group.is_first, warn) as metrics_file,
        ThreadPoolExecutor(1, thread_name_prefix="publish") as background,
    ):
        publishing = background.submit(lambda: None)  # of the last checkpoint
        trainer.rehearse(n_left, progress, warn)
        coming = trainer.coming(n_left, progress)
        for work, measured, asked in trainer.steps(coming, is_due, ask):
            metrics = measured
            if publishing.done():
                publishing.result()
            if group.is_first and config.is_evaluated(metrics.step):
                try:
                    metrics = replace(metrics, **_evaluated(trainer, dev_pairs, evaluate))
                except DivergedError:
                    publishing.result()
                    raise _diverged(f"evaluation after step {metrics.step:,}", directory) from None
            metrics_file.write(metrics.line())
            report(metrics)
            progress = _advanced(trainer, progress, work, metrics)
            is_last = progress.step == config.max_steps
            if progress.skipped_in_a_row >= (1 if is_last else MAX_SKIPPED):
                publishing.result()
                group.wait()  # all processes are here, and say the same of the checkpoints
                raise _diverged(f"loss or gradient up to step {progress.step:,}", directory)
            if asked is None:
                continue
            if group.is_first and (asked or config.is_scheduled(progress.step)):
                publishing.result()
                weights = [each.detach() for each in trainer.model.parameters()]
                if not torch.nn.utils.get_total_norm(weights).isfinite():
                    raise _diverged(f"weights after step {progress.step:,}", directory)
                snapshot = Snapshot.of(trainer.model, trainer.optimizer, progress)
                publishing = background.submit(_publish, snapshot, directory, origin, config)
                saved_at = time.monotonic()
            if asked >= END or is_over(config, progress):
                break
        publishing.result()
    group.wait()  # until the first process has published the last checkpoint
    return progress


def _resume(
    trainer: Trainer,
    directory: Path,
    aside: Path,
    say: Callable[[str], None],
    warn: Callable[[str], None],
) -> Progress:
    """Load the last intact checkpoint into the trainer of every process."""
    group, max_steps = trainer.group, trainer.config.max_steps
    if group.is_first:
        for sentence in checkpoint.set_damaged_aside(directory, aside):
            warn(f"train: {sentence}")
    group.wait()
    progress = checkpoint.BEGINNING
    if existing := checkpoint.checkpoints(directory):
        progress = checkpoint.load_checkpoint(existing[-1], trainer.model, trainer.optimizer)
    disk = "--runs-dir, on a shared disk,"
    group.check_same("the last checkpoint that they find", progress.step, disk)
    group.copy_first(trainer.model)
    if group.is_first:
        if progress.step:
            say(f"train: resuming after step {progress.step:,} of {max_steps:,}")
        # A kill may have come before this was done.
        checkpoint.forget_old(directory, trainer.config)
        (directory / DIVERGED).unlink(missing_ok=True)
    return progress


def _evaluated(trainer: Trainer, dev_pairs: Pairs, evaluate: Evaluate) -> dict[str, Any]:
    model, device = trainer.model, trainer.group.device
    with torch.compiler.set_stance("force_eager"):  # dev batches have many shapes
        found = perplexity(model, dev_pairs, device=device, max_tokens=trainer.max_tokens)
        return {"dev_perplexity": found, **evaluate(model)}


@torch.no_grad()
def perplexity(model: Transformer, pairs: Pairs, *, device: torch.device, max_tokens: int) -> float:
    """Return exp of the mean negative log-likelihood per subword, with end symbols (Table 3)."""
    model.eval()
    by_length: Ints = np.argsort(pairs.tgt_lengths, kind="stable")
    groups = cut(by_length, [(pairs.src_lengths, max_tokens), (pairs.tgt_lengths, max_tokens)])
    batches = (pack(pairs, chosen).to(device) for chosen in groups)
    nll = sum(batch_losses(model, batch, label_smoothing=0.0).nll.item() for batch in batches)
    if math.isnan(nll):
        raise DivergedError("the perplexity on dev is not a number")
    return perplexity_of(nll, int(pairs.tgt_lengths.sum()))


def _advanced(trainer: Trainer, progress: Progress, work: Work, metrics: Metrics) -> Progress:
    config = trainer.config
    judged: dict[str, Any] = {"best": progress.best, "ranked": progress.ranked}
    if config.is_judged(metrics.step):
        score = getattr(metrics, f"dev_{config.patience_metric or 'perplexity'}")
        judged = judge(progress, config, metrics.step, trainer.group.first(score or 0.0))
    return Progress(
        step=metrics.step,
        epoch=work.update.epoch,
        index=work.update.index + 1,
        tgt_tokens=progress.tgt_tokens + metrics.tgt_tokens,
        skipped=progress.skipped + metrics.skipped,
        skipped_in_a_row=progress.skipped_in_a_row + 1 if metrics.skipped else 0,
        **judged,
    )


def judge(progress: Progress, config: TrainingConfig, step: int, score: float) -> dict[str, Any]:
    """Return the best evaluations once there is another; of equal scores, the first is better."""
    found, best, metric = Best(step=step, score=score), progress.best, config.patience_metric
    sign = 1 if metric in (None, "perplexity") else -1
    if best and sign * score >= sign * best.score:
        found = best.model_copy(update={"n_worse": best.n_worse + 1})
    ranked = [*(progress.ranked or ()), Evaluation(step=step, score=score)]
    ranked.sort(key=lambda each: sign * each.score)
    return {
        "best": found if config.patience else None,
        "ranked": ranked[: config.keep_checkpoints] if metric else None,
    }


def _publish(new: Snapshot, directory: Path, origin: Origin | None, config: TrainingConfig) -> None:
    sync(directory / METRICS)  # it must not have fewer steps than a checkpoint
    new.publish(directory, origin)
    checkpoint.forget_old(directory, config)


def _diverged(what: str, directory: Path) -> DivergedError:
    note = f"{what}: not finite"  # all processes write the same
    (directory / DIVERGED).write_text(note, encoding="utf-8", newline="\n")
    kept = "no checkpoint was saved before"
    if checkpoint.checkpoints(directory):
        kept = f"the last good checkpoint is kept in {directory}"
    return DivergedError(f"{note}; {kept}; {WHAT_HELPS}")
