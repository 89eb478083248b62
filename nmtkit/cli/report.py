"""nmtkit report."""

from pathlib import Path
from typing import Annotated

import typer

from nmtkit.cli import options as opt
from nmtkit.cli.inputs import check_output
from nmtkit.config.settings import RUNS, Settings
from nmtkit.rendering.grid import Grid
from nmtkit.rendering.show import Form, print_path, show
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import join_names


def report(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="Only these runs and studies, such as demo, 'demo --set SECTION.KEY=VALUE', "
            "table-3, ./mine.toml.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Folder of the report.")
    ] = Path("report"),
    results: Annotated[
        bool,
        typer.Option("--results", help="Show published results, and those measured with nmtkit."),
    ] = False,
    runs_dir: opt.RunsDir = RUNS,
    as_json: opt.Json = False,
    table: opt.Table = None,
) -> None:
    """Write a report of all runs: a page, tables and charts.

    Example: nmtkit report demo table-3
    """
    form = Form(as_json, table)
    if results:
        from nmtkit.report.results import show_results

        show_results(form)
        return
    if output == Path("-") or (output.exists() and not output.is_dir()):
        raise UserError(f"--output {output} is not a folder; pass a folder")
    check_output("--output", output)
    from nmtkit.report.collection import collect_report
    from nmtkit.report.report import runs_grid
    from nmtkit.report.report_files import PAGES, write_report
    from nmtkit.study.study_table import study_parts

    report_data = collect_report(Settings(runs_dir), names or [])
    content = write_report(output, report_data)
    parts: list[Grid | str] = []
    # CSV is one table: that of the only study, or that of all runs.
    if names and (form.table != "csv" or len(names) == 1):
        for study in report_data.studies:
            parts += study_parts(study, form)
    if not parts and form.table is not None:
        parts.append(runs_grid(report_data))
    show(form, content, parts)
    if not report_data.runs:
        if names:
            # A recipe that is not scored is an error.
            missing = f"no row of {join_names(names)} is scored in {runs_dir} yet"
            progress.log(f"report: {missing}; run `nmtkit study {names[0]}`")
        else:
            progress.log(
                f"report: no scored runs in {runs_dir} yet; run `nmtkit run demo` for a first one"
            )
    # The formats of --json and --table are for programs; these expect nothing else.
    if form == Form():
        for page in PAGES:
            print_path(output / page)
