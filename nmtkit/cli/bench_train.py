"""nmtkit bench train."""

from functools import partial
from typing import Annotated

from nmtkit.cli.options import Overrides, Seconds, argument, command, load_pipeline, recipe_names
from nmtkit.config.settings import Settings
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
    settings: Settings,
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
    chains = [load_pipeline(recipe, overrides, settings) for recipe in recipes]
    from nmtkit.benchmark.speed import apart, speed_grid, training_speed

    speeds = [
        apart(
            partial(training_speed, seconds=seconds),
            pipeline,
            if_killed=f"the training of {pipeline.recipe.name} was killed, perhaps for lack of "
            "memory; lower --max-tokens",
        )
        for pipeline in chains
    ]
    show(form, speeds, [speed_grid("training", speeds, SPEED)])
