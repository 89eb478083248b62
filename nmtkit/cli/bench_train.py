"""nmtkit bench train."""

from functools import partial
from typing import Annotated

from nmtkit.cli.options import Overrides, Seconds, argument, chain_of, command, recipe_names
from nmtkit.machine import Machine
from nmtkit.reporting.show import Form, show

SPEED = {
    "recipe": "{recipe}",
    "with": "{way}",
    "target tokens/s": "{tgt_tokens_per_second:,.0f}",
    "FLOP/s": "{flops:.2e}",
    "MFU": "{mfu:.1%} of {peak_of}",
    "memory": "{memory}",
    "updates": "{steps:,}",
    "text": "{text}",
}


@command("nmtkit bench train demo --seconds 60", "device", "max_tokens", "dtype", "accelerate")
def bench_train(
    machine: Machine,
    form: Form,
    recipes: Annotated[
        list[str],
        argument(
            "RECIPE...",
            "The recipes whose models to train; nothing is kept.",
            completed=recipe_names,
        ),
    ],
    overrides: Overrides = None,
    seconds: Seconds = 30.0,
) -> None:
    chains = [chain_of(recipe, overrides, machine) for recipe in recipes]
    from nmtkit.cli.bench import apart, speed_grid, training_speed

    speeds = [
        apart(
            partial(training_speed, seconds=seconds),
            chain,
            if_killed=f"the training of {chain.recipe.name} was killed, perhaps for lack of "
            "memory; lower --max-tokens",
        )
        for chain in chains
    ]
    show(form, speeds, [speed_grid("training", speeds, SPEED)])
