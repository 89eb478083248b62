"""average: from the last checkpoints to a bundle (section 6.1)."""

from pathlib import Path
from typing import Any

from nmtkit import artifacts, progress
from nmtkit.artifacts import Artifact
from nmtkit.stages.bundle import write_bundle
from nmtkit.stages.chain import Chain
from nmtkit.training.averaging import average_weights
from nmtkit.training.checkpoint import checkpoints, read_progress


def run(chain: Chain) -> Artifact:
    """Publish the bundle of the recipe."""
    return chain.make("average", lambda draft: _average(chain, draft))


def _average(chain: Chain, draft: Path) -> dict[str, Any]:
    prepared = artifacts.verify(chain.need("prepare")).path
    trained = chain.need("train").path  # each checkpoint is verified when it is read
    scheduled = [
        path for path in checkpoints(trained / "checkpoints") if read_progress(path).scheduled
    ]
    chosen = scheduled[-chain.recipe.averaging.n_checkpoints :]
    steps = [read_progress(path).step for path in chosen]
    progress.say(f"average: checkpoints of steps {', '.join(f'{step:,}' for step in steps)}")
    write_bundle(
        draft, prepared, artifacts.read_json(trained / "model.json"), average_weights(chosen)
    )
    artifacts.write_json(draft / "averaged.json", {"steps": steps})
    return {}
