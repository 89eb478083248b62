"""nmtkit prepare."""

from nmtkit.cli.options import command, tell
from nmtkit.stages import prepare as stage
from nmtkit.stages.pipeline import Pipeline


@command("nmtkit prepare demo", "mirror", "workers", force=["prepare"])
def prepare(pipeline: Pipeline) -> None:
    tell(stage.run(pipeline).path)
