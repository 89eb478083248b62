"""The precision that a training computes in, as its manifest states it.

That is "float32", or "float32, bfloat16 from step 101" if it resumed in another one.
"""

from pathlib import Path

from nmtkit.files import write_whole
from nmtkit.store import TEMPORARY

NOTE = "precision.txt"  # in the temporary files of a draft, which has no manifest yet


def note_precision(draft: Path, precision: str, step: int = 1) -> None:
    """Note that the training in `draft` computes in `precision` from `step` on.

    What an earlier run did from there on is not kept, so it is not stated.
    """
    earlier = noted_precision(draft)
    kept = [each for each in earlier.split(", ") if _first(each) < step] if earlier else []
    if not kept:
        kept = [precision]
    elif kept[-1].partition(" ")[0] != precision:
        kept.append(f"{precision} from step {step}")
    write_whole(draft / TEMPORARY / NOTE, ", ".join(kept))


def noted_precision(draft: Path) -> str | None:
    """Return what `note_precision` noted, if it did."""
    try:
        return (draft / TEMPORARY / NOTE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def _first(part: str) -> int:
    """Return the first step of a part of a note."""
    return int(part.partition(" from step ")[2] or 1)
