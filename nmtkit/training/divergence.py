"""A note that training diverged, kept beside the checkpoints until training is tried again."""

from pathlib import Path

CHECKPOINTS = "checkpoints"  # their folder in the artifact of `train`; `status` needs no torch
DIVERGED = "diverged.txt"
WHAT_HELPS = "lower [training] learning_rate_scale or raise warmup_steps"


def note_divergence(directory: Path, what: str) -> None:
    """Note what diverged, for `divergence`; all processes of a training note the same."""
    (directory / DIVERGED).write_text(f"{what}\n", encoding="utf-8", newline="\n")


def divergence(directory: Path) -> str | None:
    """Return what diverged in the training whose checkpoints are in `directory`, if it did."""
    try:
        return (directory / DIVERGED).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None


def forget_divergence(directory: Path) -> None:
    """Delete the note: training begins again."""
    (directory / DIVERGED).unlink(missing_ok=True)
