"""nmtkit plan."""

from collections.abc import Sequence
from typing import Annotated

import typer

from nmtkit.cli import options as opt
from nmtkit.cli.inputs import load_pipeline, recipe_names
from nmtkit.config.settings import RUNS, Settings
from nmtkit.rendering.show import Form, refuse_csv, show
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError


def plan(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE",
            help="Name of a recipe or a study (see `nmtkit recipes`), or a path such as "
            "./mine.toml.",
            autocompletion=recipe_names,
            show_default=False,
        ),
    ],
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
    # These import pydantic.
    from nmtkit.config.study import is_study
    from nmtkit.store.provenance import split_overrides

    recipe, run_overrides = split_overrides(recipe)
    overrides = [*run_overrides, *(overrides or [])]
    if is_study(recipe):
        _plan_study(recipe, overrides, settings, form)
        return
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


def _plan_study(name: str, overrides: Sequence[str], settings: Settings, form: Form) -> None:
    """Print the cost of the rows of a study.

    Args:
        name: Name or path of the study.
        overrides: Values of --set, for all rows.
    """
    settings.check()
    if settings.n_processes() > 1:
        raise UserError(
            f"{name} is a study, and its plan is measured with one process; omit --processes, or "
            "plan the recipe of the study"
        )
    # Imports torch, after mistakes in the options were reported.
    from nmtkit.benchmark.study_plan import estimate_study, study_plan_parts
    from nmtkit.config.study import load_study
    from nmtkit.study.study_runs import study_pipelines
    from nmtkit.training.distributed import join

    study = load_study(name)
    pipelines = study_pipelines(study, settings, overrides)
    with join(settings.torch_device()) as group:
        estimate = estimate_study(study, pipelines, group)
    show(form, estimate, study_plan_parts(estimate))
