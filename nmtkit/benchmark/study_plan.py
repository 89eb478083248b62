"""Estimates of the time and disk space that the unfinished runs of a study need here."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.filesize import decimal

from nmtkit.benchmark.estimates import (
    CONDITIONS,
    estimate_run,
    estimate_training,
    find_downloads,
    flops_per_token,
    prepared_bytes,
    trained_bytes,
)
from nmtkit.config.study import Study
from nmtkit.model.weights import count_parameters
from nmtkit.rendering.grid import Grid, Row
from nmtkit.store.records import canonical_json
from nmtkit.study.figures import DIVERGED, FINISHED, Pipelines, run_state
from nmtkit.utils.text import round_estimate, rounded_duration

if TYPE_CHECKING:
    from nmtkit.training.distributed import Group


@dataclass(frozen=True)
class RowPlan:
    """The cost of a row, whose runs differ only in their seeds."""

    name: str
    n_runs: int
    n_left: int  # runs that are not finished
    n_parameters: int
    seconds_per_run: float  # of the training
    disk_bytes: int  # of the runs that are not finished


@dataclass(frozen=True)
class StudyPlan:
    """What `nmtkit study` would run, and its cost."""

    study: str
    device: str
    rows: list[RowPlan]
    seconds: float  # of all trainings that are left, one after the other
    download_bytes: int
    disk_bytes: int  # downloads and prepared corpora included


def estimate_study(study: Study, pipelines: Pipelines, group: "Group") -> StudyPlan:
    """Estimate the cost of a study from a short trial of its first row.

    The other rows are assumed to compute as many FLOPs per second.

    Args:
        pipelines: The pipelines of its runs.
        group: The process that would train.
    """
    first = next(iter(pipelines[study.rows[0].name].values()))
    measured = estimate_run(first, group)
    is_gpu = group.device.type == "cuda"

    rows = []
    n_bytes_by_url = {}
    # Rows share prepared corpora, which count once.
    prepared = {}
    for name, runs in pipelines.items():
        pipeline = next(iter(runs.values()))
        left = [run for run in runs.values() if run_state(run)[0] not in (FINISHED, DIVERGED)]
        recipe = pipeline.recipe
        n_rows = recipe.model.embedding_rows(pipeline.expected_vocabulary())
        n_parameters = count_parameters(recipe.model, n_rows).total
        ratio = flops_per_token(first) / flops_per_token(pipeline)
        speed = measured.tgt_tokens_per_second * ratio
        seconds = estimate_training(pipeline, "", "", speed, is_gpu=is_gpu).seconds
        n_bytes = sum(trained_bytes(run, n_parameters) for run in left)
        rows.append(RowPlan(name, len(runs), len(left), n_parameters, seconds, n_bytes))
        if left:
            for file in find_downloads(pipeline):
                n_bytes_by_url[file.url] = 0 if file.is_here else file.n_bytes or 0
            corpus = canonical_json([recipe.section("corpus"), recipe.section("subword")])
            prepared[corpus] = prepared_bytes(pipeline)

    download_bytes = sum(n_bytes_by_url.values())
    row_bytes = sum(row.disk_bytes for row in rows)
    return StudyPlan(
        study=study.name,
        device=measured.device,
        rows=rows,
        seconds=sum(row.n_left * row.seconds_per_run for row in rows),
        download_bytes=download_bytes,
        disk_bytes=row_bytes + download_bytes + sum(prepared.values()),
    )


def study_plan_parts(plan: StudyPlan) -> list[Grid | str]:
    """Return the table of a plan: the cost of every row, and of all."""
    rows: list[Row] = []
    for row in plan.rows:
        rows.append(
            (
                row.name,
                f"{row.n_runs:,}",
                f"{row.n_runs - row.n_left:,}",
                f"about {round_estimate(row.n_parameters):,}",
                rounded_duration(row.seconds_per_run),
                f"about {decimal(round_estimate(row.disk_bytes))}" if row.n_left else "",
            )
        )
    columns = ("row", "runs", "finished", "parameters", f"time per run, {plan.device}", "disk")
    n_left = sum(row.n_left for row in plan.rows)
    parts: list[Grid | str] = [Grid.of(f"nmtkit plan {plan.study}", columns, rows, 1)]
    if not n_left:
        return [*parts, "nothing to run: all runs are finished"]
    return [
        *parts,
        f"{n_left:,} runs are left. One after the other, they take about "
        f"{rounded_duration(plan.seconds)} here and {decimal(round_estimate(plan.disk_bytes))} of "
        f"disk space, {decimal(plan.download_bytes)} of it for downloads.",
        f"The speed was measured for {plan.rows[0].name}, and estimated by FLOPs for the other "
        f"rows. {CONDITIONS}",
    ]
