"""train: from a prepared corpus to checkpoints (section 5)."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from nmtkit import artifacts, progress
from nmtkit.artifacts import Artifact
from nmtkit.corpus.store import Ids
from nmtkit.errors import Stopped
from nmtkit.model.transformer import Transformer
from nmtkit.stages.chain import Chain
from nmtkit.training.batches import Pairs
from nmtkit.training.loop import METRICS, Metrics, read_metrics, train

CHECKPOINTS = "checkpoints"
MODEL = "model.json"


def run(chain: Chain) -> Artifact:
    """Publish the checkpoints of the recipe; what a stopped run left is gone on with."""
    return chain.make("train", lambda draft: _train(chain, draft), resume=True)


def open_pairs(prepared: Path, split: str) -> Pairs:
    """The token ids of a split."""
    src, tgt = (Ids.open(prepared / f"{split}.{side}") for side in ("src", "tgt"))
    return Pairs(src.ids, src.offsets, tgt.ids, tgt.offsets)


def _train(chain: Chain, draft: Path) -> dict[str, Any]:
    recipe, machine = chain.recipe, chain.machine
    prepared = artifacts.verify(chain.need("prepare")).path
    device = machine.torch_device()
    n_rows = recipe.model.rows_for(artifacts.read_json(prepared / "counts.json")["vocabulary"])
    torch.manual_seed(recipe.training.seed)
    model = Transformer(recipe.model, n_rows).to(device)
    artifacts.write_json(draft / MODEL, {"config": recipe.section("model"), "n_rows": n_rows})
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    progress.say(
        f"train: {n_parameters:,} parameters on {device}, "
        f"{machine.tokens_per_micro_batch(device):,} tokens a side of a micro-batch"
    )
    max_steps = recipe.training.max_steps
    if (draft / METRICS).exists():  # of a run that was killed between its last step and publishing
        (draft / METRICS).rename(draft / CHECKPOINTS / METRICS)
    with _stop_signals() as signals, progress.task("train", unit="steps", total=max_steps) as task:
        speed = _Speed()

        def report(metrics: Metrics) -> None:
            if metrics.dev_perplexity is not None:
                progress.say(
                    f"train: step {metrics.step:,}: dev perplexity {metrics.dev_perplexity:.2f}"
                )
            task.note(
                f"loss {metrics.loss:.3f}, learning rate {metrics.learning_rate:.2e}, "
                f"{speed.after(metrics):,.0f} target tokens/s"
            )
            task.advance(metrics.step if speed.n_steps == 1 else 1)

        done = train(
            model,
            open_pairs(prepared, "train"),
            open_pairs(prepared, "dev"),
            recipe.training,
            directory=draft / CHECKPOINTS,
            device=device,
            max_tokens=machine.tokens_per_micro_batch(device),
            report=report,
            should_stop=lambda: bool(signals),
        )
    if signals:
        raise Stopped(
            f"stopped by {signal.Signals(signals[0]).name} after step {done.step:,} of "
            f"{max_steps:,}, which is saved; the same command goes on from there",
            exit_code=128 + signals[0],
        )
    (draft / CHECKPOINTS / METRICS).rename(draft / METRICS)
    return _cost(draft / METRICS, str(device))


class _Speed:
    """Target tokens a second, smoothed over the last steps."""

    def __init__(self) -> None:
        self.n_steps = 0
        self._tokens = self._seconds = 0.0

    def after(self, metrics: Metrics) -> float:
        self.n_steps += 1
        self._tokens = 0.95 * self._tokens + metrics.tgt_tokens
        self._seconds = 0.95 * self._seconds + metrics.seconds
        return self._tokens / self._seconds


def _cost(metrics_path: Path, device: str) -> dict[str, Any]:
    lines = read_metrics(metrics_path)
    seconds = sum(line["seconds"] for line in lines)
    tgt_tokens = sum(line["tgt_tokens"] for line in lines)
    return {
        "device": device,
        "threads": torch.get_num_threads(),
        "steps": len(lines),
        "step_seconds": round(seconds, 3),
        "src_tokens": sum(line["src_tokens"] for line in lines),
        "tgt_tokens": tgt_tokens,
        "tgt_tokens_per_second": round(tgt_tokens / seconds, 1),
    }


@contextmanager
def _stop_signals() -> Iterator[list[int]]:
    """Collect SIGTERM and SIGINT instead of dying of the first; a second one acts at once."""
    received: list[int] = []
    handled = (signal.SIGTERM, signal.SIGINT)

    def remember(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        for each in handled:
            signal.signal(each, before[each])
        progress.say("train: finishing this step, then saving; once more stops at once")

    before = {each: signal.signal(each, remember) for each in handled}
    try:
        yield received
    finally:
        for each in handled:
            signal.signal(each, before[each])
