"""nmtkit prepare."""

from nmtkit.cli.options import command, print_path
from nmtkit.stages import prepare as stage
from nmtkit.stages.pipeline import Pipeline


@command("nmtkit prepare demo", "mirror", "workers", force=["prepare"])
def prepare(pipeline: Pipeline) -> None:
    print_path(stage.run(pipeline).path)
