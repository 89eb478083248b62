"""Estimates of the time, memory and disk space of a recipe, on this machine and on others."""

import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.filesize import decimal

from nmtkit.config.loading import bundled_recipes, load_recipe
from nmtkit.model.flops import training_flops
from nmtkit.model.weights import count_parameters
from nmtkit.rendering.grid import Grid, Row, scientific
from nmtkit.report.results import RATE, measured_results
from nmtkit.report.training_cost import BY_TIME, COUNTED, TrainingCost, training_cost
from nmtkit.runs.listing import State, states
from nmtkit.sources.parallel import Corpus
from nmtkit.stages.pipeline import Pipeline
from nmtkit.utils import progress
from nmtkit.utils.hardware import device_name, n_cores
from nmtkit.utils.text import counted, round_estimate, rounded_duration

if TYPE_CHECKING:
    from nmtkit.training.distributed import Group

TRIAL_SECONDS = 8.0
FLOAT32_BYTES = 4

# A load of more than this share of the cores means that other programs are computing.
MAX_IDLE_LOAD = 0.5

CONDITIONS = (
    "Estimated for `nmtkit train` on an otherwise idle machine; the actual time can be half or "
    "twice as long."
)

# "will run" by the state of a stage; of all others, "yes".
WOULD_RUN = {"done": "no", "running": "running now"}

DAY = 86_400.0  # seconds
# Next to a training that takes longer than LONG here, one that takes less than SHORT is listed.
LONG = 3 * DAY
SHORT = DAY
# The measured speed of a model is used for another one up to this ratio of their FLOPs per token.
MAX_FLOPS_RATIO = 2.0

# Fixed costs of a training, in addition to its tokens. On a GPU, fitted to Multi30k on an H100: 106
# s, 55 s of it for 8,000 steps; the rest went into starting, compiling and 40 evaluations and
# checkpoints (pipelines/results/multi30k-en-de_h100_2026-11-22.md and
# training-speed_h100_2026-11-22.md).
GPU_START_S = 30.0
GPU_EVALUATION_S = 0.5
MIN_GPU_STEP_S = 0.0069  # however few tokens it has
# On a CPU, evaluations take as long as training on some target tokens.
CPU_START_S = 5.0
EVALUATION_TOKENS = 15_000


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
    tgt_tokens_per_second: float  # in all processes together
    seconds: float  # of the training, with its start, evaluations and checkpoints


@dataclass(frozen=True)
class Plan:
    """What `nmtkit run` would do, and its cost."""

    recipe: str
    stages: list[State]
    downloads: list[Download]
    download_bytes: int  # of files that are not downloaded and whose size is known
    disk_bytes: int  # estimate for downloads and artifacts that are missing
    vocabulary_is_known: bool  # False: n_parameters is an estimate
    n_parameters: int
    update_flops: float
    device: str
    tgt_tokens_per_second: float
    training: list[TrainingEstimate]  # here, elsewhere, and of a shorter recipe
    cost: TrainingCost


def estimate_run(
    pipeline: Pipeline,
    group: "Group",
    trial_seconds: float = TRIAL_SECONDS,
) -> Plan:
    """Estimate what `nmtkit run` would take, from a short trial of its training.

    Args:
        group: The processes that would train. All of them call this.
        trial_seconds: Duration of the trial after its first step.
    """
    from nmtkit.benchmark.trial import measure_speed, trial_text
    from nmtkit.stages.training_setup import choose_setup, enough_memory, start_trainer

    recipe = pipeline.recipe
    training = recipe.training
    text = trial_text(pipeline)
    n_rows = recipe.model.embedding_rows(text.n_tokens)
    n_parameters = count_parameters(recipe.model, n_rows).total
    flops = training_flops(recipe.model, training, n_rows)
    device = group.device.type
    if group.size > 1:
        device = f"{group.size} processes, each {device}"

    conditions = "measured now"
    if group.device.type == "cpu" and os.getloadavg()[0] > MAX_IDLE_LOAD * n_cores():
        conditions += ", while other programs were running"
    progress.log(
        f"plan: measuring the speed of training on {device}, for about {trial_seconds:.0f} s after "
        "a first step"
    )
    setup = choose_setup(pipeline, group)
    with enough_memory(group.device, setup.max_tokens, setup.model.max_positions):
        trainer = start_trainer(setup, text.pairs, n_rows)
        speed = measure_speed(trainer, trial_seconds)

    downloads = find_downloads(pipeline)
    download_bytes = sum(file.n_bytes or 0 for file in downloads if not file.is_here)
    disk_bytes = download_bytes + prepared_bytes(pipeline) + trained_bytes(pipeline, n_parameters)

    is_gpu = group.device.type == "cuda"
    here = estimate_training(pipeline, f"here, {device}", conditions, speed, is_gpu=is_gpu)
    shorter = find_shorter(pipeline, here, is_gpu=is_gpu)
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
        tgt_tokens_per_second=speed,
        training=[here, *measured_elsewhere(pipeline), *shorter],
        cost=training_cost(here.seconds, group.size, device_name(group.device), flops),
    )


