"""nmtkit train."""

from nmtkit.cli.options import TRAINING_OPTIONS, command, tell
from nmtkit.stages.pipeline import Pipeline


@command("nmtkit train demo", *TRAINING_OPTIONS, force=["train"])
def train(pipeline: Pipeline) -> None:
    from nmtkit.stages import train as stage  # imports torch
    from nmtkit.training.distributed import is_worker

    path = stage.run(pipeline).path
    if not is_worker():
        tell(path)
