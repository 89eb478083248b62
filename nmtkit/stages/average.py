"""average: from the last checkpoints to a bundle (section 6.1)."""

from itertools import islice
from pathlib import Path
from typing import Any

from nmtkit import artifacts, progress
from nmtkit.artifacts import Artifact, DamagedError
from nmtkit.decoding.bundle import MODEL, write_bundle
from nmtkit.errors import UserError
from nmtkit.stages.chain import Chain
from nmtkit.training.averaging import average_weights
from nmtkit.training.checkpoint import checkpoints, read_progress


def run(chain: Chain) -> Artifact:
    """Publish the bundle of the recipe."""
    return chain.make("average", lambda draft: _average(chain, draft))


def _average(chain: Chain, draft: Path) -> dict[str, Any]:
    prepared = artifacts.verify(chain.need("prepare")).path
    trained = artifacts.verify(chain.need("train"), MODEL).path
    newest_first = reversed(checkpoints(trained / "checkpoints"))
    scheduled = (path for path in newest_first if read_progress(path).scheduled)
    try:
        chosen = list(islice(scheduled, chain.recipe.averaging.n_checkpoints))[::-1]
        steps = [read_progress(path).step for path in chosen]
        progress.say(f"average: checkpoints of steps {', '.join(f'{step:,}' for step in steps)}")
        weights = average_weights(chosen)
    except DamagedError as damage:
        raise UserError(
            f"a checkpoint that is to be averaged is damaged: {damage.reason}; restore it from a "
            f"copy, or delete {trained} to train again"
        ) from None
    artifacts.check_room(draft, sum(tensor.nbytes for tensor in weights.values()), "average")
    write_bundle(draft, prepared, artifacts.read_json(trained / MODEL), weights)
    artifacts.write_json(draft / "averaged.json", {"steps": steps})
    return {}