def find_downloads(pipeline: Pipeline) -> list[Download]:
    """Return the files of a recipe that come from the network."""
    downloads = pipeline.downloads
    files = {}  # by URL: corpora may have files in common
    for corpus in _corpora(pipeline):
        for file in corpus.downloads:
            files[file.url] = file
    found = []
    for file in files.values():
        is_here = downloads.find(file) is not None
        found.append(Download(file.url, downloads.known_bytes(file), is_here))
    return found


def prepared_bytes(pipeline: Pipeline) -> int:
    """Estimate the bytes that `prepare` will write: 0 if it is done."""
    if pipeline.find("prepare") is not None:
        return 0
    return sum(corpus.prepared_bytes(pipeline.downloads) for corpus in _corpora(pipeline))


def trained_bytes(pipeline: Pipeline, n_parameters: int) -> int:
    """Estimate the bytes of the bundle, and of the checkpoints unless training is done."""
    from nmtkit.training.checkpoint import checkpoints_bytes

    n_bytes = FLOAT32_BYTES * n_parameters
    if pipeline.find("train") is None:
        n_bytes += checkpoints_bytes(pipeline.recipe.training, n_parameters)
    return n_bytes


def _corpora(pipeline: Pipeline) -> list[Corpus]:
    """Return the corpora of a recipe, of all keys."""
    corpora: list[Corpus] = []
    for key_corpora in pipeline.corpora.values():
        corpora += key_corpora
    return corpora


# Training, from a speed in target tokens/s


def estimate_training(
    pipeline: Pipeline, where: str, known_from: str, speed: float, *, is_gpu: bool
) -> TrainingEstimate:
    """Estimate the duration of the recipe's training, from its start to its last checkpoint.

    Args:
        where: Name of the hardware.
        known_from: The source of the speed.
        speed: Target tokens/s.
        is_gpu: Whether the hardware is a GPU.
    """
    training = pipeline.recipe.training
    # Without an interval, dev is evaluated only at the end.
    n_evaluations = 1
    if training.dev_every_steps:
        n_evaluations = training.max_steps // training.dev_every_steps
    step_seconds = training.tgt_tokens_per_update / speed
    if is_gpu:
        step_seconds = max(step_seconds, MIN_GPU_STEP_S)
        seconds = GPU_START_S + n_evaluations * GPU_EVALUATION_S
    else:
        seconds = CPU_START_S + n_evaluations * EVALUATION_TOKENS / speed
    seconds += training.max_steps * step_seconds
    return TrainingEstimate(pipeline.recipe.name, where, known_from, speed, seconds)


def measured_elsewhere(pipeline: Pipeline) -> list[TrainingEstimate]:
    """Estimate the training on hardware that has measured speeds of a similar model.

    All of it is GPUs: `nmtkit selftest --gpu` measures the speeds in pipelines/results.
    """
    names = {path.stem for path in bundled_recipes()}
    estimates = []
    for result in measured_results():
        if not isinstance(result.figure, int) or result.recipe not in names:
            continue
        measured = Pipeline(load_recipe(result.recipe), pipeline.settings, result.recipe)
        ratio = flops_per_token(pipeline) / flops_per_token(measured)
        if max(ratio, 1 / ratio) >= MAX_FLOPS_RATIO:
            continue
        method = "measured" if math.isclose(ratio, 1) else "estimated by FLOPs"
        known_from = f"{method}: {result.recipe}, {result.source}, not verified"
        # A smaller model is not assumed to be faster: kernels may be too small for the hardware.
        speed = result.figure / max(1.0, ratio)
        estimates.append(
            estimate_training(pipeline, result.hardware, known_from, speed, is_gpu=True)
        )
    return estimates


