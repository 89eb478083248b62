"""`metrics.jsonl`: the measurements of a training, one line per step."""

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import IO, Any

from nmtkit.store.artifacts import verify_measured
from nmtkit.store.files import write_whole
from nmtkit.store.records import DamagedError
from nmtkit.utils import progress

CHECKPOINTS = "checkpoints"  # their folder in the artifact of `train`
METRICS = "metrics.jsonl"
DIVERGED = "diverged.txt"  # next to the checkpoints after training diverged, until it is retried
PAGE = ".html"  # suffix of the page of curves, next to the artifact and not part of it
COUNTS = ("step", "src_tokens", "tgt_tokens")  # numbers of every line, along with "seconds"
REMEDY = "lower [training] learning_rate_scale or raise warmup_steps"


@dataclass(frozen=True)
class Metrics:
    """The measurements of a step: one line. Losses are per target token, in nats."""

    step: int
    epoch: int
    loss: float  # label-smoothed
    nll: float  # negative log-likelihood, not smoothed
    gradient_norm: float
    skipped: bool  # the loss or the gradient is not finite, so weights and moments did not change
    learning_rate: float
    src_tokens: int
    tgt_tokens: int
    seconds: float  # of this step, without evaluation and checkpoints
    overflow: bool = False  # as `skipped`, but the gradient only exceeds float16 at this loss scale
    dev_perplexity: float | None = None
    dev_sacrebleu: float | None = None
    dev_sacrebleu_how: str | None = None  # lines, kind and signature of the score
    dev_chrf: float | None = None  # if it is the recipe's patience_metric
    dev_chrf_how: str | None = None
    dev_bracket_f1: float | None = None  # of a parser, instead of sacreBLEU
    dev_bracket_f1_how: str | None = None
    dev_seconds: float | None = None  # of translating and scoring dev

    def line(self) -> str:
        """Return the line as JSON; a number that is not finite is null."""
        # JSON has no infinity and no NaN.
        values = dict(vars(self))
        for name, value in values.items():
            if isinstance(value, float) and not math.isfinite(value):
                values[name] = None
        return json.dumps(values) + "\n"


# The fields of an evaluation on the development set.
DEV_FIELDS = tuple(field.name for field in fields(Metrics) if field.name.startswith("dev_"))


def read_metrics(path: Path, n_bytes: int | None = None) -> list[dict[str, Any]]:
    """Read the measurements of all steps.

    Args:
        path: The file. If it does not exist, there are no steps.
        n_bytes: Read only this number of bytes, at the end of the file.

    Returns:
        The measurements, by step. Invalid lines are left out, such as the last one after a kill.
    """
    if not path.is_file():
        return []
    with path.open("rb") as file:
        if n_bytes is not None:
            file.seek(max(0, path.stat().st_size - n_bytes))
        content = file.read()
    # The first line may be cut by `n_bytes`, the last one by a kill.
    steps = []
    for line in content.decode("utf-8", errors="replace").split("\n"):
        try:
            values = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(values, dict) and _has_valid_sums(values):
            steps.append(values)
    return steps


def _has_valid_sums(values: Mapping[str, Any]) -> bool:
    """Return whether a line has the numbers that every line has: counts, and seconds."""
    for name in COUNTS:
        if type(values.get(name)) is not int or not 0 <= values[name] < 2**53:  # nor a bool
            return False
    seconds = values.get("seconds")
    return isinstance(seconds, int | float) and 0 <= seconds < math.inf


def read_published(training: Path, step: int) -> list[dict[str, Any]]:
    """Read the measurements of a published training.

    Args:
        step: The last step to read.

    Returns:
        The metrics of the steps; none, with a warning, if the file does not match its hash.
    """
    try:
        verify_measured(training, METRICS)
    except DamagedError as error:
        progress.warn_once(f"{error.reason}; skipping its measurements")
        return []
    return [line for line in read_metrics(training / METRICS) if line["step"] <= step]


def summarize_speed(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Summarize the speed of the steps, for the measurements of an artifact."""
    seconds = sum(line["seconds"] for line in lines)
    src_tokens = sum(line["src_tokens"] for line in lines)
    tgt_tokens = sum(line["tgt_tokens"] for line in lines)
    return {
        "timed_seconds": round(seconds, 3),
        "timed_src_tokens": src_tokens,
        "timed_tgt_tokens": tgt_tokens,
        "timed_steps": len(lines),
        "tgt_tokens_per_second": round(tgt_tokens / seconds, 1) if seconds else None,
    }


def write_metrics(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Replace the file; a kill leaves the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, "".join(json.dumps(line) + "\n" for line in lines))


def continue_metrics(path: Path, step: int, is_first: bool) -> IO[str]:
    """Open the file for appending, after its lines up to a checkpoint.

    Args:
        path: The file. Lines of steps after the checkpoint are removed.
        step: The step of the checkpoint, or 0.
        is_first: Whether this is the first process. Only that one writes.
    """
    if not is_first:
        return Path(os.devnull).open("a", encoding="utf-8", newline="\n")
    # Steps that a killed run wrote after its last checkpoint are trained once more.
    lines = read_metrics(path)
    if lines and step == 0:
        progress.warn(
            f"train: step {lines[-1]['step']:,} was reached, but {path.parent} has no checkpoint; "
            "training starts at the first step"
        )
    lines = [line for line in lines if line["step"] <= step]
    if len(lines) < step:
        progress.warn(f"{path} is damaged and has only {len(lines):,} of {step:,} steps")
    write_metrics(path, lines)
    return path.open("a", encoding="utf-8", newline="\n", buffering=1)  # line by line
