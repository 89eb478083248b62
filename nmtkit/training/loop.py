"""The training loop (section 5): updates, schedule, checkpoints, dev perplexity."""

import json
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Annotated, Any

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nmtkit import artifacts
from nmtkit.errors import UserError
from nmtkit.model.transformer import Transformer
from nmtkit.recipe import TrainingConfig
from nmtkit.training.acceleration import Acceleration, Backward, batch_losses
from nmtkit.training.batches import (
    Ints,
    Pairs,
    cut,
    hardest_micro_batch,
    pack,
    updates,
)
from nmtkit.training.checkpoint import (
    Progress,
    checkpoints,
    forget_old,
    load_checkpoint,
    save_checkpoint,
    set_damaged_aside,
)
from nmtkit.training.distributed import GradientSums, Group
from nmtkit.training.schedule import learning_rate
from nmtkit.training.work import Work, ahead, work_of

METRICS = "metrics.jsonl"
# Steps without a finite loss and gradient, one after the other, that end a run: one may be a freak
# of the data, and the next steps have other data.
MAX_SKIPPED = 5
PROBED_UPDATES = 5_000  # bounds the planning; a longer run holds few harder micro-batches


@dataclass(frozen=True)
class DevScore:
    """A BLEU of the dev set, and how it was counted and of what."""

    sacrebleu: float
    how: str


@dataclass(frozen=True)
class Metrics:
    """What one line of `metrics.jsonl` tells; losses are per target token, in nats."""

    step: int
    epoch: int
    loss: float  # label-smoothed
    nll: float  # not smoothed
    gradient_norm: float
    skipped: bool  # because the loss or the gradient is not finite: no weight and no moment changed
    learning_rate: float
    src_tokens: int
    tgt_tokens: int
    seconds: float  # of this step
    dev_perplexity: float | None = None
    dev_sacrebleu: float | None = None
    dev_sacrebleu_how: str | None = None

    def line(self) -> str:
        """It as JSON, which knows no number that is not finite: null."""
        values = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in vars(self).items()
        }
        return json.dumps(values) + "\n"


