"""What a plan says, and that it leaves nothing behind."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from nmtkit import cli
from nmtkit.benchmark import estimates as command
from nmtkit.benchmark.estimates import Facts, parts_of
from nmtkit.config.loading import load_recipe, read_toml, recipes_dir
from nmtkit.config.settings import Settings
from nmtkit.corpus import ids as store
from nmtkit.corpus import prepared
from nmtkit.corpus.prepared import SIDES, SPLITS
from nmtkit.corpus.special_tokens import EOS_ID
from nmtkit.model.flops import update_flops
from nmtkit.model.transformer import Transformer
from nmtkit.reporting.grid import Grid
from nmtkit.reporting.results import RATE
from nmtkit.reporting.training_cost import training_cost
from nmtkit.sources.catalog import RemoteFile, load_catalog
from nmtkit.stages.pipeline import STAGES, Pipeline
from nmtkit.training.distributed import Group
from nmtkit.utils.language import Language

ALONE = Group(0, 1, torch.device("cpu"))
TINY = ["n_layers=1", "d_model=8", "d_ff=9", "n_heads=2", "d_k=3", "d_v=5", "vocabulary_multiple=8"]
SMALL_MODEL = [f"model.{change}" for change in TINY]


def load_pipeline(
    name: str, tmp_path: Path, *overrides: str, mirror: Path | None = None
) -> Pipeline:
    settings = Settings(tmp_path / "runs", mirror, device="cpu", workers=1)
    return Pipeline(load_recipe(name, [*SMALL_MODEL, *overrides]), settings, name)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a plan measure for a short time only."""
    monkeypatch.setattr(command, "TRIAL_SECONDS", 0.1)


def plan(pipeline: Pipeline) -> Facts:
    return command.work_out(pipeline, ALONE)


