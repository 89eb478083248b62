"""`metrics.jsonl`: the measurements of a training, one line per step."""

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from nmtkit.store.files import write_whole
from nmtkit.store.records import DamagedError
from nmtkit.store.verification import verify_measured

CHECKPOINTS = "checkpoints"  # their folder in the artifact of `train`
METRICS = "metrics.jsonl"
DIVERGED = "diverged.txt"  # what diverged, beside the checkpoints until training is tried again
SUMMED = ("step", "src_tokens", "tgt_tokens", "seconds")  # numbers of every line
WHAT_HELPS = "lower [training] learning_rate_scale or raise warmup_steps"


@dataclass(frozen=True)
class Metrics:
    """One line; losses are per target token, in nats."""

    step: int
    epoch: int
    loss: float  # label-smoothed
    nll: float  # not smoothed
    gradient_norm: float
    skipped: bool  # the loss or the gradient is not finite, so weights and moments did not change
    learning_rate: float
    src_tokens: int
    tgt_tokens: int
    seconds: float  # that this step took
    overflow: bool = False  # as `skipped`, but the gradient only exceeds float16 at this loss scale
    dev_perplexity: float | None = None
    dev_sacrebleu: float | None = None
    dev_sacrebleu_how: str | None = None
    dev_chrf: float | None = None  # if it is the recipe's patience_metric
    dev_chrf_how: str | None = None
    dev_bracket_f1: float | None = None  # of a parser, in place of sacreBLEU
    dev_bracket_f1_how: str | None = None
    dev_seconds: float | None = None  # that translating and scoring dev took

    def line(self) -> str:
        """Return the line as JSON; a number that is not finite is null."""
        values = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in vars(self).items()
        }
        return json.dumps(values) + "\n"


OF_DEV = tuple(name for name in vars(Metrics)["__annotations__"] if name.startswith("dev_"))


def read_metrics(path: Path, n_bytes: int | None = None) -> list[dict[str, Any]]:
    """Read the lines of the file, without a last line that a kill cut off.

    Args:
        path: The file; without it there are no lines.
        n_bytes: Read only this many bytes at its end.

    Returns:
        The measurements of each step. Lines that are not a step are left out.
    """
    if not path.is_file():
        return []
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - n_bytes) if n_bytes else 0)
        content = file.read()
    found = []
    for line in content.decode("utf-8", errors="replace").split("\n"):
        try:
            values = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(values, dict) and all(_is_number(values.get(name)) for name in SUMMED):
            found.append(values)
    return found


def _is_number(value: object) -> bool:
    return type(value) in (int, float)


def read_published(training: Path, step: int, warn: Callable[[str], None]) -> list[dict[str, Any]]:
    """Return the lines of a published training up to `step`, or none and a warning if damaged."""
    try:
        verify_measured(training, METRICS)
    except DamagedError as error:
        warn(f"{error.reason}; its measurements are left out")
        return []
    return [line for line in read_metrics(training / METRICS) if line["step"] <= step]


def speed_of(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Summarize the speed of the steps that were measured, as an artifact records it."""
    names = ("seconds", "src_tokens", "tgt_tokens")
    sums = {f"timed_{name}": sum(line[name] for line in lines) for name in names}
    seconds, tokens = sums["timed_seconds"], sums["timed_tgt_tokens"]
    return {
        **sums,
        "timed_steps": len(lines),
        "timed_seconds": round(seconds, 3),
        "tgt_tokens_per_second": round(tokens / seconds, 1) if seconds else None,
    }


def write_metrics(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Write the file anew; a kill leaves the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, "".join(json.dumps(line) + "\n" for line in lines))


def continue_metrics(path: Path, step: int, is_first: bool, warn: Callable[[str], None]) -> IO[str]:
    """Open the file to append, without lines after `step`; only the first process writes."""
    if is_first:
        found = read_metrics(path)
        if found and not step:
            warn(
                f"train: step {found[-1]['step']:,} was reached, but {path.parent} has no "
                "checkpoint; training begins at the first step"
            )
        kept = [line for line in found if line["step"] <= step]
        if len(kept) < step:
            warn(f"{path} is damaged and has only {len(kept):,} of {step:,} steps")
        write_metrics(path, kept)
    place = path if is_first else Path(os.devnull)
    return place.open("a", encoding="utf-8", newline="\n", buffering=1)
