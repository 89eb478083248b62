"""The loop: micro-batches, resuming, metrics, perplexity."""

import errno
import io
import itertools
import math
import os
import random
import shutil
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from chains import Killed
from system.command import contents, environment
from torch import Tensor
from trainers import CPU, FLOAT32, N_STEPS, ONE_PROCESS, config_of, corpus, model_of, trainer_of

from nmtkit.config.recipe import TrainingConfig
from nmtkit.model.transformer import Transformer
from nmtkit.store.artifacts import publish_directory
from nmtkit.store.tensors import save_tensors
from nmtkit.training import loop
from nmtkit.training.acceleration import Acceleration
from nmtkit.training.batches import Pairs, updates
from nmtkit.training.checkpoint import (
    BestEvaluation,
    Progress,
    Snapshot,
    checkpoint_step,
    checkpoints,
    checkpoints_to_average,
    is_over,
    read_progress,
)
from nmtkit.training.distributed import Group
from nmtkit.training.loop import MAX_SKIPPED, Evaluate, TrainingLoop, perplexity
from nmtkit.training.metrics import DIVERGED, METRICS, Metrics, read_metrics
from nmtkit.training.micro_batches import Batch, micro_batches, pack
from nmtkit.training.step import learning_rate
from nmtkit.utils.errors import DivergedError, UserError


def run(
    directory: Path,
    model: Transformer,
    config: TrainingConfig,
    *,
    max_tokens: int = 75,
    pairs: Pairs | None = None,
    report: Callable[[Metrics], None] = lambda _metrics: None,
    stop_after: float = math.inf,
    group: Group = ONE_PROCESS,
    acceleration: Acceleration = FLOAT32,
    evaluate: Evaluate = lambda _model: {"dev_sacrebleu": 12.5},
    log: Callable[[str], None] = lambda _sentence: None,
    save_every_s: float = loop.SAVE_EVERY_S,
    max_queued: int = 0,
    use_bins: bool = False,
) -> Progress:
    """Train `model` with the loop of the train stage.

    Args:
        directory: Directory of the checkpoints.
        model: The model, which is changed in place.
        config: Training section of a recipe.
        max_tokens: Maximum number of tokens per side of a micro-batch.
        pairs: Training corpus; by default, `corpus()`.
        report: Called with the metrics of every step.
        stop_after: Number of the step of this run in which a stop is requested.
        group: The processes.
        acceleration: Precision and optimizations.
        evaluate: Computes the dev scores.
        log: Called with every message and warning.
        save_every_s: Maximum number of seconds between checkpoints.
        max_queued: Minimum value of the trainer's `max_queued`.
        use_bins: Train on bins, as on a GPU.
    """
    steps = iter(range(1, config.max_steps + 1))
    trainer = trainer_of(
        model,
        pairs or corpus(),
        config,
        group,
        acceleration,
        max_tokens=max_tokens,
        use_bins=use_bins,
    )
    trainer.max_queued = max(max_queued, trainer.max_queued)
    training_loop = TrainingLoop(
        trainer,
        corpus(20, seed=2),
        directory,
        aside=directory.with_suffix(".damaged"),
        evaluate=evaluate,
        report=report,
        should_stop=lambda: next(steps) >= stop_after,
    )
    with pytest.MonkeyPatch.context() as patch, redirect_stderr(io.StringIO()) as printed:
        patch.setattr(loop, "SAVE_EVERY_S", save_every_s)
        progress = training_loop.run()
    for line in printed.getvalue().split("\n")[:-1]:
        log(line)
    return progress


def losses(directory: Path) -> list[dict[str, Any]]:
    """The metrics without the seconds, which differ between runs."""
    lines = read_metrics(directory / METRICS)
    return [{key: line[key] for key in line if key != "seconds"} for line in lines]


def steps_in(directory: Path) -> list[int]:
    return [checkpoint_step(path) for path in checkpoints(directory)]


