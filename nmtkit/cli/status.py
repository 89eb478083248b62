"""nmtkit status."""

from nmtkit.cli.options import command
from nmtkit.reporting.grid import Grid
from nmtkit.reporting.show import Form, show
from nmtkit.stages.pipeline import Pipeline
from nmtkit.stages.states import next_command, states, training_of


@command("nmtkit status demo")
def status(pipeline: Pipeline, form: Form) -> None:
    found = states(pipeline)
    training = training_of(pipeline) if found[1].state in ("running", "partial") else None
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
    grid = Grid.of(f"nmtkit status {pipeline.command}", columns, rows, len(columns))
    notes: list[str] = []
    if training:
        notes.append(f"curves: {found[1].path}.html")
    following = next_command(pipeline, found)
    if following:
        running = [each.stage for each in found if each.state == "running"]
        notes.append(f"next{f', when {running[0]} has ended' if running else ''}: {following}")
    value = {"recipe": pipeline.command, "stages": {each.stage: each for each in found}}
    show(form, {**value, "training": training, "next": following}, [grid, *notes])
