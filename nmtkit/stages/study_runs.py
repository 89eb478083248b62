"""The runs of a study: run the rows that are not done, and collect their figures."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from nmtkit.config.loading import load_recipe
from nmtkit.config.settings import Settings
from nmtkit.config.study import Row, Study
from nmtkit.corpus.prepared import PreparedCorpus
from nmtkit.evaluation.translations import read_scores
from nmtkit.model.weights import count_parameters
from nmtkit.reporting.study_table import Spread, StudyRow, StudyRun, StudyTable, run_score
from nmtkit.sources.kinds import source_name
from nmtkit.stages.listing import without_damaged
from nmtkit.stages.pipeline import Pipeline
from nmtkit.stages.states import states
from nmtkit.store.locks import BusyError
from nmtkit.store.manifests import compute_fingerprint
from nmtkit.store.provenance import run_arguments
from nmtkit.training.metrics import read_published
from nmtkit.training.signals import AGENT, on_stop_signal
from nmtkit.utils import progress
from nmtkit.utils.child_processes import nmtkit_command
from nmtkit.utils.errors import Stopped, UserError

Pipelines = Mapping[str, Mapping[str, Pipeline]]  # by row, and by the name of a run

LOCKS = "study"  # the folder of locks, next to those of the stages
FINISHED = "finished"
DIVERGED = "diverged"
RUNNING = "running"
STOPPED = "stopped"
DAMAGED = "damaged"
NOT_RUN = "not run"
# The state of a run by the state of its first stage that has one of these.
RUN_STATES = {
    "damaged": DAMAGED,
    "unknown": NOT_RUN,  # for example, a text of the recipe is missing
    "running": RUNNING,
    "diverged": DIVERGED,
    "partial": STOPPED,
    "stale": STOPPED,
}
# Fields of `Settings` that `nmtkit prepare` has no options for.
TRAINING_SETTINGS = (
    "device",
    "max_tokens",
    "processes",
    "dtype",
    "accelerate",
    "deterministic",
    "tensorboard",
)


def study_pipelines(study: Study, settings: Settings, overrides: Sequence[str] = ()) -> Pipelines:
    """Load the recipes of all runs of a study.

    Args:
        study: The study.
        settings: Settings of the machine.
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


# Running