def assert_same_bits(ours: Transformer, theirs: Transformer) -> None:
    for (name, a), b in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert torch.equal(a, b), name


@dataclass(frozen=True)
class Uninterrupted:
    """A run from the first step to the last."""

    directory: Path
    model: Transformer
    progress: Progress

    def compare_with_rest_of(self, directory: Path) -> None:
        """Resume the run in `directory`, and assert that it has the results of this one."""
        # It starts with other weights, so that equal weights must come from a checkpoint.
        model = model_of(dropout=0.2, seed=77 if checkpoints(directory) else 1)
        assert run(directory, model, config_of()) == self.progress
        assert_same_bits(model, self.model)
        assert losses(directory) == losses(self.directory)
        assert [line["step"] for line in losses(directory)] == list(range(1, N_STEPS + 1))


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Uninterrupted:
    directory = tmp_path_factory.mktemp("uninterrupted")
    model = model_of(dropout=0.2)
    return Uninterrupted(directory, model, run(directory, model, config_of()))


def test_micro_batches_change_rounding_only(tmp_path: Path) -> None:
    first = next(updates(corpus(), seed=3, max_length=9, src_tokens=120, tgt_tokens=120))
    curves = {}
    for max_tokens, n_micro_batches in ((120, 1), (75, 2), (35, 5)):
        assert len(micro_batches(corpus(), first.pairs, max_tokens)) == n_micro_batches
        directory = tmp_path / str(max_tokens)
        run(directory, model_of(), config_of(max_steps=10), max_tokens=max_tokens)
        curves[n_micro_batches] = [line["loss"] for line in losses(directory)]
    assert curves[2] == pytest.approx(curves[1], abs=1e-5)
    assert curves[5] == pytest.approx(curves[1], abs=1e-5)
    assert max(curves[1]) - min(curves[1]) > 0.1  # the weights did change


@pytest.mark.parametrize("stop_after", range(1, N_STEPS))
def test_resumed_run_has_same_bits(
    tmp_path: Path, uninterrupted: Uninterrupted, stop_after: int
) -> None:
    model = model_of(dropout=0.2)
    stopped = run(tmp_path, model, config_of(), stop_after=stop_after)
    assert stopped.step == stop_after
    uninterrupted.compare_with_rest_of(tmp_path)


@pytest.mark.parametrize("max_queued", [0, 1])
@pytest.mark.parametrize("save_every_s", [0.0, math.inf])
def test_result_is_independent_of_clock(
    tmp_path: Path, save_every_s: float, max_queued: int
) -> None:
    """Also after a kill, with or without a checkpoint, and after a stop."""

    def kill(metrics: Metrics) -> None:
        if metrics.step == 7:
            raise Killed

    reference = tmp_path / "reference"
    config = config_of(max_steps=15, checkpoint_every_steps=4)
    run(reference, model_of(dropout=0.2), config)
    assert steps_in(reference) == [8, 12, 15]
    killed = tmp_path / "killed"
    resume = partial(run, save_every_s=save_every_s, max_queued=max_queued)
    with pytest.raises(Killed):
        resume(killed, model_of(dropout=0.2), config, report=kill)
    assert steps_in(killed) == ([5 - max_queued, 6] if save_every_s == 0.0 else [])
    stopped = resume(killed, model_of(dropout=0.2), config, stop_after=4)
    # A queued step is finished before the stop.
    assert stopped.step == (10 if save_every_s == 0.0 else 4 + max_queued)
    assert steps_in(killed)[-1] == stopped.step
    assert resume(killed, model_of(dropout=0.2), config).step == 15
    assert contents(killed) == contents(reference)
    assert losses(killed) == losses(reference)


