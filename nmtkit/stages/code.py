"""Which code the result of each stage depends on, and whether an artifact was made by it."""

from collections.abc import Mapping
from functools import cache

from nmtkit.reporting.code import OtherCode
from nmtkit.rooms import hashes
from nmtkit.store import Manifest

Code = Mapping[str, Mapping[str, str]]  # of each stage, the hashes of its rooms

# The rooms of nmtkit that the result of each stage depends on. Those of the stages before it are
# recorded with what these made. What only checks, finds, shows or measures changes no result.
ROOMS: Mapping[str, tuple[str, ...]] = {
    "prepare": (
        *("sources/", "corpus/", "schema.py", "languages.py", "symbols.py", "stages/prepare.py"),
    ),
    "train": (
        *("corpus/", "model/", "fast/", "training/"),
        # recipe.py has the rows of embeddings
        *("recipe.py", "perplexity.py", "symbols.py", "tensors.py", "stages/train.py"),
    ),
    "average": ("training/averaging.py", "decoding/bundle.py", "tensors.py", "stages/average.py"),
    "translate": (
        *("sources/", "corpus/", "model/", "fast/", "decoding/"),
        *("evaluation/translations.py", "schema.py", "languages.py", "symbols.py"),
        # visible.py has which lines are blank
        *("visible.py", "tensors.py", "stages/translate.py"),
    ),
    "score": ("sources/", "corpus/", "evaluation/", "schema.py", "languages.py", "stages/score.py"),
}


@cache
def present_code() -> Code:
    """Return the code of this process, by stage."""
    return {stage: hashes(rooms) for stage, rooms in ROOMS.items()}


def other_code(manifest: Manifest) -> OtherCode:
    """Return what made an artifact, and what it was made from, and is not the present code.

    Only what a stage published has a record of it.
    """
    if manifest.fingerprint is None:
        return {}
    other: dict[str, list[str]] = {}
    for stage, now in present_code().items():
        then = manifest.code.get(stage, {})
        if rooms := [room for room in {**now, **then} if then.get(room) != now.get(room)]:
            other[stage] = rooms
        if stage == manifest.kind:
            break
    return other
