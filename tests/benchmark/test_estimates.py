"""Estimates of time and cost, and that they leave nothing behind."""

from pathlib import Path
from typing import Any

import torch

from nmtkit.benchmark import estimates
from nmtkit.benchmark.estimates import Plan, TrainingEstimate, plan_parts
from nmtkit.config.loading import load_recipe
from nmtkit.config.settings import Settings
from nmtkit.corpus import ids as store
from nmtkit.corpus import prepared
from nmtkit.corpus.prepared import SIDES, SPLITS
from nmtkit.corpus.special_tokens import EOS_ID
from nmtkit.model.flops import update_flops
from nmtkit.model.transformer import Transformer
from nmtkit.rendering.grid import Grid
from nmtkit.report.training_cost import training_cost
from nmtkit.runs.listing import State
from nmtkit.sources.parallel import find_corpus
from nmtkit.stages.pipeline import STAGES, Pipeline
from nmtkit.training.distributed import Group
from nmtkit.utils.language import Language

ONE_PROCESS = Group(0, 1, torch.device("cpu"))
TINY = ["n_layers=1", "d_model=8", "d_ff=9", "n_heads=2", "d_k=3", "d_v=5", "vocabulary_multiple=8"]
SMALL_MODEL = [f"model.{change}" for change in TINY]


def load_pipeline(
    name: str, tmp_path: Path, *overrides: str, mirror: Path | None = None
) -> Pipeline:
    settings = Settings(tmp_path / "runs", mirror, device="cpu", workers=1)
    return Pipeline(load_recipe(name, [*SMALL_MODEL, *overrides]), settings, name)


def plan(pipeline: Pipeline) -> Plan:
    return estimates.estimate_run(pipeline, ONE_PROCESS, trial_seconds=0.1)


def listing(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*")}


def n_weights(pipeline: Pipeline, n_rows: int) -> int:
    with torch.device("meta"):
        model = Transformer(pipeline.recipe.model, n_rows)
    return sum(parameter.numel() for parameter in model.parameters())


def test_plan_of_demo(tmp_path: Path) -> None:
    pipeline = load_pipeline("demo", tmp_path, "subword.n_merges=64", "training.max_steps=7")
    planned = plan(pipeline)
    assert listing(tmp_path) == {}
    n_rows = 80  # 64 merges: 74 tokens expected, rounded up to a multiple of 8
    training = pipeline.recipe.training
    src = training.src_tokens_per_update
    tgt = training.tgt_tokens_per_update
    assert planned.recipe == "demo"
    assert [(state.stage, state.state) for state in planned.stages] == [
        (stage, "missing") for stage in STAGES
    ]
    assert planned.downloads == []
    assert planned.download_bytes == 0
    assert not planned.vocabulary_is_known
    assert planned.n_parameters == n_weights(pipeline, n_rows)
    assert planned.update_flops == update_flops(pipeline.recipe.model, n_rows, src, tgt, 30)
    assert planned.cost.product_flops == 7 * planned.update_flops
    assert planned.device == "cpu"
    assert planned.tgt_tokens_per_second > 0
    (here,) = planned.training
    assert here.seconds > 7 * tgt / here.tgt_tokens_per_second
    assert planned.cost.seconds == here.seconds
    assert planned.disk_bytes > 12 * planned.n_parameters


def test_vocabulary_of_prepared_text(tmp_path: Path) -> None:
    pipeline = load_pipeline("demo", tmp_path)

    def build(draft: Path) -> dict[str, Any]:
        for split in SPLITS:
            for side in SIDES:
                with store.ids_writer(prepared.ids_place(draft, split, side), 33) as writer:
                    writer.append(store.pack([[7, 32, EOS_ID]] * 9, 33))
        prepared.write_counts(draft, [], 33)
        return {}

    pipeline.build("prepare", build)
    before = listing(tmp_path)
    planned = plan(pipeline)
    assert listing(tmp_path) == before
    assert planned.vocabulary_is_known
    assert planned.n_parameters == n_weights(pipeline, 40)
    assert planned.stages[0].state == "done"


def test_downloads_are_listed_once(tmp_path: Path) -> None:
    remote = find_corpus("europarl-v7", *Language.parse_pair("en-de")).downloads[0]
    assert remote.n_bytes is not None
    overrides = ["subword.n_merges=64", "corpus.train=['europarl-v7']"]
    planned = plan(load_pipeline("wmt14-en-de-base", tmp_path, *overrides))
    urls = [download.url for download in planned.downloads]
    assert len(urls) == len(set(urls))
    assert urls[0] == remote.url
    sizes = [download.n_bytes or 0 for download in planned.downloads]
    assert planned.download_bytes == sum(sizes)
    assert planned.disk_bytes > planned.download_bytes

    mirror = tmp_path / "mirror"
    mirrored = mirror / remote.url.split("://")[1]
    mirrored.parent.mkdir(parents=True)
    mirrored.touch()
    with_mirror = plan(load_pipeline("wmt14-en-de-base", tmp_path, *overrides, mirror=mirror))
    assert [download.is_here for download in with_mirror.downloads] == [
        download.url == remote.url for download in planned.downloads
    ]
    grids = {part.title: part for part in plan_parts(with_mirror) if isinstance(part, Grid)}
    states = [row[1] for (row,) in grids["downloads"].groups]
    assert states.count("downloaded") == 1
    assert with_mirror.download_bytes == planned.download_bytes - remote.n_bytes


def test_plan_rounds_estimates() -> None:
    state = State("train", "running", "0" * 16, None, "by process 5 on host, since 14:05")
    estimate = Plan(
        recipe="demo",
        stages=[state],
        downloads=[],
        download_bytes=1_234_567,
        disk_bytes=0,
        vocabulary_is_known=False,
        n_parameters=65_110_016,
        update_flops=1.0,
        device="cpu",
        tgt_tokens_per_second=1.0,
        training=[TrainingEstimate("demo", "a GPU", "", 15_749.52, 2.0)],
        cost=training_cost(60.0, 1, "cpu", 2.0),
    )
    stages, cost, training, _ = plan_parts(estimate)
    assert isinstance(stages, Grid)
    assert isinstance(cost, Grid)
    assert isinstance(training, Grid)
    assert list(stages.groups[0][0]) == ["train", "running now", state.why]
    assert cost.groups[0][0][1] == "1.2 MB"
    assert cost.groups[2][0][1] == "about 65,000,000"
    assert list(training.groups[0][0]) == ["demo", "a GPU", "", "16,000", "1 min"]
