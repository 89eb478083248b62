"""Durations of trainings on other hardware, and of shorter recipes."""

from pathlib import Path

import pytest

from nmtkit.benchmark.estimates import (
    DAY,
    estimate_training,
    find_shorter,
    measured_elsewhere,
)
from nmtkit.config.loading import load_recipe, read_toml, recipes_dir
from nmtkit.config.settings import Settings
from nmtkit.model.flops import update_flops
from nmtkit.stages.pipeline import Pipeline

BASE = "measured: wmt14-en-de-base"
SHORTER = "estimated by FLOPs: shorter and fits here"


@pytest.mark.parametrize(
    ("name", "overrides", "speed", "expected"),
    [
        ("demo", [], 900, []),
        ("multi30k-en-de", [], 900, [("multi30k-en-de", "measured: multi30k-en-de")]),
        (
            "wmt14-en-de-base-nc11",
            ["model.dropout=0.2"],
            10**6,
            [("wmt14-en-de-base-nc11", BASE)],
        ),
        ("wmt14-en-de-base", [], 14_500, [("wmt14-en-de-base", BASE)]),  # two days
        ("wmt14-en-de-base", [], 450, [("wmt14-en-de-base", BASE), ("multi30k-en-de", SHORTER)]),
        ("wmt14-en-de-base", [], 0.1, [("wmt14-en-de-base", BASE)]),  # too slow for any
        ("wmt14-en-de-base", ["model.n_layers=60"], 450, [("iwslt14-en-de", SHORTER)]),
        ("wmt14-en-fr-big", [], 9, [("wmt14-en-fr-big", "estimated by FLOPs: wmt14-en-de-big")]),
        ("wsj-parsing", ["model.n_layers=60"], 450, [("treebank-sample", SHORTER)]),
    ],
)
def test_estimates_of_similar_and_shorter(
    name: str,
    overrides: list[str],
    speed: float,
    expected: list[tuple[str, str]],
    tmp_path: Path,
) -> None:
    def flops(recipe: str, *overrides: str) -> float:
        pipeline = Pipeline(load_recipe(recipe, overrides), Settings(tmp_path), recipe)
        model = pipeline.recipe.model
        return update_flops(model, model.embedding_rows(pipeline.expected_vocabulary()), 9, 9, 30)

    pipeline = Pipeline(load_recipe(name, overrides), Settings(tmp_path), name)
    here = estimate_training(pipeline, "here", "measured now", speed, is_gpu=False)
    found = [*measured_elsewhere(pipeline), *find_shorter(pipeline, here, is_gpu=False)]
    assert [(row.recipe, row.known_from.partition(", ")[0]) for row in found] == expected

    measured = {}
    for row in read_toml(recipes_dir() / "results/results.toml")["rows"]:
        if row[2] == "target tokens/s":
            measured[row[0]] = row
    training = pipeline.recipe.training
    for estimate in found:
        if estimate.known_from == SHORTER:
            assert estimate.where == "here"
            assert estimate.seconds < DAY
            continue
        similar, _, file = estimate.known_from.partition(": ")[2].partition(", ")
        assert estimate.where == measured[similar][3]
        assert file == f"{measured[similar][-1]}, not verified"
        # A smaller model is not assumed to be faster.
        speed = measured[similar][1] / max(1.0, flops(name, *overrides) / flops(similar))
        seconds = training.max_steps * training.tgt_tokens_per_update / speed
        assert estimate.tgt_tokens_per_second == pytest.approx(speed)
        assert seconds < estimate.seconds < 1.2 * seconds + 60


def test_estimate_of_measured_training(tmp_path: Path) -> None:
    """Multi30k was trained on an H100 in 106 s, in which its steps took 55 s."""
    pipeline = Pipeline(load_recipe("multi30k-en-de"), Settings(tmp_path), "multi30k-en-de")
    (estimate,) = measured_elsewhere(pipeline)
    assert estimate.where.startswith("1 H100")
    assert estimate.seconds == pytest.approx(106, rel=0.1)


def test_estimate_without_evaluations(tmp_path: Path) -> None:
    overrides = ["training.dev_every_steps=0"]
    pipeline = Pipeline(load_recipe("demo", overrides), Settings(tmp_path), "demo")
    tgt_tokens = 600 * pipeline.recipe.training.tgt_tokens_per_update
    for is_gpu in (False, True):
        estimate = estimate_training(pipeline, "here", "", 1_000.0, is_gpu=is_gpu)
        assert tgt_tokens / 1_000 < estimate.seconds < tgt_tokens / 1_000 + 60