def run_rows(rows: Sequence[Row], pipelines: Pipelines) -> list[str]:
    """Run the rows that are not finished, every run in a process of its own.

    All rows run with their first seed before any runs with its second, so that the table is
    useful early.

    Args:
        rows: The rows to run.
        pipelines: The pipelines of all rows.

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
            with pipeline.store.lock(LOCKS, _lock_name(pipeline), note={}):
                is_done = _run_row(label, pipeline)
        except BusyError as error:
            # Another process runs it, which reports its failure.
            progress.log(f"{label}: {error}")
        else:
            if not is_done:
                failed.append(name)
    return failed


def _run_row(label: str, pipeline: Pipeline) -> bool:
    """Run a recipe, unless it is finished or has diverged.

    Args:
        label: Prefix of messages.
        pipeline: The pipeline of the recipe.

    Returns:
        Whether it is finished, or has diverged, so that another run would not help.
    """
    state, why = _run_state(pipeline)
    if state not in (FINISHED, DIVERGED):
        progress.log(f"{label}: nmtkit run {run_arguments(pipeline.command, pipeline.overrides)}")
        _run_nmtkit(pipeline, ["run", *pipeline.settings.options()])
        state, why = _run_state(pipeline)
    progress.log(f"{label}: {state}, {why}" if why else f"{label}: {state}")
    return state in (FINISHED, DIVERGED)


def _prepare(pipeline: Pipeline) -> None:
    """Prepare the corpus, or wait for another process that prepares it."""
    if pipeline.find("prepare"):
        return
    with pipeline.store.lock(LOCKS, pipeline.fingerprint("prepare"), {}, progress.log):
        if pipeline.find("prepare"):  # another process prepared it meanwhile
            return
        options = pipeline.settings.options(exclude=TRAINING_SETTINGS)
        if _run_nmtkit(pipeline, ["prepare", *options]) != 0:
            raise UserError("the corpus of the study could not be prepared, see the error above")


def _lock_name(pipeline: Pipeline) -> str:
    """Return the name of the lock of a run."""
    # A table is also shown when texts are missing, so this is not the fingerprint of a stage.
    return compute_fingerprint(LOCKS, pipeline.recipe.model_dump(mode="json"))


def _run_nmtkit(pipeline: Pipeline, command: Sequence[str]) -> int:
    """Run a command on a recipe in a child process.

    Args:
        pipeline: The pipeline of the recipe.
        command: The name of the command, such as "run", and its options.

    Returns:
        The exit code.

    Raises:
        Stopped: A signal stopped this process. The child has exited by then.
    """
    signals: list[signal.Signals] = []

    def forward(number: signal.Signals) -> None:
        signals.append(number)
        process.send_signal(number)

    with (
        subprocess.Popen(  # noqa: S603 - nmtkit itself
            nmtkit_command(*pipeline.child_arguments(command)),
            env={**os.environ, AGENT: str(os.getpid())},
            stdout=subprocess.DEVNULL,
            process_group=0,  # Ctrl-C reaches this process only, which forwards it once
        ) as process,
        on_stop_signal(forward),
    ):
        exit_code = process.wait()
    if signals:
        raise Stopped(
            f"stopped by {signals[0].name}; finished runs are kept, and the same command resumes",
            exit_code=128 + signals[0],
        )
    return exit_code


# The table


def study_table(study: Study, pipelines: Pipelines) -> StudyTable:
    """Collect the figures of all rows of a study.

    Args:
        study: The study.
        pipelines: The pipelines of all rows.
    """
    rows = []
    for row in study.rows:
        rows.append(_study_row(study, row, pipelines[row.name]))
    return StudyTable(study.name, study.description, study.bleu, rows)


def _study_row(study: Study, row: Row, pipelines: Mapping[str, Pipeline]) -> StudyRow:
    """Collect the figures of a row.

    Args:
        study: The study.
        row: The row.
        pipelines: Its pipelines, by the name of the run.
    """
    first = next(iter(pipelines.values()))
    published = row.published.model_dump(exclude_none=True)
    # Overrides of the user may have selected another test set.
    if study.published_test_set not in (None, source_name(first.recipe.test.sets[0])):
        published = {}
    # The corpus knows the vocabulary; without it, the number of parameters is an estimate.
    n_tokens = first.expected_vocabulary()
    with suppress(UserError), without_damaged(first.store.folder):
        prepared = first.find("prepare")
        if prepared is not None:
            n_tokens = PreparedCorpus(prepared).counts().vocabulary
    model = first.recipe.model
    changes = [override.partition(".")[2] for override in row.set]
    if row.recipe:
        changes.insert(0, row.recipe)
    runs = [_study_run(name, pipeline) for name, pipeline in pipelines.items()]
    return StudyRow(
        name=row.name,
        change=", ".join(changes),
        n_parameters=count_parameters(model, model.embedding_rows(n_tokens)).total,
        published=published,
        dev_perplexity=Spread.of([run.dev_perplexity for run in runs]),
        score=Spread.of([run_score(run, study.bleu) for run in runs]),
        runs=runs,
    )


def _study_run(name: str, pipeline: Pipeline) -> StudyRun:
    """Collect the figures of a run, or the reason why it has none.

    Args:
        name: Name of the run.
        pipeline: Its pipeline.
    """
    state, why = _run_state(pipeline)
    figures: dict[str, Any] = {}
    if state == FINISHED:
        try:
            figures = _figures(pipeline)
        except UserError as error:
            state = DAMAGED
            why = str(error)
    else:
        # Between two stages of a run, only the lock of the study shows that it is running.
        holder = pipeline.store.holder(LOCKS, _lock_name(pipeline))
        if holder is not None:
            state = RUNNING
            why = f"by {holder}"
    run = run_arguments(pipeline.command, pipeline.overrides)
    return StudyRun(name, pipeline.recipe.training.seed, run, state, why, **figures)


def _run_state(pipeline: Pipeline) -> tuple[str, str]:
    """Return the state of a run, and its reason."""
    _, *stages = states(pipeline)  # all rows share the corpus, so `prepare` does not count
    if stages[-1].state == "fresh":
        return FINISHED, ""
    for stage in stages:
        if stage.state in RUN_STATES:
            return RUN_STATES[stage.state], stage.why
    if stages[0].state == "fresh":
        return STOPPED, "trained, not scored yet"
    return NOT_RUN, ""


def _figures(pipeline: Pipeline) -> dict[str, Any]:
    """Return the figures of a finished run, by the names of the fields of `StudyRun`."""
    from nmtkit.decoding.bundle import averaged_steps  # imports torch

    # Dev perplexity is measured before averaging: that of the last checkpoint is the closest.
    trained = pipeline.need("train")
    step = averaged_steps(pipeline.need("average"))[-1]
    dev_perplexity = None
    for line in read_published(trained.path, step, progress.warn_once):
        if line["step"] == step:
            dev_perplexity = line.get("dev_perplexity")
    return {
        "scored": pipeline.fingerprint("score"),
        "steps": step,
        "dev_perplexity": dev_perplexity,
        "scores": read_scores(pipeline.need("score")),
    }
