"""nmtkit run."""

from collections.abc import Mapping
from typing import Any

from nmtkit.cli import options as opt
from nmtkit.cli.inputs import load_pipeline
from nmtkit.config.settings import RUNS, Settings
from nmtkit.evaluation.scores import score_table
from nmtkit.rendering.grid import Grid, Row
from nmtkit.rendering.show import Form, show
from nmtkit.stages.pipeline import STAGES, Pipeline
from nmtkit.training.metrics import PAGE


def run(
    recipe: opt.RecipeName,
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
    tensorboard: opt.TensorBoard = None,
    force: opt.Force = False,
    # Output
    as_json: opt.Json = False,
    table: opt.Table = None,
) -> None:
    """Run all unfinished stages, and show the results.

    Example: nmtkit run demo
    """
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
        tensorboard=tensorboard,
    )
    pipeline = load_pipeline(recipe, overrides, settings, list(STAGES) if force else [])
    # Imports the readers of text, after mistakes in the recipe were reported.
    from nmtkit.stages.run_all import run_all

    results = run_all(pipeline)
    form = Form(as_json, table)
    scores = score_table(
        results["scores"], all_kinds=pipeline.recipe.scoring.paper_bleu, run=pipeline.run
    )
    # CSV is one table.
    parts = scores if form.table == "csv" else _summary(results) + scores + _next_steps(pipeline)
    show(form, results, parts)


def _next_steps(pipeline: Pipeline) -> list[Grid | str]:
    """Return suggestions for the next steps."""
    steps: list[Grid | str] = [f"translate what you type: {pipeline.commands.translate()}"]
    # The page is not part of the artifact, and the user may have moved it.
    page = pipeline.need("train").path.with_suffix(PAGE)
    if page.is_file():
        steps.append(f"curves of the training, for a browser: {page}")
    steps.append(
        f"all runs on one page: {pipeline.commands.report()}; two systems side by side: nmtkit "
        "compare"
    )
    return steps


def _summary(results: Mapping[str, Any]) -> list[Grid | str]:
    """Return the tables of a run before its scores: some translations, and the artifacts.

    Args:
        results: The results of `stages.run_all.run_all`.
    """
    samples: list[list[Row]] = []
    for sample in results["samples"]:
        group: list[Row] = [("source", sample["src"])]
        # A test set without references can be translated too.
        if sample["reference"] is not None:
            group.append(("reference", sample["reference"]))
        group.append(("nmtkit", sample["hypothesis"]))
        samples.append(group)
    artifacts: list[Row] = []
    for stage in results["stages"]:
        artifacts.append((stage["name"], stage["summary"], stage["path"]))
    return [
        Grid("some translations of the test set", ("", ""), 2, samples),
        Grid.of("artifacts", ("stage", "", "path"), artifacts, 3),
    ]