def listing(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*")}


def n_weights(pipeline: Pipeline, n_rows: int) -> int:
    with torch.device("meta"):
        model = Transformer(pipeline.recipe.model, n_rows)
    return sum(parameter.numel() for parameter in model.parameters())


def test_plan_of_the_demo(tmp_path: Path) -> None:
    pipeline = load_pipeline("demo", tmp_path, "subword.n_merges=64", "training.max_steps=7")
    planned = plan(pipeline)
    assert listing(tmp_path) == {}
    n_rows = 80  # 64 merges: 74 tokens expected, rounded up to a multiple of 8
    training = pipeline.recipe.training
    src, tgt = training.src_tokens_per_update, training.tgt_tokens_per_update
    assert planned["recipe"] == "demo"
    assert [(state.stage, state.state) for state in planned["stages"]] == [
        (stage, "missing") for stage in STAGES
    ]
    assert planned["downloads"] == []
    assert planned["download_bytes"] == 0
    assert not planned["vocabulary_is_known"]
    assert planned["n_parameters"] == n_weights(pipeline, n_rows)
    assert planned["update_flops"] == update_flops(pipeline.recipe.model, n_rows, src, tgt, 30)
    assert planned["cost"].product_flops == 7 * planned["update_flops"]
    assert planned["device"] == "cpu"
    assert planned["tgt_tokens_per_second"] > 0
    (here,) = planned["training"]
    seconds = [7 * tgt / speed for speed in here["speeds"]]
    assert here["seconds"] == pytest.approx([min(seconds), max(seconds)])
    assert min(seconds) <= planned["cost"].seconds <= max(seconds)
    assert planned["disk_bytes"] > 12 * planned["n_parameters"]


def test_vocabulary_is_known_once_the_text_is_prepared(tmp_path: Path) -> None:
    pipeline = load_pipeline("demo", tmp_path)

    def build(draft: Path) -> dict[str, Any]:
        for split in SPLITS:
            for side in SIDES:
                with store.ids_writer(prepared.ids_place(draft, split, side), 33) as writer:
                    writer.append(store.pack([[7, 32, EOS_ID]] * 9, 33))
        prepared.write_counts(draft, [], 33)
        return {}

    pipeline.make("prepare", build)
    before = listing(tmp_path)
    planned = plan(pipeline)
    assert listing(tmp_path) == before
    assert planned["vocabulary_is_known"]
    assert planned["n_parameters"] == n_weights(pipeline, 40)
    assert planned["stages"][0].state == "fresh"


def test_files_of_the_network_are_listed_once_and_not_counted_where_they_are(
    tmp_path: Path,
) -> None:
    entry = load_catalog().corpus("europarl-v7", *Language.pair_of("en-de"))
    remote = entry.sides[0][0]
    assert isinstance(remote, RemoteFile)
    assert remote.n_bytes is not None
    overrides = ["subword.n_merges=64", "corpus.train=['europarl-v7']"]
    planned = plan(load_pipeline("wmt14-en-de-base", tmp_path, *overrides))
    urls = [download["url"] for download in planned["downloads"]]
    assert len(urls) == len(set(urls))
    assert urls[0] == remote.url
    sizes = [download["n_bytes"] or 0 for download in planned["downloads"]]
    assert planned["download_bytes"] == sum(sizes)
    assert planned["disk_bytes"] > planned["download_bytes"]

    mirror = tmp_path / "mirror"
    mirrored = mirror / remote.url.split("://")[1]
    mirrored.parent.mkdir(parents=True)
    mirrored.touch()
    with_mirror = plan(load_pipeline("wmt14-en-de-base", tmp_path, *overrides, mirror=mirror))
    grids = (each for each in parts_of(with_mirror) if isinstance(each, Grid))
    (grid,) = (each for each in grids if each.title == "downloads")
    assert [row[1] == "there" for rows in grid.groups for row in rows] == [
        download["url"] == remote.url for download in planned["downloads"]
    ]
    assert with_mirror["download_bytes"] == planned["download_bytes"] - remote.n_bytes


BASE, SHORTER = "measured: wmt14-en-de-base", "estimated by FLOPs: shorter and fits here"


@pytest.mark.parametrize(
    ("name", "overrides", "speeds", "told"),
    [
        ("demo", [], [900], []),
        ("multi30k-en-de", [], [900], [("multi30k-en-de", "measured: multi30k-en-de")]),
        (
            "wmt14-en-de-base-nc11",
            ["model.dropout=0.2"],
            [10**6],
            [("wmt14-en-de-base-nc11", BASE)],
        ),
        ("wmt14-en-de-base", [], [14_500], [("wmt14-en-de-base", BASE)]),  # two days
        ("wmt14-en-de-base", [], [450], [("wmt14-en-de-base", BASE), ("multi30k-en-de", SHORTER)]),
        ("wmt14-en-de-base", [], [450, 0.1], [("wmt14-en-de-base", BASE)]),  # too slow in one round
        ("wmt14-en-de-base", ["model.n_layers=60"], [450], [("multi30k-en-de", SHORTER)]),
        ("wmt14-en-fr-big", [], [9], [("wmt14-en-fr-big", "estimated by FLOPs: wmt14-en-de-big")]),
        ("wsj-parsing", ["model.n_layers=60"], [450], [("treebank-sample", SHORTER)]),
    ],
)
def test_measured_hardware_is_told_and_a_shorter_training_in_place_of_days(
    name: str,
    overrides: list[str],
    speeds: list[float],
    told: list[tuple[str, str]],
    tmp_path: Path,
) -> None:
    def flops(recipe: str, *overrides: str) -> float:
        pipeline = Pipeline(load_recipe(recipe, overrides), Settings(tmp_path), recipe)
        model = pipeline.recipe.model
        return update_flops(model, model.rows_for(pipeline.expected_vocabulary()), 9, 9, 30)

    pipeline = Pipeline(load_recipe(name, overrides), Settings(tmp_path), name)
    here = command._estimate(pipeline, "here", "measured now", speeds)
    found = command._others(pipeline, here)
    assert [(each["recipe"], each["known_from"].partition(", ")[0]) for each in found] == told
    rows = read_toml(recipes_dir() / "results/results.toml")["rows"]
    rows = {row[0]: row for row in rows if row[2] == "target tokens/s"}
    training = pipeline.recipe.training
    for each in found:
        if each["known_from"] == SHORTER:
            assert (each["where"], each["seconds"][1] < command.DAY) == ("here", True)
            continue
        like, _, file = each["known_from"].partition(": ")[2].partition(", ")
        assert (each["where"], file) == (rows[like][3], f"{rows[like][-1]}, not verified")
        ratio = max(1.0, flops(name, *overrides) / flops(like))  # a smaller model is as fast
        like_speed = float(rows[like][1].replace(",", "")) / ratio
        seconds = training.max_steps * training.tgt_tokens_per_update / like_speed
        assert each["seconds"] == pytest.approx([seconds, seconds])


def test_rent_is_the_price_of_the_time_everywhere(tmp_path: Path) -> None:
    small = [f"--set={change}" for change in (*SMALL_MODEL, "subword.n_merges=64")]
    arguments = ["plan", "demo", *small, f"--runs-dir={tmp_path}", "--rent=86.4", "--json"]
    ended = CliRunner().invoke(cli.app, arguments, catch_exceptions=False)
    training = json.loads(ended.stdout)["training"]
    for each in training:
        assert each["rent"] == pytest.approx([seconds / 1_000 for seconds in each["seconds"]])


@pytest.mark.parametrize(("rent", "cells"), [(None, []), (86.4, ["3.60 to 7.20"]), (0.0, ["0.00"])])
def test_rent_has_a_column(rent: float | None, cells: list[str]) -> None:
    training = {
        "recipe": "demo",
        "where": "a GPU",
        "known_from": "",
        "speeds": [1_000.0, 3_000.0, 2_000.0],
        "seconds": [3_600.0, 7_200.0],
        "rent": None if rent is None else [rent * hours / 24 for hours in (1, 2)],
    }
    plan: Facts = {
        "recipe": "demo",
        "stages": [],
        "downloads": [],
        "cost": training_cost(60.0, 1, "cpu", 2.0),
        "vocabulary_is_known": True,
        "download_bytes": 0,
        "disk_bytes": 0,
        "n_parameters": 1,
        "training": [training],
    }
    grid = parts_of(plan)[-1]
    assert isinstance(grid, Grid)
    heads = ["recipe", "where", "known from", RATE, "about", *(["rent"] if cells else [])]
    assert list(grid.columns) == heads
    assert grid.n_labels == heads.index(RATE)  # a label stays even if it is empty
    ((row,),) = grid.groups
    assert list(row) == ["demo", "a GPU", "", "2,000", "60 min to 120 min", *cells]
