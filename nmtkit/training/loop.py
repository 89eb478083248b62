"""The training loop (section 5): updates, schedule, checkpoints, dev perplexity."""

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from nmtkit.errors import UserError
from nmtkit.model.transformer import Transformer
from nmtkit.recipe import TrainingConfig
from nmtkit.training.batches import Batch, Ints, Pairs, Update, cut, micro_batches, pack, updates
from nmtkit.training.checkpoint import (
    Progress,
    checkpoints,
    forget_old,
    load_checkpoint,
    save_checkpoint,
)
from nmtkit.training.loss import smoothed_cross_entropy
from nmtkit.training.schedule import learning_rate

METRICS = "metrics.jsonl"


@dataclass(frozen=True)
class Metrics:
    """What one line of `metrics.jsonl` tells; losses are per target token, in nats."""

    step: int
    epoch: int
    loss: float  # label-smoothed
    nll: float  # not smoothed
    learning_rate: float
    src_tokens: int
    tgt_tokens: int
    seconds: float  # of this step
    dev_perplexity: float | None = None


def train(
    model: Transformer,
    train_pairs: Pairs,
    dev_pairs: Pairs,
    config: TrainingConfig,
    *,
    directory: Path,
    device: torch.device,
    max_tokens: int,
    report: Callable[[Metrics], None],
    should_stop: Callable[[], bool],
) -> Progress:
    """Train `model` up to `config.max_steps`, from the last checkpoint in `directory` on.

    Args:
        max_tokens: most tokens a side of a micro-batch; it changes memory and speed, and the result
            by rounding alone.
        should_stop: asked after each step; if it says so, a checkpoint is written and the loop ends
            early.

    Raises:
        UserError: the loss is no longer a number.
    """
    torch.manual_seed(config.seed)
    optimizer = torch.optim.Adam(
        model.parameters(),
        betas=(config.adam_beta1, config.adam_beta2),
        eps=config.adam_epsilon,
        fused=True,
    )
    progress = _resume(directory, model, optimizer)
    forget_old(directory, config.keep_checkpoints)  # a kill may have come before it
    source = updates(
        train_pairs,
        seed=config.seed,
        max_length=model.config.max_positions,
        src_tokens=config.src_tokens_per_update,
        tgt_tokens=config.tgt_tokens_per_update,
        epoch=progress.epoch,
        index=progress.index,
    )
    last_saved = time.monotonic()
    with _metrics_file(directory / METRICS, progress.step) as metrics_file:
        while progress.step < config.max_steps:
            update = next(source)
            metrics = train_step(
                model,
                optimizer,
                train_pairs,
                update,
                config,
                step=progress.step + 1,
                device=device,
                max_tokens=max_tokens,
            )
            if not math.isfinite(metrics.loss):
                raise UserError(
                    f"the loss of step {metrics.step} is {metrics.loss}; the last good checkpoint "
                    f"is kept in {directory}; lower [training] learning_rate_scale or raise "
                    "warmup_steps"
                )
            is_last = metrics.step == config.max_steps
            if is_last or _is_due(config.dev_every_steps, metrics.step):
                metrics = _with_dev_perplexity(metrics, model, dev_pairs, device, max_tokens)
            metrics_file.write(json.dumps(vars(metrics)) + "\n")
            report(metrics)
            stopping = should_stop()
            minutes = (time.monotonic() - last_saved) / 60
            by_clock = 0 < config.checkpoint_every_minutes <= minutes
            scheduled = is_last or by_clock or _is_due(config.checkpoint_every_steps, metrics.step)
            progress = Progress(
                metrics.step,
                update.epoch,
                update.index + 1,
                progress.tgt_tokens + metrics.tgt_tokens,
                scheduled,
            )
            if scheduled or stopping:
                metrics_file.flush()
                save_checkpoint(directory, model, optimizer, progress)
                forget_old(directory, config.keep_checkpoints)
                last_saved = time.monotonic()
            if stopping:
                break
    return progress


