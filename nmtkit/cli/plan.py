"""nmtkit plan: what a recipe would do and cost, here and elsewhere; changes nothing."""

import math
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

from nmtkit.cli.options import command, option
from nmtkit.cli.results import RATE, measured_rows
from nmtkit.cli.status import states
from nmtkit.config.loading import bundled_recipes, load_recipe
from nmtkit.model.flops import training_flops
from nmtkit.model.weights import count_parameters
from nmtkit.reporting.grid import Grid
from nmtkit.reporting.show import Form, show
from nmtkit.reporting.training_cost import BY_TIME, COUNTED, training_cost
from nmtkit.sources.download import find, known_bytes
from nmtkit.stages.pipeline import Pipeline
from nmtkit.utils import progress
from nmtkit.utils.hardware import device_name
from nmtkit.utils.text import duration

if TYPE_CHECKING:
    from nmtkit.training.distributed import Group

Facts = dict[str, Any]  # as --json prints them

TRIAL_SECONDS = 8.0
DAY = 86_400.0  # seconds
LONG, SHORT = 3 * DAY, DAY  # a training that a shorter one is named for, and that one
ALIKE = 2.0  # a model has fewer times the FLOPs of one whose measured speed stands for its own


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


def work_out(pipeline: Pipeline, group: "Group", trial_seconds: float = TRIAL_SECONDS) -> Facts:
    """Work out what `nmtkit run` would do, as one of the processes that would train."""
    from nmtkit.benchmark.trial import measure_speed, text_of
    from nmtkit.stages.train import setup_of
    from nmtkit.training.checkpoint import checkpoints_bytes
    from nmtkit.training.setup import enough_memory, start_trainer

    recipe, training, settings = pipeline.recipe, pipeline.recipe.training, pipeline.settings
    text = text_of(pipeline)
    n_rows = recipe.model.rows_for(text.n_tokens)
    n_parameters = count_parameters(recipe.model, n_rows).total
    flops = training_flops(recipe.model, training, n_rows)
    devices = f"{group.size} processes, each " if group.size > 1 else ""
    devices += group.device.type
    progress.log(
        f"plan: measuring the speed of training on {devices}, for about {trial_seconds:.0f} s "
        "after a first step"
    )
    setup = setup_of(pipeline, group)
    with enough_memory(group.device, setup.max_tokens):
        trainer = start_trainer(setup, text.pairs, n_rows, progress.warn)
        speeds = measure_speed(trainer, trial_seconds)
    disk_bytes = 4 * n_parameters  # of the bundle
    corpora = [corpus for corpora in pipeline.corpora.values() for corpus in corpora]
    if pipeline.find("prepare") is None:
        disk_bytes += sum(corpus.prepared_bytes(settings.downloads_dir) for corpus in corpora)
    if pipeline.find("train") is None:
        disk_bytes += checkpoints_bytes(training, n_parameters)
    files = {file.url: file for corpus in corpora for file in corpus.downloads}
    folder = settings.downloads_dir
    downloads: list[Facts] = [
        {
            "url": url,
            "n_bytes": known_bytes(file, folder),  # None: nobody published it
            "is_here": find(file, folder, settings.mirror) is not None,
        }
        for url, file in files.items()
    ]
    to_fetch = sum(each["n_bytes"] or 0 for each in downloads if not each["is_here"])
    here = _estimate(pipeline, f"here, {devices}", "measured now", speeds)
    seconds = training.max_steps * training.tgt_tokens_per_update / median(speeds)
    return {
        "recipe": recipe.name,
        "stages": states(pipeline),
        "downloads": downloads,
        "download_bytes": to_fetch,  # still
        "disk_bytes": to_fetch + disk_bytes,  # about, of what is still to be made
        "vocabulary_is_known": not text.is_made_up,
        "n_parameters": n_parameters,
        "update_flops": flops / training.max_steps,
        "device": devices,
        "tgt_tokens_per_second": median(speeds),
        "training": [here, *_others(pipeline, here)],
        "cost": training_cost(seconds, group.size, device_name(group.device), flops),
    }


