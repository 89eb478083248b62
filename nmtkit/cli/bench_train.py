"""nmtkit bench train."""

from functools import partial
from typing import Annotated

import typer

from nmtkit.cli import options as opt
from nmtkit.cli.inputs import load_pipeline, recipe_names
from nmtkit.config.settings import RUNS, Settings
from nmtkit.rendering.show import Form, show

COLUMNS = {
    "recipe": "{recipe}",
    "with": "{way}",
    "target tokens/s": "{tgt_tokens_per_second:,.0f}",
    "FLOP/s": "{flops:.2e}",
    "MFU": "{mfu:.1%} of {peak_of}",
    "memory": "{memory}",
    "updates": "{steps:,}",
    "text": "{text}",
}


def bench_train(
    recipes: Annotated[
        list[str],
        typer.Argument(
            metavar="RECIPE...",
            help="Recipes whose models are measured; no weights are kept.",
            autocompletion=recipe_names,
            show_default=False,
        ),
    ],
    overrides: opt.Overrides = None,
    seconds: Annotated[
        float,
        typer.Option(
            "--seconds", metavar="N", help="Seconds per measurement.", min=0.1, max=86_400
        ),
    ] = 30.0,
    # Settings of the machine
    runs_dir: opt.RunsDir = RUNS,
    device: opt.Device = "auto",
    max_tokens: opt.MaxTokens = None,
    dtype: opt.Dtype = "auto",
    accelerate: opt.AccelerateOption = "auto",
    # Output
    as_json: opt.Json = False,
    table: opt.Table = None,
) -> None:
    """Measure training: target tokens/s, MFU, memory.

    Example: nmtkit bench train demo --seconds 60
    """
    settings = Settings(
        runs_dir, device=device, max_tokens=max_tokens, dtype=dtype, accelerate=accelerate
    )
    pipelines = [load_pipeline(recipe, overrides, settings) for recipe in recipes]
    from nmtkit.benchmark.speed import (  # imports torch
        measure_in_process,
        speed_grid,
        training_speed,
    )

    # Each recipe runs in a process of its own, whose peak of memory is its own.
    measure = partial(training_speed, seconds=seconds)
    speeds = []
    for pipeline in pipelines:
        if_killed = (
            f"the training of {pipeline.recipe.name} was killed, possibly for lack of memory; "
            "lower --max-tokens"
        )
        speeds.append(measure_in_process(measure, pipeline, if_killed=if_killed))
    show(Form(as_json, table), speeds, [speed_grid("training", speeds, COLUMNS)])
