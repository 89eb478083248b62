"""nmtkit study."""

from typing import Annotated

import typer

from nmtkit.cli import options as opt
from nmtkit.config.settings import RUNS, Settings
from nmtkit.rendering.show import Form, show
from nmtkit.utils.errors import UserError


def study(
    name: Annotated[
        str,
        typer.Argument(
            metavar="STUDY",
            help="Name of a study, such as table-3, or a path such as ./mine.toml.",
            show_default=False,
        ),
    ],
    rows: Annotated[
        str | None,
        typer.Option(metavar="ROW,...", help="Rows to run: names, or patterns such as 'A-*'."),
    ] = None,
    overrides: opt.Overrides = None,
    # Settings of the machine
    runs_dir: opt.RunsDir = RUNS,
    mirror: opt.Mirror = None,
    device: opt.Device = "auto",
    max_tokens: opt.MaxTokens = None,
    workers: opt.Workers = None,
    processes: opt.Processes = 1,
    dtype: opt.Dtype = "auto",
    accelerate: opt.AccelerateOption = "auto",
    deterministic: opt.Deterministic = False,
    # Output
    as_json: opt.Json = False,
    table: opt.Table = None,
) -> None:
    """Run variants of a recipe (such as Table 3), and print their table.

    Example: nmtkit study table-3-multi30k --rows 'base,A-*'
    """
    # Imported here, as they take long.
    from nmtkit.config.study import load_study
    from nmtkit.study.figures import study_table
    from nmtkit.study.study_runs import run_rows, study_pipelines
    from nmtkit.study.study_table import study_parts

    settings = Settings(
        runs_dir,
        mirror=mirror,
        device=device,
        max_tokens=max_tokens,
        workers=workers,
        processes=processes,
        dtype=dtype,
        accelerate=accelerate,
        deterministic=deterministic,
    )
    settings.check()
    loaded = load_study(name)
    pipelines = study_pipelines(loaded, settings, overrides or [])
    # A row that fails is reported, and the others run.
    failed = run_rows(loaded.select_rows(rows), pipelines)
    form = Form(as_json, table)
    figures = study_table(loaded, pipelines)
    show(form, figures, study_parts(figures, form))
    if failed:
        raise UserError(
            f"study {name}: {', '.join(failed)} failed (see the errors above); fix them and rerun "
            "the same command, finished runs are kept"
        )
