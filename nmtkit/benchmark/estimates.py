"""Estimates of the time, memory and disk space of a recipe, on this machine and on others."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from nmtkit.config.loading import bundled_recipes, load_recipe
from nmtkit.model.flops import training_flops
from nmtkit.model.weights import count_parameters
from nmtkit.reporting.grid import Grid, Row
from nmtkit.reporting.results import RATE, measured_results
from nmtkit.reporting.training_cost import BY_TIME, COUNTED, TrainingCost, training_cost
from nmtkit.sources.download import find, known_bytes
from nmtkit.stages.pipeline import Pipeline
from nmtkit.stages.states import State, states
from nmtkit.utils import progress
from nmtkit.utils.hardware import device_name
from nmtkit.utils.text import duration

if TYPE_CHECKING:
    from nmtkit.training.distributed import Group

TRIAL_SECONDS = 8.0
DAY = 86_400.0  # seconds
# Next to a training that takes longer than LONG here, one that takes less than SHORT is listed.
LONG = 3 * DAY
SHORT = DAY
# The measured speed of a model is used for another one up to this ratio of their FLOPs per token.
MAX_FLOPS_RATIO = 2.0
FLOAT32_BYTES = 4


@dataclass(frozen=True)
class Download:
    """A file that the recipe reads from the network."""

    url: str
    n_bytes: int | None  # None: neither published nor known from an earlier download
    is_here: bool


@dataclass(frozen=True)
class TrainingEstimate:
    """The duration of a training on some hardware."""

    recipe: str
    where: str  # the hardware
    known_from: str  # the source of the speed
    speeds: Sequence[float]  # target tokens/s, in all processes together
    seconds: tuple[float, float]  # of the training, at the highest and at the lowest speed
    rent: tuple[float, float] | None  # of the hardware for that time, if a price is known


@dataclass(frozen=True)
class Plan:
    """What `nmtkit run` would do, and its cost."""

    recipe: str
    stages: list[State]
    downloads: list[Download]
    download_bytes: int  # of files that are not here and whose size is known
    disk_bytes: int  # estimate for downloads and artifacts that are missing
    vocabulary_is_known: bool  # False: n_parameters is an estimate
    n_parameters: int
    update_flops: float
    device: str
    tgt_tokens_per_second: float
    training: list[TrainingEstimate]  # here, elsewhere, and of a shorter recipe
    cost: TrainingCost


def work_out(
    pipeline: Pipeline,
    group: "Group",
    trial_seconds: float = TRIAL_SECONDS,
    rent_per_day: float | None = None,
) -> Plan:
    """Estimate what `nmtkit run` would take, from a short trial of its training.

    Args:
        pipeline: The stages of the recipe.
        group: The processes that would train. All of them call this.
        trial_seconds: Duration of the trial after its first step.
        rent_per_day: Price of the hardware.
    """
    from nmtkit.benchmark.trial import measure_speed, trial_text
    from nmtkit.stages.training_setup import setup_of
    from nmtkit.training.checkpoint import checkpoints_bytes
    from nmtkit.training.setup import enough_memory, start_trainer

    recipe = pipeline.recipe
    training = recipe.training
    settings = pipeline.settings
    text = trial_text(pipeline)
    n_rows = recipe.model.rows_for(text.n_tokens)
    n_parameters = count_parameters(recipe.model, n_rows).total
    flops = training_flops(recipe.model, training, n_rows)
    device = group.device.type
    if group.size > 1:
        device = f"{group.size} processes, each {device}"

    progress.log(
        f"plan: measuring the speed of training on {device}, for about {trial_seconds:.0f} s after "
        "a first step"
    )
    setup = setup_of(pipeline, group)
    with enough_memory(group.device, setup.max_tokens):
        trainer = start_trainer(setup, text.pairs, n_rows, progress.warn)
        speeds = measure_speed(trainer, trial_seconds)

    corpora = [corpus for corpora in pipeline.corpora.values() for corpus in corpora]
    files = {}  # by URL: several corpora may share a file
    for corpus in corpora:
        for file in corpus.downloads:
            files[file.url] = file
    downloads = []
    download_bytes = 0
    for file in files.values():
        n_bytes = known_bytes(file, settings.downloads_dir)
        is_here = find(file, settings.downloads_dir, settings.mirror) is not None
        downloads.append(Download(file.url, n_bytes, is_here))
        if not is_here:
            download_bytes += n_bytes or 0

    disk_bytes = download_bytes + FLOAT32_BYTES * n_parameters  # of the bundle
    if pipeline.find("prepare") is None:
        disk_bytes += sum(corpus.prepared_bytes(settings.downloads_dir) for corpus in corpora)
    if pipeline.find("train") is None:
        disk_bytes += checkpoints_bytes(training, n_parameters)

    here = _estimate(pipeline, f"here, {device}", "measured now", speeds, rent_per_day)
    seconds = training.max_steps * training.tgt_tokens_per_update / median(speeds)
    return Plan(
        recipe=recipe.name,
        stages=states(pipeline),
        downloads=downloads,
        download_bytes=download_bytes,
        disk_bytes=disk_bytes,
        vocabulary_is_known=not text.is_generated,
        n_parameters=n_parameters,
        update_flops=flops / training.max_steps,
        device=device,
        tgt_tokens_per_second=median(speeds),
        training=[
            here,
            *_elsewhere(pipeline, rent_per_day),
            *_shorter(pipeline, here, rent_per_day),
        ],
        cost=training_cost(seconds, group.size, device_name(group.device), flops),
    )


def _estimate(
    pipeline: Pipeline,
    where: str,
    known_from: str,
    speeds: Sequence[float],
    rent_per_day: float | None = None,
) -> TrainingEstimate:
    """Return the duration of the recipe's training at some `speeds`, in target tokens/s."""
    training = pipeline.recipe.training
    n_tokens = training.max_steps * training.tgt_tokens_per_update
    seconds = (n_tokens / max(speeds), n_tokens / min(speeds))
    rent = None
    if rent_per_day is not None:
        rent = (rent_per_day * seconds[0] / DAY, rent_per_day * seconds[1] / DAY)
    return TrainingEstimate(pipeline.recipe.name, where, known_from, speeds, seconds, rent)


