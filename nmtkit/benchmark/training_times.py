"""The duration of a training on this machine and on others, from a speed in target tokens/s."""

import math
from dataclasses import dataclass

from nmtkit.config.loading import bundled_recipes, load_recipe
from nmtkit.model.flops import training_flops
from nmtkit.report.results import measured_results
from nmtkit.stages.pipeline import Pipeline

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
class TrainingEstimate:
    """The duration of a training on some hardware."""

    recipe: str
    where: str  # the hardware
    known_from: str  # the source of the speed
    tgt_tokens_per_second: float  # in all processes together
    seconds: float  # of the training, with its start, evaluations and checkpoints


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