def find_shorter(
    pipeline: Pipeline, here: TrainingEstimate, *, is_gpu: bool
) -> list[TrainingEstimate]:
    """Find the longest training of the same languages that takes less than a day here.

    Args:
        here: The estimate for the recipe itself on this machine.
        is_gpu: Whether this machine trains on a GPU.

    Returns:
        One estimate, or none, also if the recipe's own training does not take days.
    """
    if here.seconds <= LONG:
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
        # The same hardware is assumed to compute as many FLOPs per second for both.
        speed = here.tgt_tokens_per_second * flops_per_token(pipeline) / flops_per_token(other)
        estimate = estimate_training(other, here.where, known_from, speed, is_gpu=is_gpu)
        is_longer = longest is None or estimate.seconds > longest.seconds
        if estimate.seconds < SHORT and is_longer:
            longest = estimate
    return [] if longest is None else [longest]


def flops_per_token(pipeline: Pipeline) -> float:
    """Return the FLOPs per target token, with the vocabulary that is expected."""
    model = pipeline.recipe.model
    training = pipeline.recipe.training
    flops = training_flops(model, training, model.embedding_rows(pipeline.expected_vocabulary()))
    return flops / training.max_steps / training.tgt_tokens_per_update


# Tables


def plan_parts(plan: Plan) -> list[Grid | str]:
    """Return the tables of a plan: stages, downloads, cost and training times."""
    stages: list[Row] = []
    for state in plan.stages:
        stages.append((state.stage, WOULD_RUN.get(state.state, "yes"), state.why))
    parts: list[Grid | str] = [
        Grid.of(f"nmtkit plan {plan.recipe}", ("stage", "will run", "why"), stages, 3)
    ]

    downloads: list[Row] = []
    for download in plan.downloads:
        size = "unknown" if download.n_bytes is None else decimal(download.n_bytes)
        downloads.append(
            (download.url, "downloaded" if download.is_here else "not downloaded", size)
        )
    if downloads:
        parts.append(Grid.of("downloads", ("url", "state", "size"), downloads, 2))

    cost = plan.cost
    # The size of the vocabulary is estimated until the corpus is prepared.
    n_parameters = f"about {round_estimate(plan.n_parameters):,}"
    if plan.vocabulary_is_known:
        n_parameters = f"{plan.n_parameters:,}"
    by_time = cost.rate_source
    if cost.time_flops is not None:
        by_time = f"about {scientific(cost.time_flops)} FLOPs"
    to_download = decimal(plan.download_bytes)
    n_unknown = sum(file.n_bytes is None and not file.is_here for file in plan.downloads)
    if n_unknown:
        to_download += f", and {counted(n_unknown, 'file')} of unknown size"
    rows = [
        ("to download", to_download),
        ("disk, downloads included", f"about {decimal(round_estimate(plan.disk_bytes))}"),
        ("parameters", n_parameters),
        (BY_TIME, by_time),
        (COUNTED, f"about {scientific(cost.product_flops)} FLOPs"),
    ]
    parts.append(Grid.of("cost", ("", ""), rows, 2))
    return [*parts, *training_parts(plan)]


def training_parts(plan: Plan) -> list[Grid | str]:
    """Return the table of training times, and their conditions."""
    rows: list[Row] = []
    for training in plan.training:
        rows.append(
            (
                training.recipe,
                training.where,
                training.known_from,
                f"{round_estimate(training.tgt_tokens_per_second):,}",
                rounded_duration(training.seconds),
            )
        )
    columns = ("recipe", "where", "source", RATE, "estimated time")
    return [Grid.of("training", columns, rows, 3), CONDITIONS]
