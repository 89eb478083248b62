"""nmtkit selftest."""

from pathlib import Path
from typing import Annotated

import typer

from nmtkit.benchmark.selftest import Check, append_line, as_json_line, check_results, checks
from nmtkit.cli import options as opt
from nmtkit.cli.inputs import check_file, check_output, file_or_stream
from nmtkit.config.settings import RUNS, Precision, Settings
from nmtkit.rendering.grid import Grid
from nmtkit.rendering.show import Form, show
from nmtkit.store.files import temporary_folder
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import visible

GPU_RESULTS = "selftest.jsonl"  # in the folder of artifacts
GPU_SECONDS = 300.0


def selftest(
    gpu: Annotated[
        bool,
        typer.Option(
            "--gpu", help="Check gradients on the GPU, and measure the speed of training."
        ),
    ] = False,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds",
            metavar="N",
            help=f"With --gpu: stop after N seconds (default: {GPU_SECONDS:.0f}).",
            min=0.1,
            max=86_400,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            parser=file_or_stream,
            help=f"With --gpu: append results to this file, as JSON Lines (default: {GPU_RESULTS} "
            "in --runs-dir).",
        ),
    ] = None,
    dtype: Annotated[
        Precision,
        typer.Option(metavar="TYPE", help="With --gpu: training precision, as for `train`."),
    ] = "auto",
    runs_dir: opt.RunsDir = RUNS,
    # Output
    as_json: opt.Json = False,
    table: opt.Table = None,
) -> None:
    """Check this machine and the first steps of training.

    Example: nmtkit selftest
    """
    settings = Settings(runs_dir, dtype=dtype)
    if gpu:
        if table is not None:
            raise UserError(
                "--table cannot be used with --gpu: it prints each result when it is measured; "
                "omit --table"
            )
        # Each result is printed and saved as it comes: a machine may be lent for minutes only.
        results = _run_gpu_checks(settings, seconds or GPU_SECONDS, output, as_json=as_json)
    else:
        if seconds is not None or output is not None or dtype != "auto":
            raise UserError(
                "--seconds, --output and --dtype apply only to `nmtkit selftest --gpu`; pass "
                "--gpu, or omit them"
            )
        # The demo is trained in a folder that is deleted.
        results = []
        with temporary_folder() as folder:
            for check in checks(settings, folder):
                progress.log(f"selftest: {check.what}: {check.state}")
                results.append(check)
        rows = [(check.state, check.what, check.seen) for check in results]
        show(Form(as_json, table), results, [Grid.of("", ("state", "what", "seen"), rows, 3)])
    # For scripts, a failed check is a failed command.
    failed = [check.what for check in results if check.state == "failed"]
    if failed:
        raise UserError(f"{'; '.join(failed)}: failed (see the reasons above)")


def _run_gpu_checks(
    settings: Settings, seconds: float, output: Path | None, *, as_json: bool
) -> list[Check]:
    """Run the checks of --gpu, print their results as they come, and append them to a file.

    Args:
        settings: The folder of artifacts and the precision.
        seconds: Time after which no further check begins.
        output: The file; None: one in the folder of artifacts.
        as_json: Print JSON Lines.

    Returns:
        The results.
    """
    path = output or settings.runs_dir / GPU_RESULTS
    check_file("--output", output)
    check_output("--output", output)
    check_results(path)
    if output is None:
        settings.runs_dir.mkdir(parents=True, exist_ok=True)
    from nmtkit.benchmark.selftest_gpu import gpu_checks  # imports torch

    progress.log(f"selftest: appending results to {path}")
    results = []
    with temporary_folder() as folder:
        for check in gpu_checks(settings, seconds, folder):
            line = as_json_line(check)
            append_line(path, line)
            if as_json:
                typer.echo(line)
            else:
                typer.echo(visible(f"{check.state}: {check.what}: ") + check.seen)
            results.append(check)
    return results
