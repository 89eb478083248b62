"""nmtkit status."""

from nmtkit.cli import options as opt
from nmtkit.cli.inputs import load_pipeline
from nmtkit.config.settings import RUNS, Settings
from nmtkit.rendering.grid import Grid
from nmtkit.rendering.show import Form, show
from nmtkit.runs.listing import explain_missing, next_command, states
from nmtkit.stages.training_state import training_progress


def status(
    recipe: opt.RecipeName,
    overrides: opt.Overrides = None,
    runs_dir: opt.RunsDir = RUNS,
    as_json: opt.Json = False,
    table: opt.Table = None,
) -> None:
    """Show the state of each stage, and the next command.

    Example: nmtkit status demo
    """
    pipeline = load_pipeline(recipe, overrides, Settings(runs_dir))
    found = explain_missing(pipeline, states(pipeline))
    by_stage = {state.stage: state for state in found}
    train = by_stage["train"]
    training = None
    if train.state in ("running", "partial"):
        training = training_progress(pipeline)
    command = next_command(pipeline, found)

    # A finished stage has a folder, and any other one a reason.
    rows = []
    for state in found:
        where_or_why = state.path if state.state == "done" else state.why
        rows.append((state.stage, state.state, state.fingerprint or "", where_or_why or ""))
    columns = ("stage", "state", "fingerprint", "where or why")
    notes: list[str] = []
    if training:
        notes.append(f"curves: {train.path}.html")
    if command:
        running = [state.stage for state in found if state.state == "running"]
        when = f", once {running[0]} has finished" if running else ""
        notes.append(f"next{when}: {command}")
    value = {"recipe": pipeline.command, "stages": by_stage, "training": training, "next": command}
    grid = Grid.of(f"nmtkit status {pipeline.command}", columns, rows, len(columns))
    show(Form(as_json, table), value, [grid, *notes])
