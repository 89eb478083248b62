"""nmtkit status."""

from nmtkit.cli.options import command
from nmtkit.reporting.grid import Grid
from nmtkit.reporting.show import Form, show
from nmtkit.stages.chain import Chain, states


@command("nmtkit status demo")
def status(chain: Chain, form: Form) -> None:
    """Show what is done, what is running, and what comes next."""
    found = states(chain)
    rows = [
        (
            each.stage,
            each.state,
            each.fingerprint or "",
            (each.path if each.state == "fresh" else each.why) or "",
        )
        for each in found
    ]
    columns = ("stage", "state", "fingerprint", "where or why")
    grid = Grid.of(f"nmtkit status {chain.command}", columns, rows, len(columns))
    show(form, {"recipe": chain.command, "stages": {each.stage: each for each in found}}, [grid])
