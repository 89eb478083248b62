"""The runs of a study: run the rows that are not done, every run in a process of its own."""

import os
import signal
import subprocess
from collections.abc import Sequence
from math import inf

from nmtkit.config.loading import load_recipe
from nmtkit.config.settings import Settings
from nmtkit.config.study import Row, Study
from nmtkit.stages.pipeline import Pipeline
from nmtkit.store.locks import BusyError
from nmtkit.store.provenance import run_arguments
from nmtkit.study.figures import DIVERGED, FINISHED, LOCKS, Pipelines, lock_name, run_state
from nmtkit.utils import progress
from nmtkit.utils.errors import AlreadyReported, Stopped, UserError
from nmtkit.utils.interrupts import AGENT
from nmtkit.utils.processes import nmtkit_command, on_stop_signal


def study_pipelines(study: Study, settings: Settings, overrides: Sequence[str] = ()) -> Pipelines:
    """Load the recipes of all runs of a study.

    Args:
        overrides: Values of --set, for all rows.

    Raises:
        UserError: The recipe of a row cannot be loaded.
    """
    pipelines: dict[str, dict[str, Pipeline]] = {}
    for row in study.rows:
        recipe = row.recipe or study.recipe
        pipelines[row.name] = {}
        for name, run_overrides in study.row_runs(row, overrides).items():
            try:
                loaded = load_recipe(recipe, run_overrides)
            except UserError as error:
                raise UserError(f"row {row.name} of study {study.name}: {error}") from None
            pipelines[row.name][name] = Pipeline(loaded, settings, recipe, run_overrides)
    return pipelines


def run_rows(rows: Sequence[Row], pipelines: Pipelines) -> list[str]:
    """Run the rows that are not finished, every run in a process of its own.

    All rows run with their first seed before any runs with its second: the table is useful early.

    Returns:
        The names of the runs that failed.
    """
    for row in rows:
        # All seeds share the corpus of the first one.
        _prepare(next(iter(pipelines[row.name].values())))
    runs_by_row = [list(pipelines[row.name].items()) for row in rows]
    runs = []
    for number in range(max(map(len, runs_by_row), default=0)):
        for row_runs in runs_by_row:
            if number < len(row_runs):  # rows may have different numbers of seeds
                runs.append(row_runs[number])
    failed = []
    for number, (name, pipeline) in enumerate(runs, start=1):
        label = f"study: {name} ({number:,} of {len(runs):,})"
        try:
            # The lock lets several processes, also of several machines, divide the rows.
            with pipeline.store.lock(LOCKS, lock_name(pipeline), note={}):
                is_done = _run_row(label, pipeline)
        except BusyError as error:
            # Another process runs it, and reports its failure.
            progress.log(f"{label}: {error}")
        else:
            if not is_done:
                failed.append(name)
    return failed


def _run_row(label: str, pipeline: Pipeline) -> bool:
    """Run a recipe, unless it is finished or has diverged.

    Args:
        label: Prefix of messages.

    Returns:
        Whether it is finished, or has diverged (another run would not help).
    """
    state, why = run_state(pipeline)
    if state not in (FINISHED, DIVERGED):
        progress.log(f"{label}: nmtkit run {run_arguments(pipeline.command, pipeline.overrides)}")
        _run_nmtkit(pipeline, ["run", *pipeline.settings.options()])
        state, why = run_state(pipeline)
    progress.log(f"{label}: {state}, {why}" if why else f"{label}: {state}")
    return state in (FINISHED, DIVERGED)


def _prepare(pipeline: Pipeline) -> None:
    """Prepare the corpus, or wait for another process that prepares it."""
    if pipeline.find("prepare"):
        return
    with pipeline.store.lock(LOCKS, pipeline.fingerprint("prepare"), {}, wait_s=inf):
        if pipeline.find("prepare"):  # another process prepared it meanwhile
            return
        if _run_nmtkit(pipeline, ["prepare", *pipeline.settings.options("prepare")]) != 0:
            raise UserError("the corpus of the study could not be prepared, see the error above")


def _run_nmtkit(pipeline: Pipeline, command: Sequence[str]) -> int:
    """Run a command on a recipe in a child process.

    Args:
        command: The name of the command, such as "run", and its options.

    Returns:
        The exit code.

    Raises:
        Stopped: A signal stopped this process. The child has exited by then.
        AlreadyReported: The child has printed where it was stopped.
    """
    signals: list[signal.Signals] = []

    with (
        subprocess.Popen(  # noqa: S603 - nmtkit itself
            nmtkit_command(*pipeline.commands.child_arguments(command)),
            env={**os.environ, AGENT: str(os.getpid())},
            stdout=subprocess.DEVNULL,
            process_group=0,  # Ctrl-C reaches only this process; it is forwarded once
        ) as process,
        on_stop_signal(signals, lambda: process.send_signal(signals[0])),
    ):
        exit_code = process.wait()
    if signals and exit_code == 128 + signals[0]:
        raise AlreadyReported(exit_code)
    if signals:
        raise Stopped(
            f"stopped by {signals[0].name}; finished runs are kept, and the same command resumes",
            exit_code=128 + signals[0],
        )
    return exit_code
