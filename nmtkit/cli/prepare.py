"""nmtkit prepare."""

from nmtkit.cli.options import command, tell
from nmtkit.stages import prepare as stage
from nmtkit.stages.chain import Chain


@command("nmtkit prepare demo", "mirror", "workers", force=["prepare"])
def prepare(chain: Chain) -> None:
    tell(stage.run(chain).path)
