"""Which code the result of each stage depends on, and whether an artifact was made by it."""

from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from nmtkit.errors import UserError
from nmtkit.files import read_json
from nmtkit.reporting.code import OtherCode
from nmtkit.rooms import hashes
from nmtkit.store import TEMPORARY, Manifest, open_directory

CODE = "code.json"  # in the temporary files of the draft of a training

Code = Mapping[str, Mapping[str, str]]  # of each stage, the hashes of its rooms

# The rooms of nmtkit that the result of each stage depends on. Those of the stages before it are
# recorded with what these made. What only checks, finds, shows or measures changes no result.
ROOMS: Mapping[str, tuple[str, ...]] = {
    "prepare": (
        *("sources/", "corpus/"),
        *("schema.py", "languages.py", "symbols.py", "stages/prepare.py"),
    ),
    "train": (
        *("corpus/", "model/", "kernels/", "training/"),
        *(
            "recipe.py",
            "perplexity.py",
            "symbols.py",
            "stages/train.py",
        ),  # recipe.py has the rows of embeddings
    ),
    "average": ("training/averaging.py", "decoding/bundle.py", "stages/average.py"),
    "translate": (
        *("sources/", "corpus/", "model/", "kernels/", "decoding/"),
        *("evaluation/translations.py", "schema.py", "languages.py", "symbols.py"),
        *("visible.py", "stages/translate.py"),  # visible.py has which lines are blank
    ),
    "score": (
        *("sources/", "corpus/", "evaluation/"),
        *("schema.py", "languages.py", "stages/score.py"),
    ),
}


@cache
def present_code() -> Code:
    """Return the code of this process, by stage."""
    return {stage: hashes(rooms) for stage, rooms in ROOMS.items()}


def code_that_trained(training: Path) -> dict[str, str]:
    """Return what is known of the code of a training, published or not.

    Where it changed, the hashes of a room are joined by "+".
    """
    with suppress(FileNotFoundError):
        found: dict[str, str] = read_json(training / TEMPORARY / CODE)
        return found
    with suppress(UserError):  # a draft has a manifest too, if it was killed while it was published
        return open_directory(training).manifest.code.get("train", {})
    return {}


def other_code(manifest: Manifest) -> OtherCode:
    """Return what made an artifact, and what it was made from, and is not the present code.

    Only what a stage published has a record of it.
    """
    if manifest.fingerprint is None or manifest.kind not in ROOMS:
        return {}
    stages = list(ROOMS)
    other: dict[str, list[str] | None] = {}
    for stage in stages[: stages.index(manifest.kind) + 1]:
        then, now = manifest.code.get(stage), present_code()[stage]
        if then is None:
            other[stage] = None
        elif rooms := [room for room in {**now, **then} if then.get(room) != now.get(room)]:
            other[stage] = rooms
    return other