def _estimate(pipeline: Pipeline, where: str, known_from: str, speeds: Sequence[float]) -> Facts:
    """Return how long the recipe trains somewhere: in the fastest round, and in the slowest."""
    n_tokens = pipeline.recipe.training.max_steps * pipeline.recipe.training.tgt_tokens_per_update
    seconds = [n_tokens / max(speeds), n_tokens / min(speeds)]
    facts = {"where": where, "known_from": known_from, "speeds": speeds, "seconds": seconds}
    return {"recipe": pipeline.recipe.name, **facts}


def _flops(pipeline: Pipeline) -> float:
    """Return the FLOPs for a target token, with the vocabulary that is expected."""
    model, training = pipeline.recipe.model, pipeline.recipe.training
    flops = training_flops(model, training, model.rows_for(pipeline.expected_vocabulary()))
    return flops / training.max_steps / training.tgt_tokens_per_update


def _others(pipeline: Pipeline, here: Facts) -> list[Facts]:
    """Return the training on hardware that trained a like model, and a shorter one for here."""
    # The former rest on speeds of pipelines/results/. The latter is the longest of the same
    # languages that fits here; there is none unless `chain` takes days.
    languages = pipeline.recipe.corpus.src_lang, pipeline.recipe.corpus.tgt_lang
    measured = [row for row in measured_rows() if row[2].startswith(RATE)]
    elsewhere, shorter = [], []
    for path in bundled_recipes():
        other = Pipeline(load_recipe(path.stem), pipeline.settings, path.stem)
        ratio = _flops(pipeline) / _flops(other)
        how = "measured" if math.isclose(ratio, 1) else "estimated by FLOPs"
        for recipe, figure, counted, hardware, *_, source in measured:
            if recipe == path.stem and max(ratio, 1 / ratio) < ALIKE:
                speed = float(figure.replace(",", "")) / max(1.0, ratio)  # less work may not help
                where = hardware + counted.removeprefix(RATE)
                known_from = f"{how}: {recipe}, {source}, not verified"
                elsewhere.append(_estimate(pipeline, where, known_from, [speed]))
        if languages == (other.recipe.corpus.src_lang, other.recipe.corpus.tgt_lang):
            speeds = [speed * ratio for speed in here["speeds"]]
            found = _estimate(
                other, here["where"], "estimated by FLOPs: shorter and fits here", speeds
            )
            if found["seconds"][1] < SHORT < LONG < here["seconds"][0]:
                shorter.append(found)
    return [*elsewhere, *sorted(shorter, key=lambda each: max(each["seconds"]))[-1:]]


def parts_of(plan: Facts) -> list[Grid | str]:
    stages = [
        (each.stage, "no" if each.state == "fresh" else "yes", each.why) for each in plan["stages"]
    ]
    downloads, cost = [], plan["cost"]
    for each in plan["downloads"]:
        n_bytes = "unknown" if each["n_bytes"] is None else f"{each['n_bytes']:,}"
        downloads.append((each["url"], "there" if each["is_here"] else "to fetch", n_bytes))
    about = "" if plan["vocabulary_is_known"] else "about "
    rows = [
        ("to download", f"{plan['download_bytes']:,} bytes"),
        ("disk, downloads included", f"about {plan['disk_bytes'] / 2**30:.1f} GiB"),
        ("parameters", f"{about}{plan['n_parameters']:,}"),
        (BY_TIME, f"about {cost.time_flops:.2g} FLOPs" if cost.time_flops else cost.rate_source),
        (COUNTED, f"{about}{cost.product_flops:.2e} FLOPs"),
    ]
    trainings = [
        (
            *(each[key] for key in ("recipe", "where", "known_from")),
            f"{median(each['speeds']):,.0f}",
            " to ".join(dict.fromkeys(map(duration, each["seconds"]))),
            " to ".join(dict.fromkeys(map("{:,.2f}".format, each.get("rent") or []))),
        )
        for each in plan["training"]
    ]
    columns = ("recipe", "where", "known from", RATE, "about", "rent")
    return [
        Grid.of(f"nmtkit plan {plan['recipe']}", ("stage", "would it run?", "why"), stages, 3),
        *([Grid.of("downloads", ("url", "state", "bytes"), downloads, 2)] if downloads else []),
        Grid.of("what it takes", ("", ""), rows, 2),
        Grid.of("what training takes", columns, trainings, 3).filled(),
    ]