def _flops_per_token(pipeline: Pipeline) -> float:
    """Return the FLOPs per target token, with the vocabulary that is expected."""
    model = pipeline.recipe.model
    training = pipeline.recipe.training
    flops = training_flops(model, training, model.rows_for(pipeline.expected_vocabulary()))
    return flops / training.max_steps / training.tgt_tokens_per_update


def _elsewhere(pipeline: Pipeline, rent_per_day: float | None = None) -> list[TrainingEstimate]:
    """Estimate the training on hardware on which a similar model was measured."""
    names = {path.stem for path in bundled_recipes()}
    estimates = []
    for result in measured_results():
        if not isinstance(result.figure, int) or result.recipe not in names:
            continue
        measured = Pipeline(load_recipe(result.recipe), pipeline.settings, result.recipe)
        ratio = _flops_per_token(pipeline) / _flops_per_token(measured)
        if max(ratio, 1 / ratio) >= MAX_FLOPS_RATIO:
            continue
        method = "measured" if math.isclose(ratio, 1) else "estimated by FLOPs"
        known_from = f"{method}: {result.recipe}, {result.source}, not verified"
        # A smaller model is not assumed to be faster: kernels may be too small for the hardware.
        speed = result.figure / max(1.0, ratio)
        estimate = _estimate(pipeline, result.hardware, known_from, [speed], rent_per_day)
        estimates.append(estimate)
    return estimates


def _shorter(
    pipeline: Pipeline, here: TrainingEstimate, rent_per_day: float | None = None
) -> list[TrainingEstimate]:
    """Find the longest training of the same languages that takes less than a day here.

    Returns:
        One estimate, or none, also if the recipe's own training does not take days.
    """
    if here.seconds[0] <= LONG:
        return []
    corpus = pipeline.recipe.corpus
    known_from = "estimated by FLOPs: shorter and fits here"
    longest = None
    for path in bundled_recipes():
        other = Pipeline(load_recipe(path.stem), pipeline.settings, path.stem)
        other_corpus = other.recipe.corpus
        languages = (other_corpus.src_lang, other_corpus.tgt_lang)
        if languages != (corpus.src_lang, corpus.tgt_lang):
            continue
        ratio = _flops_per_token(pipeline) / _flops_per_token(other)
        speeds = [speed * ratio for speed in here.speeds]
        estimate = _estimate(other, here.where, known_from, speeds, rent_per_day)
        is_longer = longest is None or estimate.seconds[1] > longest.seconds[1]
        if estimate.seconds[1] < SHORT and is_longer:
            longest = estimate
    return [] if longest is None else [longest]


def parts_of(plan: Plan) -> list[Grid | str]:
    """Return the tables of a plan: stages, downloads, cost and training times."""
    stages: list[Row] = []
    for state in plan.stages:
        stages.append((state.stage, "no" if state.state == "fresh" else "yes", state.why))
    parts: list[Grid | str] = [
        Grid.of(f"nmtkit plan {plan.recipe}", ("stage", "would it run?", "why"), stages, 3)
    ]

    downloads: list[Row] = []
    for download in plan.downloads:
        n_bytes = "unknown" if download.n_bytes is None else f"{download.n_bytes:,}"
        downloads.append((download.url, "there" if download.is_here else "to fetch", n_bytes))
    if downloads:
        parts.append(Grid.of("downloads", ("url", "state", "bytes"), downloads, 2))

    about = "" if plan.vocabulary_is_known else "about "
    cost = plan.cost
    by_time = f"about {cost.time_flops:.2g} FLOPs" if cost.time_flops else cost.rate_source
    rows = [
        ("to download", f"{plan.download_bytes:,} bytes"),
        ("disk, downloads included", f"about {plan.disk_bytes / 2**30:.1f} GiB"),
        ("parameters", f"{about}{plan.n_parameters:,}"),
        (BY_TIME, by_time),
        (COUNTED, f"{about}{cost.product_flops:.2e} FLOPs"),
    ]
    parts.append(Grid.of("cost", ("", ""), rows, 2))

    trainings: list[Row] = []
    for training in plan.training:
        fastest, slowest = training.seconds
        rent = ""
        if training.rent is not None:
            rent = _range(f"{training.rent[0]:,.2f}", f"{training.rent[1]:,.2f}")
        trainings.append(
            (
                training.recipe,
                training.where,
                training.known_from,
                f"{median(training.speeds):,.0f}",
                _range(duration(fastest), duration(slowest)),
                rent,
            )
        )
    columns = ("recipe", "where", "known from", RATE, "about", "rent")
    parts.append(Grid.of("training", columns, trainings, 3).filled())
    return parts


def _range(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"
