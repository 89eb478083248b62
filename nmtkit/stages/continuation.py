"""A training that goes on where the same one with a smaller max_steps ended, or was stopped.

Nothing in training depends on max_steps but its end: there, a checkpoint is saved and dev is
evaluated, whatever their intervals are. Where the longer training has neither, they are taken back,
so that its artifact is the same as without the shorter one.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from nmtkit import progress
from nmtkit.errors import UserError
from nmtkit.files import DRAFT
from nmtkit.stages.chain import Chain
from nmtkit.stages.note import Note, read_note, write_note
from nmtkit.store import fingerprint_of
from nmtkit.training.checkpoint import checkpoints, last_step, read_progress, share_checkpoint
from nmtkit.training.divergence import CHECKPOINTS
from nmtkit.training.metrics import METRICS, copy_metrics


@dataclass(frozen=True)
class Shorter:
    """A training that differs in nothing but a smaller max_steps."""

    place: Path  # of an artifact or a draft
    fingerprint: str
    max_steps: int
    note: Note

    @property
    def last_step(self) -> int:
        """The step of its last checkpoint."""
        return last_step(self.place / CHECKPOINTS)


def continue_shorter(chain: Chain, draft: Path) -> None:
    """Share with `draft` what the shorter training with the most steps has done, if it is more."""
    note = Note(depends_on=chain.depends_on("train"))
    if read_note(draft) is None:
        write_note(draft, note)
    for shorter in sorted(_find(chain), key=lambda each: each.last_step, reverse=True):
        if "train" in chain.remake and shorter.note.code != chain.code["train"]:
            continue
        # It is passed over if it is running, and its checkpoints from the first damaged one on.
        with suppress(UserError), chain.store.lock("train", shorter.fingerprint):
            if shorter.last_step > last_step(draft / CHECKPOINTS):
                progress.say(
                    f"train: continues {shorter.place}, the same with max_steps = "
                    f"{shorter.max_steps:,}"
                )
                done = {"precision": shorter.note.precision, "code": shorter.note.code}
                write_note(draft, note.model_copy(update=done))
                _share(chain, shorter, draft / CHECKPOINTS)
                return


def lineage(depends_on: Mapping[str, Any]) -> str:
    """Return a hash of all that a training depends on but the number of its steps."""
    training = {**depends_on["training"]}
    del training["max_steps"]
    return fingerprint_of("train", {**depends_on, "training": training})


def _find(chain: Chain) -> Iterator[Shorter]:
    for place in chain.store.folders("train"):
        if place.suffix not in ("", DRAFT):
            continue
        with suppress(UserError):
            note = read_note(place)
            if note and (max_steps := _smaller_max_steps(note.depends_on, chain)):
                yield Shorter(place, place.stem, max_steps, note)


def _smaller_max_steps(depends_on: dict[str, Any], chain: Chain) -> int | None:
    """Return the max_steps of a training that is the chain's, but for fewer steps."""
    wanted = chain.depends_on("train")
    max_steps: int = depends_on["training"]["max_steps"]
    is_shorter = max_steps < wanted["training"]["max_steps"]
    return max_steps if is_shorter and lineage(depends_on) == lineage(wanted) else None


def _share(chain: Chain, shorter: Shorter, directory: Path) -> None:
    """Share metrics and checkpoints, the oldest first: a kill leaves what a stop would leave."""
    training = chain.recipe.training

    def is_due(step: int, every: int) -> bool:
        return step < shorter.max_steps or (every > 0 and step % every == 0)

    for metrics in (shorter.place / METRICS, shorter.place / CHECKPOINTS / METRICS):
        if metrics.is_file():
            evaluated = partial(is_due, every=training.dev_every_steps)
            copy_metrics(metrics, directory / METRICS, evaluated)
    for path in checkpoints(shorter.place / CHECKPOINTS):
        if not (directory / path.name).exists():
            scheduled = is_due(read_progress(path).step, training.checkpoint_every_steps)
            share_checkpoint(path, directory, scheduled=scheduled)
