"""nmtkit bench train."""

import os
from functools import partial
from typing import Annotated

import typer

from nmtkit.cli.options import Overrides, Seconds, chain_of, command, recipe_names
from nmtkit.machine import Machine
from nmtkit.reporting.show import Form, show

SPEED = {
    "recipe": "{recipe}",
    "with": "{way}",
    "text": "{text}",
    "target tokens/s": "{tgt_tokens_per_second:,.0f}",
    "FLOP/s": "{flops:.2e}",
    "MFU": "{mfu:.1%} of {peak_of}",
    "memory": "{memory}",
    "updates": "{steps:,}",
    "start, s": "{start_seconds:.1f}",
}


@command("nmtkit bench train demo --seconds 60", "device", "max_tokens", "dtype")
def bench_train(
    machine: Machine,
    form: Form,
    recipes: Annotated[
        list[str],
        typer.Argument(
            metavar="RECIPE...",
            autocompletion=recipe_names,
            help="The recipes whose models to train; nothing is kept.",
        ),
    ],
    overrides: Overrides = None,
    seconds: Seconds = 30.0,
) -> None:
    """Measure training: tokens/s, MFU, memory, shares of a step's time."""
    chains = [chain_of(recipe, overrides, machine) for recipe in recipes]
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # or torch's profiler prints messages
    from nmtkit.cli.bench import NAMES, apart, speed_grid, training_speed

    speeds = [
        apart(
            partial(training_speed, seconds=seconds),
            chain,
            if_killed=f"the training of {chain.recipe.name} was killed, perhaps for lack of "
            "memory; lower --max-tokens",
        )
        for chain in chains
    ]
    shares = {"recipe": "{recipe}", **{name: f"{{parts[{name}]:.1%}}" for name in NAMES}}
    tables = [
        speed_grid("training", speeds, 3, SPEED),
        speed_grid("shares of a step's time", speeds, 1, shares),
    ]
    show(form, speeds, tables)
