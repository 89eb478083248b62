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
from nmtkit.files import DRAFT, canonical_json, read_json, write_whole
from nmtkit.stages.chain import Chain
from nmtkit.stages.code import CODE, code_that_trained
from nmtkit.store import TEMPORARY, fingerprint_of, open_directory
from nmtkit.training.checkpoint import checkpoints, last_step, read_progress, share_checkpoint
from nmtkit.training.divergence import CHECKPOINTS
from nmtkit.training.metrics import METRICS, copy_metrics
from nmtkit.training.precision import note_precision, noted_precision

DEPENDS_ON = "depends_on.json"  # in the temporary files of a draft, which has no manifest yet
UNKNOWN = "unknown"  # in place of a hash: what an older version of nmtkit began


@dataclass(frozen=True)
class Shorter:
    """A training that differs in nothing but a smaller max_steps."""

    place: Path  # of an artifact or a draft
    fingerprint: str
    max_steps: int

    @property
    def last_step(self) -> int:
        """The step of its last checkpoint."""
        return last_step(self.place / CHECKPOINTS)


def continue_shorter(chain: Chain, draft: Path) -> None:
    """Share with `draft` what the shorter training with the most steps has done, if it is more."""
    _remember(chain, draft)
    _note_code(draft, chain.code["train"], of=draft)
    for shorter in sorted(_find(chain), key=lambda each: each.last_step, reverse=True):
        if "train" in chain.remake and code_that_trained(shorter.place) != chain.code["train"]:
            continue
        # It is passed over if it is running, and its checkpoints from the first damaged one on.
        with suppress(UserError), chain.store.lock("train", shorter.fingerprint):
            if shorter.last_step > last_step(draft / CHECKPOINTS):
                progress.say(
                    f"train: continues {shorter.place}, the same with max_steps = "
                    f"{shorter.max_steps:,}"
                )
                if precision := _precision_of(shorter.place):
                    note_precision(draft, precision)
                _note_code(draft, chain.code["train"], of=shorter.place)
                _share(chain, shorter, draft / CHECKPOINTS)
                return


def training_depends_on(training: Path) -> dict[str, Any]:
    """Return what the training in a folder, published or not, depends on.

    Raises:
        UserError: There is no training in the folder, or it is damaged.
    """
    if not training.name.endswith(DRAFT):
        return open_directory(training).manifest.depends_on
    try:
        found: dict[str, Any] = read_json(training / TEMPORARY / DEPENDS_ON)
    except FileNotFoundError:
        raise UserError(f"{training} is not a training; name a checkpoint of one") from None
    return found


def lineage(depends_on: Mapping[str, Any]) -> str:
    """Return a hash of all that a training depends on but the number of its steps."""
    training = {**depends_on["training"]}
    del training["max_steps"]
    return fingerprint_of("train", {**depends_on, "training": training})


def _precision_of(training: Path) -> str | None:
    """Return what is known of the precision of a training, published or not."""
    if training.name.endswith(DRAFT):
        return noted_precision(training)
    return open_directory(training).manifest.made_by.get("precision")


def _note_code(draft: Path, code: Mapping[str, str], *, of: Path) -> None:
    """Note that `code` goes on in `draft` with the checkpoints `of` a training."""
    then: dict[str, str] = {}
    if last_step(of / CHECKPOINTS):
        then = dict.fromkeys(code, UNKNOWN) | code_that_trained(of)
    now = {}
    for room, present in code.items():
        made = then.get(room, present).split("+")
        now[room] = "+".join(made if present in made else [*made, present])
    if changed := [room for room in code if now[room] != code[room]]:
        progress.say(f"train: goes on with what other code trained: {', '.join(changed)}")
    write_whole(draft / TEMPORARY / CODE, canonical_json(now))


def _remember(chain: Chain, draft: Path) -> None:
    folder = draft / TEMPORARY
    folder.mkdir(exist_ok=True)
    write_whole(folder / DEPENDS_ON, canonical_json(chain.depends_on("train")))


def _find(chain: Chain) -> Iterator[Shorter]:
    for artifact in chain.store.all("train"):
        if max_steps := _smaller_max_steps(artifact.manifest.depends_on, chain):
            yield Shorter(artifact.path, artifact.path.name, max_steps)
    for draft in chain.store.folders("train"):
        with suppress(UserError, FileNotFoundError):
            depends_on = read_json(draft / TEMPORARY / DEPENDS_ON)
            if draft.suffix == DRAFT and (max_steps := _smaller_max_steps(depends_on, chain)):
                yield Shorter(draft, draft.stem, max_steps)


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