def train(
    model: Transformer,
    train_pairs: Pairs,
    dev_pairs: Pairs,
    config: TrainingConfig,
    *,
    directory: Path,
    aside: Path,
    group: Group,
    max_tokens: int,
    acceleration: Acceleration,
    evaluate: Callable[[Transformer], DevScore],
    report: Callable[[Metrics], None],
    say: Callable[[str], None],
    should_stop: Callable[[], bool],
) -> Progress:
    """Train `model` up to `config.max_steps`, from the last whole checkpoint in `directory` on.

    The first process of the group alone writes, evaluates and reports.

    Args:
        aside: the folder that newer checkpoints are moved to, which are damaged.
        max_tokens: most tokens a side of a micro-batch; it changes memory and speed, and the result
            by rounding alone.
        acceleration: how gradients are computed; it changes the result by rounding alone.
        evaluate: asked at dev steps; it must leave the weights alone.
        say: told what happened to files of an earlier run, a sentence each.
        should_stop: asked after each step; if it says so to one process, a checkpoint is written
            and the loop ends early for all.

    Raises:
        UserError: loss or gradient are no longer numbers; processes see different folders; there
            are checkpoints and none is whole.
    """
    torch.manual_seed(config.seed)
    optimizer = torch.optim.Adam(
        model.parameters(),
        betas=(config.adam_beta1, config.adam_beta2),
        eps=config.adam_epsilon,
        fused=True,
    )
    if group.is_first:
        for sentence in set_damaged_aside(directory, aside):
            say(f"train: {sentence}")
    group.wait()
    progress = _resume(directory, model, optimizer, config.max_steps)
    group.check_same("the last checkpoint that they find", progress.step)
    if group.is_first and progress.step:
        say(f"train: resuming after step {progress.step:,} of {config.max_steps:,}")
    group.copy_first(model)
    gradients = GradientSums(model, group)
    backward = Backward(model, config.label_smoothing, acceleration)
    capacity = acceleration.capacity(max_tokens, model.config.max_positions)
    if group.is_first:
        forget_old(directory, config.keep_checkpoints)  # a kill may have come before it
    source = partial(
        updates,
        train_pairs,
        seed=config.seed,
        max_length=model.config.max_positions,
        src_tokens=config.src_tokens_per_update,
        tgt_tokens=config.tgt_tokens_per_update,
        like_lengths=config.batches == "like-length",
        epoch=progress.epoch,
        index=progress.index,
    )
    n_left = config.max_steps - progress.step
    n_skipped = 0  # in a row
    last_saved = time.monotonic()
    with _metrics_file(directory / METRICS, progress.step, group, say) as metrics_file:
        probed = islice(source(), min(n_left, PROBED_UPDATES))
        hardest = hardest_micro_batch(train_pairs, probed, max_tokens, capacity)
        if len(hardest):  # tried, and its gradient dropped; a graph is captured here
            model.train()
            backward.add(pack(train_pairs, hardest, capacity).to(group.device), 0.0)
        make = partial(work_of, train_pairs, group, max_tokens=max_tokens, capacity=capacity)
        for work in ahead(islice(source(), n_left), make):
            metrics = train_step(
                model, optimizer, gradients, backward, work, config, step=progress.step + 1
            )
            is_last = metrics.step == config.max_steps
            if group.is_first and (is_last or _is_due(config.dev_every_steps, metrics.step)):
                metrics = _evaluated(metrics, model, dev_pairs, group, max_tokens, evaluate)
            metrics_file.write(metrics.line())
            report(metrics)
            n_skipped = n_skipped + 1 if metrics.skipped else 0
            if n_skipped == MAX_SKIPPED:
                first = metrics.step - n_skipped + 1
                raise _diverged(
                    f"loss or gradient of steps {first:,} to {metrics.step:,}", directory
                )
            stopping = group.any(should_stop())
            minutes = (time.monotonic() - last_saved) / 60
            by_clock = 0 < config.checkpoint_every_minutes <= minutes
            is_due = by_clock or _is_due(config.checkpoint_every_steps, metrics.step)
            progress = Progress(
                step=metrics.step,
                epoch=work.update.epoch,
                index=work.update.index + 1,
                tgt_tokens=progress.tgt_tokens + metrics.tgt_tokens,
                scheduled=is_last or is_due,
                skipped=progress.skipped + metrics.skipped,
            )
            if group.is_first and (progress.scheduled or stopping):
                artifacts.sync(directory / METRICS)  # a checkpoint never knows more steps than this
                _check_weights(model, metrics.step, directory)
                save_checkpoint(directory, model, optimizer, progress)
                forget_old(directory, config.keep_checkpoints)
                last_saved = time.monotonic()
            if stopping:
                break
    return progress


def train_step(
    model: Transformer,
    optimizer: torch.optim.Adam,
    gradients: GradientSums,
    backward: Backward,
    work: Work,
    config: TrainingConfig,
    *,
    step: int,
) -> Metrics:
    """Make one update: the gradient of its loss per target token, then Adam's step."""
    begin = time.perf_counter()
    group = gradients.group
    model.train()
    rate = learning_rate(
        step,
        d_model=model.config.d_model,
        warmup_steps=config.warmup_steps,
        scale=config.learning_rate_scale,
    )
    for parameters in optimizer.param_groups:
        parameters["lr"] = rate
    gradients.clear()
    sums = torch.zeros(2, dtype=torch.float64, device=group.device)  # smoothed loss, nll
    for n_done, (micro_step, batch) in enumerate(work.batches, start=1):
        _seed_dropout(config.seed, step, micro_step)
        if n_done == len(work.batches):
            gradients.send_as_they_come()
        sums += backward.add(batch, 1 / work.tgt_tokens)
    gradients.finish()
    group.sum_(sums)
    norm = gradients.norm()
    # Adam's own switch, made for mixed precision: where it is 1, weights, moments and the count of
    # Adam's steps stay as they are. The device decides, so that it need not wait for the host.
    is_bad = ~(norm.isfinite() & sums.isfinite().all())
    optimizer.found_inf = is_bad.float()  # type: ignore[attr-defined]
    optimizer.step()
    loss, nll, gradient_norm, skipped = torch.stack([*sums, norm.double(), is_bad]).tolist()
    return Metrics(
        step,
        work.update.epoch,
        loss / work.tgt_tokens,
        nll / work.tgt_tokens,
        gradient_norm,
        bool(skipped),
        rate,
        work.src_tokens,
        work.tgt_tokens,
        time.perf_counter() - begin,
    )