def test_checkpoint_every_ten_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock advances by 100 s when it is read: once per step and per checkpoint."""
    seconds = itertools.count(step=100)
    saved: list[int] = []
    genuine = loop._publish

    def publish(snapshot: Snapshot, *arguments: Any) -> None:
        saved.append(snapshot.progress.step)
        genuine(snapshot, *arguments)

    monkeypatch.setattr(loop, "_publish", publish)
    monkeypatch.setattr(
        loop,
        "time",
        SimpleNamespace(monotonic=lambda: next(seconds), perf_counter=time.perf_counter),
    )
    run(tmp_path, model_of(), config_of(max_steps=15, checkpoint_every_steps=15))
    assert saved == [6, 12, 15]


def test_queued_step_changes_no_metrics(tmp_path: Path) -> None:
    """On a GPU, a step is queued before the metrics of the step before it are read."""
    found = []
    for max_queued in (0, 1):
        directory = tmp_path / str(max_queued)
        run(directory, model_of(dropout=0.2), config_of(dev_every_steps=3), max_queued=max_queued)
        found.append((losses(directory), contents(directory)))
    assert found[0] == found[1]


@pytest.mark.parametrize("max_queued", [0, 1])
def test_seconds_of_steps_only(tmp_path: Path, max_queued: int) -> None:
    """They do not include evaluations and checkpoints."""

    def evaluate(_model: Transformer) -> dict[str, Any]:
        time.sleep(1.0)
        return {}

    def slow_pack(*arguments: Any) -> Batch:
        time.sleep(0.05)
        return pack(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nmtkit.training.step.pack", slow_pack)
        begin = time.perf_counter()
        config = config_of(dev_every_steps=2)
        run(tmp_path, model_of(), config, evaluate=evaluate, max_queued=max_queued)
        wall = time.perf_counter() - begin
    seconds = sum(line["seconds"] for line in read_metrics(tmp_path / METRICS))
    assert 0.05 * N_STEPS < seconds < wall - 3.0


@pytest.mark.parametrize("garbage", [b"{}\n", b"{[}\n", b"\xff\0\n", b"[" * 9_999 + b"\n"])
def test_damaged_metrics_are_skipped(
    tmp_path: Path, uninterrupted: Uninterrupted, garbage: bytes
) -> None:
    shutil.copytree(uninterrupted.directory, tmp_path, dirs_exist_ok=True)
    shutil.rmtree(checkpoints(tmp_path)[-1])
    metrics = tmp_path / METRICS
    messages: list[str] = []
    first, second, *rest = metrics.read_bytes().splitlines(keepends=True)
    metrics.write_bytes(b"".join([first, second[:-9], b"\n", garbage, *rest]))
    model = model_of(dropout=0.2, seed=77)
    assert run(tmp_path, model, config_of(), log=messages.append) == uninterrupted.progress
    assert [line["step"] for line in losses(tmp_path)] == [1, 3, 4, 5]
    resuming, missing = messages
    assert f"step 4 of {N_STEPS}" in resuming
    assert str(metrics) in missing


def test_steps_while_checkpoint_is_written(
    tmp_path: Path, uninterrupted: Uninterrupted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is so slow that the next step ends first."""
    may_write = threading.Event()
    n_before: list[int] = []  # number of checkpoints before every file

    def slow(tensors: dict[str, Tensor], path: Path) -> None:
        assert may_write.wait(60)
        n_before.append(len(checkpoints(tmp_path)))
        save_tensors(tensors, path)

    def report(metrics: Metrics) -> None:
        if metrics.step % 2:
            may_write.set()
        else:
            may_write.clear()

    monkeypatch.setattr("nmtkit.training.checkpoint.save_tensors", slow)
    model = model_of(dropout=0.2)
    assert run(tmp_path, model, config_of(), report=report) == uninterrupted.progress
    assert n_before == [0, 0, 1, 1, 2, 2]  # one checkpoint after the other
    assert contents(tmp_path) == contents(uninterrupted.directory)


