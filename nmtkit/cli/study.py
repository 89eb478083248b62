"""nmtkit study: run the rows of a study, each as an ordinary run, and fill its table."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import zip_longest
from typing import Annotated, Any

from nmtkit.cli.options import TRAINING_OPTIONS, Overrides, argument, command, option
from nmtkit.cli.status import states
from nmtkit.config.loading import load_recipe
from nmtkit.config.settings import Settings
from nmtkit.config.study import Row, Study, load_study
from nmtkit.corpus.prepared import PreparedCorpus
from nmtkit.evaluation.translations import read_scores
from nmtkit.model.weights import count_parameters
from nmtkit.reporting.show import Form, show
from nmtkit.reporting.study_table import (
    Spread,
    StudyRow,
    StudyRun,
    StudyTable,
    score_of,
    study_parts,
)
from nmtkit.stages.listing import without_damaged
from nmtkit.stages.pipeline import Pipeline
from nmtkit.store.locks import BusyError
from nmtkit.store.manifests import fingerprint_of
from nmtkit.store.provenance import run_of
from nmtkit.training.metrics import read_published
from nmtkit.training.signals import AGENT, on_stop_signal
from nmtkit.utils import progress
from nmtkit.utils.child_processes import nmtkit_command
from nmtkit.utils.errors import Stopped, UserError

CLAIMS = "study"  # the folder of locks, beside those of the stages
# What a run is called whose first such stage is in one of these states.
STATES = {
    "damaged": "damaged",
    "unknown": "not run",  # such as for a test set whose hash nobody knows yet
    "running": "being made",
    "diverged": "diverged",
    "partial": "stopped",
    "stale": "stopped",
}


@command(
    "nmtkit study table-3-multi30k --rows 'base,A-*'",
    *("mirror", "device", "max_tokens", "workers", "processes", "dtype", "accelerate"),
    "deterministic",
)
def study(
    name: Annotated[
        str,
        argument("STUDY", "The name of a study, such as table-3, or a path such as ./mine.toml."),
    ],
    settings: Settings,
    form: Form,
    rows: Annotated[
        str | None, option("ROW,...", "Run these rows: names, or patterns such as 'A-*'.")
    ] = None,
    overrides: Overrides = None,
) -> None:
    loaded = load_study(name)
    chains = chains_of(loaded, settings, overrides or [])
    failed = run_rows(loaded.chosen(rows), chains)
    reached = table(loaded, chains)
    show(form, reached, study_parts(reached, form))
    if failed:
        raise UserError(
            f"of study {name}, {', '.join(failed)} failed, as said above; run the same command "
            "again: finished runs are kept"
        )


Chains = Mapping[str, Mapping[str, Pipeline]]  # by row, and by the name of a run


def chains_of(study: Study, settings: Settings, overrides: Sequence[str] = ()) -> Chains:
    chains: dict[str, dict[str, Pipeline]] = {row.name: {} for row in study.rows}
    for row in study.rows:
        recipe = row.recipe or study.recipe
        for name, of_run in study.runs_of(row, overrides).items():
            try:
                loaded = load_recipe(recipe, of_run)
            except UserError as error:
                raise UserError(f"row {row.name} of study {study.name}: {error}") from None
            chains[row.name][name] = Pipeline(loaded, settings, recipe, of_run)
    return chains


# Running


def run_rows(rows: Sequence[Row], chains: Chains) -> list[str]:
    """Run what is not done, each in its own process, and return the names of those that fail.

    All rows run with their first seed before any runs with its second: the table fills early.
    """
    for row in rows:
        _prepare(next(iter(chains[row.name].values())))  # no seed changes it
    by_seed = zip_longest(*(chains[row.name].items() for row in rows))
    runs = [run for of_seed in by_seed for run in of_seed if run]
    failed = []
    for number, (name, pipeline) in enumerate(runs, 1):
        of_all = f"study: {name} ({number:,} of {len(runs):,})"
        try:
            with pipeline.store.lock(CLAIMS, _claim(pipeline), note={}):
                state, why = _state(pipeline)
                if state not in ("finished", "diverged"):
                    progress.log(
                        f"{of_all}: nmtkit run {run_of(pipeline.command, pipeline.overrides)}"
                    )
                    _nmtkit("run", pipeline, pipeline.settings.options())
                    state, why = _state(pipeline)
                if state not in ("finished", "diverged"):
                    failed.append(name)
                progress.log(f"{of_all}: {state}{f', {why}' if why else ''}")
        except BusyError as error:  # another process makes it
            progress.log(f"{of_all}: {error}")
    return failed


def _prepare(pipeline: Pipeline) -> None:
    """Have the corpus prepared by this process, or wait for another one that shares it."""
    if pipeline.find("prepare"):
        return
    with pipeline.store.lock(CLAIMS, pipeline.fingerprint("prepare"), {}, progress.log):
        options = pipeline.settings.options(exclude=TRAINING_OPTIONS)
        if pipeline.find("prepare") is None and _nmtkit("prepare", pipeline, options):
            raise UserError("the corpus of the study was not prepared, as said above")


def _claim(pipeline: Pipeline) -> str:
    return fingerprint_of(CLAIMS, pipeline.recipe.model_dump(mode="json"))


def _nmtkit(command: str, pipeline: Pipeline, options: Sequence[str]) -> int:
    """Run a command on a recipe in a process of its own, and return its exit code."""
    quiet = ["--quiet"] if progress.console.quiet else []
    overrides = [f"--set={override}" for override in pipeline.overrides]
    words = [*quiet, command, *options, *overrides, "--", pipeline.command]
    signals: list[signal.Signals] = []

    def pass_on(number: signal.Signals) -> None:
        signals.append(number)
        process.send_signal(number)

    with (
        subprocess.Popen(  # noqa: S603 - nmtkit itself
            nmtkit_command(*words),
            env={**os.environ, AGENT: str(os.getpid())},
            stdout=subprocess.DEVNULL,
            process_group=0,  # Ctrl-C comes to this process, which passes it on once
        ) as process,
        on_stop_signal(pass_on),
    ):
        code = process.wait()
    if signals:
        raise Stopped(
            f"stopped by {signals[0].name}; finished runs are kept, and the same command resumes",
            exit_code=128 + signals[0],
        )
    return code


# The table


def table(study: Study, chains: Chains) -> StudyTable:
    rows = [_row(row, chains, study.bleu) for row in study.rows]
    return StudyTable(study.name, study.description, study.bleu, rows)


def _row(row: Row, chains: Chains, bleu: str) -> StudyRow:
    first, *_ = chains[row.name].values()
    n_tokens = first.expected_vocabulary()
    with suppress(UserError), without_damaged(first.store.folder):
        if prepared := first.find("prepare"):
            n_tokens = PreparedCorpus(prepared).counts().vocabulary
    model = first.recipe.model
    changes = [override.partition(".")[2] for override in row.set]
    runs = [_run(name, pipeline) for name, pipeline in chains[row.name].items()]
    return StudyRow(
        name=row.name,
        change=", ".join([row.recipe, *changes] if row.recipe else changes),
        n_parameters=count_parameters(model, model.rows_for(n_tokens)).total,
        published=row.published.model_dump(exclude_none=True),
        dev_perplexity=Spread.of([run.dev_perplexity for run in runs]),
        score=Spread.of([score_of(run, bleu) for run in runs]),
        runs=runs,
    )


def _run(name: str, pipeline: Pipeline) -> StudyRun:
    state, why = _state(pipeline)
    if state != "finished" and (holder := pipeline.store.holder(CLAIMS, _claim(pipeline))):
        state, why = "being made", f"by {holder}"
    reached: dict[str, Any] = {}
    if state == "finished":
        try:
            reached = _reached(pipeline)
        except UserError as error:
            state, why = "damaged", str(error)
    seed, command = pipeline.recipe.training.seed, run_of(pipeline.command, pipeline.overrides)
    return StudyRun(name, seed, command, state, why, **reached)


def _state(pipeline: Pipeline) -> tuple[str, str]:
    _, *of_row = states(pipeline)  # the corpus is of all rows
    if of_row[-1].state == "fresh":
        return "finished", ""
    for each in of_row:
        if each.state in STATES:
            return STATES[each.state], each.why
    if of_row[0].state == "fresh":
        return "stopped", "trained, not scored yet"
    return "not run", ""


def _reached(pipeline: Pipeline) -> dict[str, Any]:
    from nmtkit.stages.average import averaged_steps  # imports torch

    trained, scored = pipeline.need("train"), pipeline.need("score")
    step = averaged_steps(pipeline.need("average"))[-1]
    read = read_published(trained.path, step, progress.warn_once)
    lines = {line["step"]: line for line in read}
    return {
        "scored": pipeline.fingerprint("score"),
        "steps": step,
        "dev_perplexity": lines.get(step, {}).get("dev_perplexity"),
        "scores": read_scores(scored),
    }
