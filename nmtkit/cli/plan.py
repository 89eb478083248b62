"""nmtkit plan."""

from nmtkit.cli import options as opt
from nmtkit.cli.inputs import load_pipeline
from nmtkit.config.settings import RUNS, Settings
from nmtkit.rendering.show import Form, refuse_csv, show
from nmtkit.utils import progress


def plan(
    recipe: opt.RecipeName,
    overrides: opt.Overrides = None,
    # Settings of the machine
    runs_dir: opt.RunsDir = RUNS,
    mirror: opt.Mirror = None,
    device: opt.Device = "auto",
    max_tokens: opt.MaxTokens = None,
    processes: opt.Processes = 1,
    dtype: opt.Dtype = "auto",
    accelerate: opt.AccelerateOption = "auto",
    # Output
    as_json: opt.Json = False,
    table: opt.Table = None,
) -> None:
    """Show what would run, and estimate its time and disk space.

    Example: nmtkit plan demo
    """
    settings = Settings(
        runs_dir,
        mirror=mirror,
        device=device,
        max_tokens=max_tokens,
        processes=processes,
        dtype=dtype,
        accelerate=accelerate,
    )
    form = Form(as_json, table)
    refuse_csv(form)
    pipeline = load_pipeline(recipe, overrides, settings)
    # Imports torch, after mistakes in the recipe were reported.
    from nmtkit.benchmark.estimates import estimate_run, plan_parts
    from nmtkit.stages.training_setup import start_processes
    from nmtkit.training.distributed import join

    # The processes that would train measure their speed together, and the first one prints.
    if start_processes(pipeline, ["plan", *settings.options(), *form.options()]):
        return
    with join(settings.torch_device()) as group:
        if not group.is_first:
            progress.console.quiet = True
        estimate = estimate_run(pipeline, group)
        if group.is_first:
            show(form, estimate, plan_parts(estimate))