def _check_weights(model: Transformer, step: int, directory: Path) -> None:
    """Keep what is no model from pushing out the checkpoints of one."""
    norm = torch.nn.utils.get_total_norm(parameter.detach() for parameter in model.parameters())
    if not norm.isfinite():
        raise _diverged(f"weights after step {step:,}", directory)


def _diverged(what: str, directory: Path) -> UserError:
    return UserError(
        f"{what}: not finite; the last good checkpoint is kept in {directory}; lower [training] "
        "learning_rate_scale or raise warmup_steps"
    )


@contextmanager
def enough_memory(device: torch.device, max_tokens: int) -> Iterator[None]:
    """Say what to do about memory.

    Raises:
        UserError: the device has too little for the model and micro-batches of `max_tokens` a side.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        # torch raises an error of its own for a GPU alone.
        if isinstance(error, RuntimeError) and not (
            isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)
        ):
            raise
        raise UserError(
            f"{device} has too little memory for this model and micro-batches of {max_tokens:,} "
            f"tokens a side; say --max-tokens {max_tokens // 2}, which changes the result by "
            "rounding alone, or choose a smaller [model]"
        ) from None


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


class _Line(BaseModel):
    """What is counted on in a line of `metrics.jsonl`, which no hash guards."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)

    step: Annotated[int, Field(gt=0)]
    skipped: bool
    src_tokens: Annotated[int, Field(gt=0)]
    tgt_tokens: Annotated[int, Field(gt=0)]
    seconds: Annotated[float, Field(ge=0)]


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of `metrics.jsonl`, by step; what a kill cut short or else is none is left out."""
    if not path.is_file():
        return []
    found = {}
    for line in path.read_bytes().split(b"\n"):
        with suppress(ValidationError):
            step = _Line.model_validate_json(line).step
            found[step] = json.loads(line)
    return [found[step] for step in sorted(found)]


def _evaluated(
    metrics: Metrics,
    model: Transformer,
    dev_pairs: Pairs,
    group: Group,
    max_tokens: int,
    evaluate: Callable[[Transformer], DevScore],
) -> Metrics:
    with torch.compiler.set_stance("force_eager"):  # dev sentences come in all shapes
        score = evaluate(model)
        dev_perplexity = perplexity(model, dev_pairs, device=group.device, max_tokens=max_tokens)
    return replace(
        metrics,
        dev_perplexity=dev_perplexity,
        dev_sacrebleu=score.sacrebleu,
        dev_sacrebleu_how=score.how,
    )


def _resume(
    directory: Path, model: Transformer, optimizer: torch.optim.Adam, max_steps: int
) -> Progress:
    existing = checkpoints(directory)
    if not existing:
        return Progress(step=0, epoch=0, index=0, tgt_tokens=0, scheduled=False)
    progress = load_checkpoint(existing[-1], model, optimizer)
    if progress.step > max_steps:
        raise UserError(
            f"{existing[-1]} is of more steps than the {max_steps:,} of [training] max_steps; "
            f"delete {directory} to train from the first step"
        )
    return progress


def _is_due(every: int, step: int) -> bool:
    return every > 0 and step % every == 0


def _seed_dropout(seed: int, step: int, micro_step: int) -> None:
    """Make dropout a function of where training is, so that a resumed run needs no random state."""
    mixed = np.random.SeedSequence([seed, step, micro_step]).generate_state(1, np.uint64)
    torch.manual_seed(int(mixed[0]) % 2**63)


@contextmanager
def _metrics_file(
    path: Path, step: int, group: Group, say: Callable[[str], None]
) -> Iterator[IO[str]]:
    """Open `metrics.jsonl` after `step`; lines of later steps, whose work was lost, are dropped.

    What processes other than the first write goes nowhere.
    """
    if not group.is_first:
        with Path(os.devnull).open("w", encoding="utf-8", newline="\n") as nowhere:
            yield nowhere
        return
    found = read_metrics(path)
    kept = [line for line in found if line["step"] <= step]
    if found and not step:
        say(
            f"train: step {found[-1]['step']:,} was reached and no checkpoint is in {path.parent}; "
            "training begins at the first step"
        )
    if len(kept) < step:
        say(f"train: {path} tells of {len(kept):,} of {step:,} steps; the others are not measured")
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".partial")
    draft.write_text(
        "".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8", newline="\n"
    )
    artifacts.replace_file(draft, path)  # so that a kill can't lose the lines of steps that count
    with path.open("a", encoding="utf-8", newline="\n", buffering=1) as file:
        yield file
