"""nmtkit plan: what a recipe would do and cost, here and elsewhere; changes nothing."""

from typing import Annotated

from nmtkit.benchmark.estimates import DAY, parts_of, work_out
from nmtkit.cli.options import command, option
from nmtkit.reporting.show import Form, show
from nmtkit.stages.pipeline import Pipeline
from nmtkit.utils import progress


@command("nmtkit plan demo", "mirror", "device", "max_tokens", "processes", "dtype", "accelerate")
def plan(
    pipeline: Pipeline,
    form: Form,
    rent: Annotated[
        float | None,
        option(
            "PRICE",
            "Rent of a machine for a day, in your currency, to show what training costs.",
            least=0.0,
            most=1e9,
        ),
    ] = None,
) -> None:
    from nmtkit.stages.train import start_processes
    from nmtkit.training.distributed import join

    # As many processes as would train are timed together; the first of them prints.
    of_rent = [] if rent is None else [f"--rent={rent}"]
    if start_processes(pipeline, ["plan", *pipeline.settings.options(), *form.options(), *of_rent]):
        return
    with join(pipeline.settings.torch_device()) as group:
        progress.console.quiet |= not group.is_first
        planned = work_out(pipeline, group)
        for each in planned["training"]:
            each["rent"] = None if rent is None else [rent * s / DAY for s in each["seconds"]]
        if group.is_first:
            show(form, planned, parts_of(planned))
