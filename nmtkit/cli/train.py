"""nmtkit train."""

from nmtkit.cli.options import OF_TRAINING, command, tell
from nmtkit.stages.chain import Chain


@command("nmtkit train demo", *OF_TRAINING, force=["train"])
def train(chain: Chain) -> None:
    from nmtkit.stages import train as stage  # imports torch
    from nmtkit.training.distributed import is_worker

    path = stage.run(chain).path
    if not is_worker():
        tell(path)