@pytest.mark.parametrize(("bad_step", "n_steps"), [(2, 3), (5, 5)])
def test_unwritten_checkpoint_stops_run(
    tmp_path: Path, uninterrupted: Uninterrupted, bad_step: int, n_steps: int
) -> None:
    genuine = publish_directory
    is_full = threading.Event()

    def publish(draft: Path, place: Path, *rest: Any) -> None:
        if place.name == f"step-{bad_step:08d}":
            is_full.set()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(draft))
        genuine(draft, place, *rest)

    def report(metrics: Metrics) -> None:
        if metrics.step > bad_step:
            assert is_full.wait(60)
            time.sleep(0.1)  # until the thread has ended

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nmtkit.training.checkpoint.publish_directory", publish)
        with pytest.raises(OSError, match="No space left on device"):
            run(tmp_path, model_of(dropout=0.2), config_of(), report=report)
    assert bad_step <= len(losses(tmp_path)) <= n_steps
    assert steps_in(tmp_path) == ([2, 4] if bad_step == 5 else [])
    uninterrupted.compare_with_rest_of(tmp_path)


def test_late_failure_of_checkpoint_stops_run(
    tmp_path: Path, uninterrupted: Uninterrupted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint of step 2 fails only when that of step 4 is due."""
    genuine = publish_directory
    may_fail = threading.Event()

    def publish(draft: Path, place: Path, *rest: Any) -> None:
        if place.name == "step-00000002":
            assert may_fail.wait(60)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(draft))
        genuine(draft, place, *rest)

    def report(metrics: Metrics) -> None:
        if metrics.step == 4:
            may_fail.set()

    with monkeypatch.context() as patch:
        patch.setattr("nmtkit.training.checkpoint.publish_directory", publish)
        with pytest.raises(OSError, match="No space left on device"):
            run(tmp_path, model_of(dropout=0.2), config_of(), report=report)
    assert len(losses(tmp_path)) == 4
    assert steps_in(tmp_path) == []
    uninterrupted.compare_with_rest_of(tmp_path)


def test_damaged_checkpoint_is_replaced(tmp_path: Path, uninterrupted: Uninterrupted) -> None:
    directory = tmp_path / "checkpoints"
    messages: list[str] = []
    shutil.copytree(uninterrupted.directory, directory)
    newest = checkpoints(directory)[-1]
    (newest / "optimizer.safetensors").write_bytes(b"")
    model = model_of(dropout=0.2, seed=77)
    assert run(directory, model, config_of(), log=messages.append) == uninterrupted.progress
    assert_same_bits(model, uninterrupted.model)
    assert f"{newest} is damaged ({newest}/optimizer.safetensors" in messages[0]
    assert f"step 4 of {N_STEPS}" in messages[1]
    assert steps_in(directory) == steps_in(uninterrupted.directory)


def test_rest_of_killed_run_is_deleted(tmp_path: Path, uninterrupted: Uninterrupted) -> None:
    """The run was killed after the last checkpoint, before it had deleted older ones."""
    directory = tmp_path / "checkpoints"
    shutil.copytree(uninterrupted.directory, directory)
    for suffix in (".partial", ".deleted"):
        rest = directory / f"step-00000003{suffix}"
        rest.mkdir()
        (rest / "model.safetensors").touch()
    assert run(directory, model_of(seed=77), config_of()) == uninterrupted.progress
    assert contents(directory) == contents(uninterrupted.directory)


def test_only_damaged_checkpoints_raise(tmp_path: Path, uninterrupted: Uninterrupted) -> None:
    shutil.copytree(uninterrupted.directory, tmp_path, dirs_exist_ok=True)
    for path in checkpoints(tmp_path):
        (path / "manifest.json").unlink()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    with pytest.raises(UserError, match=rf"3 checkpoints in {tmp_path}"):
        run(tmp_path, model_of(), config_of())
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_restart_is_reported(tmp_path: Path, uninterrupted: Uninterrupted) -> None:
    shutil.copyfile(uninterrupted.directory / METRICS, tmp_path / METRICS)
    messages: list[str] = []
    run(tmp_path, model_of(dropout=0.2), config_of(), log=messages.append)
    (message,) = messages
    assert f"{tmp_path} has no checkpoint" in message
    assert losses(tmp_path) == losses(uninterrupted.directory)


def test_nan_weights_are_not_saved(tmp_path: Path, uninterrupted: Uninterrupted) -> None:
    model = model_of(dropout=0.2)

    def poison(metrics: Metrics) -> None:
        if metrics.step == 3:
            with torch.no_grad():
                model.tgt_embedding.weight[5, 0] = math.nan

    with pytest.raises(UserError, match="step 4: not finite"):
        run(tmp_path, model, config_of(), report=poison)
    assert steps_in(tmp_path) == [2]
    assert [line["loss"] is None for line in losses(tmp_path)] == [False, False, False, True]
    uninterrupted.compare_with_rest_of(tmp_path)


def poison_gradients(model: Transformer, steps: range, value: float) -> None:
    """Put `value` into a gradient at some steps, with a hook that counts backward passes."""
    n_passes = itertools.count(1)  # equals the step, because an update has one micro-batch here
    weight = dict(model.named_parameters())["encoder.0.feed_forward.w1.weight"]

    def poison(gradient: Tensor) -> Tensor:
        if next(n_passes) in steps:
            gradient = gradient.clone()
            gradient[3, 2] = value
        return gradient

    weight.register_hook(poison)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nonfinite_gradient_skips_step(
    tmp_path: Path, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third step is skipped: its checkpoint equals the second one, and the fourth differs."""
    monkeypatch.setattr("nmtkit.training.checkpoint.N_WITH_MOMENTS", 4)
    config = config_of(max_steps=4, checkpoint_every_steps=1, keep_checkpoints=4)
    model = model_of(dropout=0.2)
    poison_gradients(model, range(3, 4), value)
    assert run(tmp_path, model, config, max_tokens=120).skipped == 1
    assert [line["skipped"] for line in losses(tmp_path)] == [False, False, True, False]
    assert [line["learning_rate"] for line in losses(tmp_path)] == [
        learning_rate(step, d_model=16, warmup_steps=3) for step in range(1, 5)
    ]
    _, second, third, fourth = checkpoints(tmp_path)
    for file in ("model.safetensors", "optimizer.safetensors"):
        assert (third / file).read_bytes() == (second / file).read_bytes()
        assert (fourth / file).read_bytes() != (third / file).read_bytes()


def test_nan_gradients_stop_training(
    tmp_path: Path,
) -> None:
    model = model_of()
    poison_gradients(model, range(4, 100), math.nan)
    config = config_of(max_steps=30, checkpoint_every_steps=3, keep_checkpoints=10)
    with pytest.raises(UserError, match="step 8: not finite"):
        run(tmp_path, model, config, max_tokens=120)
    assert [line["skipped"] for line in losses(tmp_path)] == [False] * 3 + [True] * MAX_SKIPPED
    third, sixth = (path / "model.safetensors" for path in checkpoints(tmp_path))
    assert third.read_bytes() == sixth.read_bytes()
    for parameter in model.parameters():
        assert parameter.isfinite().all()


@pytest.mark.parametrize("stop_after", [4, 7])
def test_skipped_steps_after_resume(tmp_path: Path, stop_after: int) -> None:
    config = config_of(max_steps=30, checkpoint_every_steps=3)
    for model, first in ((model_of(), 4), (model_of(seed=77), 1)):
        poison_gradients(model, range(first, 100), math.nan)
        if first == 4:
            run(tmp_path, model, config, max_tokens=120, stop_after=stop_after)
            assert steps_in(tmp_path)[-1] == stop_after
            continue
        with pytest.raises(DivergedError, match="step 8: not finite"):
            run(tmp_path, model, config, max_tokens=120)
    assert [line["step"] for line in losses(tmp_path)] == list(range(1, 9))


@pytest.mark.parametrize("stops", [False, True])
def test_the_last_step_is_not_skipped(tmp_path: Path, stops: bool) -> None:
    model = model_of()
    poison_gradients(model, range(5, 100), math.inf)
    with pytest.raises(DivergedError, match="step 5: not finite"):
        run(tmp_path, model, config_of(), max_tokens=120, stop_after=5 if stops else math.inf)
    assert 5 not in steps_in(tmp_path)
    assert (tmp_path / DIVERGED).exists()


def test_nan_evaluation_stops_training(tmp_path: Path) -> None:
    config = config_of(learning_rate_scale=1e18, dev_every_steps=1, checkpoint_every_steps=1)
    with pytest.raises(DivergedError, match=r"step 1\b.*learning_rate_scale"):
        run(tmp_path, model_of(), config)
    assert "step 1" in (tmp_path / DIVERGED).read_text(encoding="utf-8")
    run(tmp_path, model_of(seed=77), config_of(dev_every_steps=1))
    assert not (tmp_path / DIVERGED).exists()


@pytest.mark.parametrize("is_evaluation", [False, True])
def test_divergence_while_checkpoint_is_written(
    tmp_path: Path, is_evaluation: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint of step 5 is finished, and the message about step 6 mentions it."""
    genuine = loop._publish

    def slow_publish(*arguments: Any) -> None:
        time.sleep(0.5)
        genuine(*arguments)

    def diverge(_model: Transformer) -> dict[str, Any]:
        raise DivergedError("the perplexity on dev is not a number")

    monkeypatch.setattr(loop, "_publish", slow_publish)
    config = config_of(max_steps=30, checkpoint_every_steps=5, keep_checkpoints=9)
    model = model_of()
    if is_evaluation:
        config = config.model_copy(update={"dev_every_steps": 6})
    else:
        poison_gradients(model, range(7 - MAX_SKIPPED, 100), math.nan)
    message = f"step 6: not finite; the last good checkpoint is kept in {tmp_path}"
    with pytest.raises(DivergedError, match=message):
        run(tmp_path, model, config, max_tokens=120, evaluate=diverge)
    assert steps_in(tmp_path) == [5]


def test_evaluation_of_last_step_is_not_ranked(tmp_path: Path) -> None:
    """Otherwise a longer training that resumes here would differ from an uninterrupted one."""
    config = config_of(dev_every_steps=2, patience_metric="chrf")
    progress = run(tmp_path, model_of(), config, evaluate=drawn_scores)
    assert progress.best is None
    assert progress.ranked is not None
    assert sorted(evaluation.step for evaluation in progress.ranked) == [2, 4]
    assert losses(tmp_path)[-1]["dev_chrf"] is not None


def test_best_checkpoint_of_skipped_step(tmp_path: Path) -> None:
    model = model_of()
    poison_gradients(model, range(2, 3), math.nan)
    perplexities = iter([2.0, 2.0, 5.0, 6.0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "perplexity", lambda *_, **__: next(perplexities))
        config = config_of(max_steps=20, dev_every_steps=2, patience=2, keep_checkpoints=9)
        progress = run(tmp_path, model, config, max_tokens=120)
    assert progress.best == BestEvaluation(step=2, score=2.0, n_worse=2)
    assert [checkpoint_step(path) for path in checkpoints_to_average(tmp_path, config, 9)] == [2]


def test_metrics_of_steps(tmp_path: Path) -> None:
    reported: list[Metrics] = []
    progress = run(tmp_path, model_of(), config_of(), report=reported.append)
    assert [vars(metrics) for metrics in reported] == read_metrics(tmp_path / METRICS)
    source = updates(corpus(), seed=3, max_length=9, src_tokens=120, tgt_tokens=120)
    for step, (metrics, update) in enumerate(zip(reported, source, strict=False), start=1):
        assert (metrics.step, metrics.epoch) == (step, update.epoch)
        assert metrics.learning_rate == learning_rate(step, d_model=16, warmup_steps=3)
        assert metrics.src_tokens == corpus().src_lengths[update.pairs].sum()
        assert metrics.tgt_tokens == corpus().tgt_lengths[update.pairs].sum()
    assert progress.tgt_tokens == sum(metrics.tgt_tokens for metrics in reported)
    assert len({metrics.epoch for metrics in reported}) > 1  # the corpus was read more than once


def test_evaluation_changes_nothing(tmp_path: Path) -> None:
    def evaluate(model: Transformer) -> dict[str, Any]:
        model.eval()
        score = torch.rand(7).sum().item()
        return {"dev_sacrebleu": score, "dev_sacrebleu_how": "random"}

    without = model_of(dropout=0.2)
    with_dev = model_of(dropout=0.2)
    run(tmp_path / "without", without, config_of())
    run(tmp_path / "with", with_dev, config_of(dev_every_steps=2), evaluate=evaluate)
    assert_same_bits(with_dev, without)
    due = [line["step"] for line in losses(tmp_path / "with") if line["dev_perplexity"]]
    assert due == [2, 4, N_STEPS]
    scored = [line["step"] for line in losses(tmp_path / "with") if line["dev_sacrebleu"]]
    assert scored == due
    assert losses(tmp_path / "with")[-1]["dev_sacrebleu_how"] == "random"
    last = losses(tmp_path / "with")[-1]["dev_perplexity"]
    assert last == perplexity(with_dev, corpus(20, seed=2), device=CPU, max_tokens=75)
    assert losses(tmp_path / "without")[-1]["dev_perplexity"] == last


LONG = config_of(max_steps=150, checkpoint_every_steps=7)
DRIVER = """
import sys
from pathlib import Path
import test_loop
import trainers
model, save_every_s = trainers.model_of(dropout=0.2), float(sys.argv[2])
test_loop.run(Path(sys.argv[1]), model, test_loop.LONG, save_every_s=save_every_s)
"""


def start_training(directory: Path, save_every_s: float = 0.2) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", DRIVER, str(directory), str(save_every_s)]
    return subprocess.Popen(command, env=environment(PYTHONPATH=os.pathsep.join(sys.path)))


@pytest.mark.slow
def test_killed_run_has_same_bits(
    tmp_path: Path,
) -> None:
    assert start_training(tmp_path / "uninterrupted", math.inf).wait() == 0
    killed = tmp_path / "killed"
    metrics = tmp_path / "killed" / METRICS
    chance = random.Random()
    for n_lines in (10, 80):
        process = start_training(killed)
        while len(read_metrics(metrics)) < n_lines and process.poll() is None:
            time.sleep(0.002)
        time.sleep(chance.uniform(0, 0.05))
        process.kill()
        assert process.wait() < 0  # it was still running
    assert start_training(killed).wait() == 0
    assert losses(killed) == losses(tmp_path / "uninterrupted")
    assert steps_in(killed) == [140, 147, 150]
    assert contents(killed) == contents(tmp_path / "uninterrupted")


# Early stopping

EVERY = 2
PATIENCE = 2
KEPT = 2
PATIENT = {
    "max_steps": 14,
    "dev_every_steps": EVERY,
    "checkpoint_every_steps": EVERY // 2,
    "keep_checkpoints": KEPT,
}


def drawn_score(model: Transformer, *_: object, **__: object) -> float:
    """A pseudo-random score that depends only on the weights, so that resuming reproduces it."""
    weights = b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters())
    return 2.0 + zlib.crc32(weights) / 2**32


def drawn_scores(model: Transformer) -> dict[str, Any]:
    return {"dev_sacrebleu": 12.5, "dev_chrf": 7 * drawn_score(model)}


def ranks(scores: dict[int, float], metric: str | None) -> list[int]:
    """The steps of evaluations, best first."""
    return sorted(scores, key=lambda step: -scores[step] if metric else scores[step])


def early_end(scores: dict[int, float], metric: str | None) -> tuple[int, int] | None:
    """The best step and the step of the early stop, by comparing every evaluation with all before.

    None if training is not stopped early.
    """
    for step in scores:
        earlier = {other: score for other, score in scores.items() if other <= step}
        best = ranks(earlier, metric)[0]
        if (step - best) // EVERY == PATIENCE:
            return best, step
    return None


@dataclass(frozen=True)
class Early:
    """A run with early stopping, and its expected results from a run without."""

    directory: Path
    without: Path
    config: TrainingConfig
    best: int
    last: int
    scores: dict[int, float]  # by step, including steps after the stop


@pytest.fixture(scope="module", params=[None, "chrf"])
def early(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Early:
    directory = tmp_path_factory.mktemp("early")
    metric = request.param
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "perplexity", drawn_score)
        for seed in itertools.count(1):  # until the best evaluation is neither the first nor last
            without = tmp_path_factory.mktemp("without")
            config = config_of(**PATIENT, seed=seed)
            run(without, model_of(dropout=0.2), config, evaluate=drawn_scores)
            evaluated = losses(without)[EVERY - 1 :: EVERY]
            scores = {line["step"]: line[f"dev_{metric or 'perplexity'}"] for line in evaluated}
            ends = early_end(scores, metric)
            if ends and ends[0] > EVERY:
                break
        assert ends
        stopping = {"patience": PATIENCE, "patience_metric": metric}
        config = config_of(**PATIENT, seed=seed, **stopping)
        run(directory, model_of(dropout=0.2), config, evaluate=drawn_scores)
    return Early(directory, without, config, *ends, scores)


def test_early_stopping(early: Early) -> None:
    assert losses(early.directory) == losses(early.without)[: early.last]
    newest = read_progress(checkpoints(early.directory)[-1])
    assert newest.step == early.last
    assert newest.best == BestEvaluation(
        step=early.best, score=early.scores[early.best], n_worse=PATIENCE
    )


def test_early_stop_keeps_best(early: Early) -> None:
    config = early.config
    kept = [early.best - 1, early.best, early.last - 1, early.last]
    metric = config.patience_metric
    scores = {step: score for step, score in early.scores.items() if step <= early.last}
    best = sorted(ranks(scores, metric)[:KEPT]) if metric else []
    assert steps_in(early.directory) == sorted({*kept, *best})
    chosen = checkpoints_to_average(early.directory, config, KEPT, "best")
    assert [checkpoint_step(path) for path in chosen] == best
    for n_checkpoints, steps in ((KEPT, kept[:2]), (1, kept[1:2])):
        averaged = checkpoints_to_average(early.directory, config, n_checkpoints)
        assert [checkpoint_step(path) for path in averaged] == steps
    averaged = checkpoints_to_average(early.without, config_of(**PATIENT), 2)
    assert [checkpoint_step(path) for path in averaged] == [13, 14]


@pytest.mark.parametrize("after_best", [-1, 0, PATIENCE * EVERY - 1])
def test_early_stop_of_resumed_run(
    early: Early, after_best: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "perplexity", drawn_score)
    config = early.config
    stop_after = early.best + after_best
    model = model_of(dropout=0.2)
    stopped = run(tmp_path, model, config, stop_after=stop_after, evaluate=drawn_scores)
    assert not is_over(config, stopped)
    model = model_of(dropout=0.2, seed=77)
    progress = run(tmp_path, model, config, evaluate=drawn_scores)
    assert is_over(config, progress)
    # Nothing is left to do, as after a kill between the last checkpoint and publication.
    model = model_of(dropout=0.2, seed=77)
    assert run(tmp_path, model, config, evaluate=drawn_scores) == progress
    assert losses(tmp_path) == losses(early.directory)
    assert contents(tmp_path) == contents(early.directory)