def train_step(
    model: Transformer,
    optimizer: torch.optim.Adam,
    pairs: Pairs,
    update: Update,
    config: TrainingConfig,
    *,
    step: int,
    device: torch.device,
    max_tokens: int,
) -> Metrics:
    """Make one update: the gradient of its loss per target token, then Adam's step."""
    begin = time.perf_counter()
    model.train()
    rate = learning_rate(
        step,
        d_model=model.config.d_model,
        warmup_steps=config.warmup_steps,
        scale=config.learning_rate_scale,
    )
    for group in optimizer.param_groups:
        group["lr"] = rate
    src_tokens = int(pairs.src_lengths[update.pairs].sum())
    tgt_tokens = int(pairs.tgt_lengths[update.pairs].sum())
    optimizer.zero_grad(set_to_none=True)
    loss = nll = 0.0
    for micro_step, chosen in enumerate(micro_batches(pairs, update.pairs, max_tokens)):
        _seed_dropout(config.seed, step, micro_step)
        losses = batch_losses(model, pack(pairs, chosen).to(device), config.label_smoothing)
        (losses[0] / tgt_tokens).backward()  # type: ignore[no-untyped-call]
        loss += losses[0].item()
        nll += losses[1].item()
    if math.isfinite(loss):
        optimizer.step()
    return Metrics(
        step,
        update.epoch,
        loss / tgt_tokens,
        nll / tgt_tokens,
        rate,
        src_tokens,
        tgt_tokens,
        time.perf_counter() - begin,
    )


def batch_losses(model: Transformer, batch: Batch, label_smoothing: float) -> tuple[Tensor, Tensor]:
    """The smoothed loss and the negative log-likelihood of a batch, sums over its target tokens."""
    hidden = model(batch.src, batch.src_layout, batch.tgt_in, batch.tgt_layout)
    return smoothed_cross_entropy(hidden, model.output_matrix, batch.tgt_out, label_smoothing)


@torch.no_grad()
def perplexity(model: Transformer, pairs: Pairs, *, device: torch.device, max_tokens: int) -> float:
    """exp of the mean negative log-likelihood per subword (Table 3).

    End symbols are counted; nothing is smoothed.
    """
    model.eval()
    by_length: Ints = np.argsort(pairs.tgt_lengths, kind="stable")
    groups = cut(by_length, [(pairs.src_lengths, max_tokens), (pairs.tgt_lengths, max_tokens)])
    nll = sum(
        batch_losses(model, pack(pairs, chosen).to(device), 0.0)[1].item() for chosen in groups
    )
    return math.exp(min(nll / int(pairs.tgt_lengths.sum()), 700.0))


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of `metrics.jsonl`; a line that a kill cut short is left out."""
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]


def _with_dev_perplexity(
    metrics: Metrics, model: Transformer, dev_pairs: Pairs, device: torch.device, max_tokens: int
) -> Metrics:
    dev = perplexity(model, dev_pairs, device=device, max_tokens=max_tokens)
    return Metrics(**{**vars(metrics), "dev_perplexity": dev})


def _resume(directory: Path, model: Transformer, optimizer: torch.optim.Adam) -> Progress:
    existing: Sequence[Path] = checkpoints(directory)
    if not existing:
        return Progress(step=0, epoch=0, index=0, tgt_tokens=0, scheduled=False)
    return load_checkpoint(existing[-1], model, optimizer)


def _is_due(every: int, step: int) -> bool:
    return every > 0 and step % every == 0


def _seed_dropout(seed: int, step: int, micro_step: int) -> None:
    """Make dropout a function of where training is, so that a resumed run needs no random state."""
    mixed = np.random.SeedSequence([seed, step, micro_step]).generate_state(1, np.uint64)
    torch.manual_seed(int(mixed[0]) % 2**63)


@contextmanager
def _metrics_file(path: Path, step: int) -> Iterator[IO[str]]:
    """Open `metrics.jsonl` after `step`; lines of later steps, whose work was lost, are dropped."""
    kept = [json.dumps(line) + "\n" for line in read_metrics(path) if line["step"] <= step]
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".partial")
    draft.write_text("".join(kept), encoding="utf-8", newline="\n")
    draft.replace(path)  # at once, so that a kill can't lose the lines of the steps that are done
    with path.open("a", encoding="utf-8", newline="\n", buffering=1) as file:
        yield file
