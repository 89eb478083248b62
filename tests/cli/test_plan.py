"""What a plan says, and that it leaves nothing behind."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from nmtkit import cli
from nmtkit.cli import plan as command
from nmtkit.cli.plan import Facts
from nmtkit.corpus import prepared, store
from nmtkit.corpus.prepared import SIDES, SPLITS
from nmtkit.languages import Language
from nmtkit.machine import Machine
from nmtkit.model.cost import update_flops
from nmtkit.model.transformer import Transformer
from nmtkit.recipe_file import load_recipe, recipes_dir
from nmtkit.sources.catalog import RemoteFile, load_catalog
from nmtkit.stages.chain import STAGES, Chain
from nmtkit.symbols import EOS_ID
from nmtkit.training.distributed import Group

ALONE = Group(0, 1, torch.device("cpu"))
TINY = ["n_layers=1", "d_model=8", "d_ff=9", "n_heads=2", "d_k=3", "d_v=5", "vocabulary_multiple=8"]
SMALL_MODEL = [f"model.{change}" for change in TINY]


def chain_of(name: str, tmp_path: Path, *overrides: str, mirror: Path | None = None) -> Chain:
    machine = Machine(tmp_path / "runs", mirror, device="cpu", workers=1)
    return Chain(load_recipe(name, [*SMALL_MODEL, *overrides]), machine, name)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a plan measure for a short time only."""
    monkeypatch.setattr(command, "TRIAL_SECONDS", 0.1)


def plan(chain: Chain) -> Facts:
    return command.work_out(chain, ALONE)


def listing(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*")}


def n_weights(chain: Chain, n_rows: int) -> int:
    with torch.device("meta"):
        model = Transformer(chain.recipe.model, n_rows)
    return sum(parameter.numel() for parameter in model.parameters())


def test_plan_of_the_demo(tmp_path: Path) -> None:
    chain = chain_of("demo", tmp_path, "subword.n_merges=64", "training.max_steps=7")
    planned = plan(chain)
    assert listing(tmp_path) == {}
    n_rows = 80  # 64 merges: 74 tokens expected, rounded up to a multiple of 8
    training = chain.recipe.training
    src, tgt = training.src_tokens_per_update, training.tgt_tokens_per_update
    assert planned["recipe"] == "demo"
    assert [(state.stage, state.state) for state in planned["stages"]] == [
        (stage, "missing") for stage in STAGES
    ]
    assert planned["downloads"] == []
    assert planned["download_bytes"] == 0
    assert not planned["vocabulary_is_known"]
    assert planned["n_parameters"] == n_weights(chain, n_rows)
    assert planned["update_flops"] == update_flops(chain.recipe.model, n_rows, src, tgt, 30)
    assert planned["cost"].product_flops == 7 * planned["update_flops"]
    assert planned["device"] == "cpu"
    assert planned["tgt_tokens_per_second"] > 0
    (here,) = planned["training"]
    seconds = [7 * tgt / speed for speed in here["speeds"]]
    assert here["seconds"] == pytest.approx([min(seconds), max(seconds)])
    assert min(seconds) <= planned["cost"].seconds <= max(seconds)
    assert planned["disk_bytes"] > 12 * planned["n_parameters"]


def test_vocabulary_is_known_once_the_text_is_prepared(tmp_path: Path) -> None:
    chain = chain_of("demo", tmp_path)

    def build(draft: Path) -> dict[str, Any]:
        for split in SPLITS:
            for side in SIDES:
                with store.ids_writer(prepared.ids_place(draft, split, side), 33) as writer:
                    writer.append(store.pack([[7, 32, EOS_ID]] * 9, 33))
        prepared.write_counts(draft, [], 33)
        return {}

    chain.make("prepare", build)
    before = listing(tmp_path)
    planned = plan(chain)
    assert listing(tmp_path) == before
    assert planned["vocabulary_is_known"]
    assert planned["n_parameters"] == n_weights(chain, 40)
    assert planned["stages"][0].state == "fresh"


def test_files_of_the_network_are_listed_once_and_not_counted_where_they_are(
    tmp_path: Path,
) -> None:
    entry = load_catalog().corpus("europarl-v7", *Language.pair_of("en-de"))
    remote = entry.sides[0][0]
    assert isinstance(remote, RemoteFile)
    assert remote.n_bytes is not None
    overrides = ["subword.n_merges=64", "corpus.train=['europarl-v7']"]
    planned = plan(chain_of("wmt14-en-de-base", tmp_path, *overrides))
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
    with_mirror = plan(chain_of("wmt14-en-de-base", tmp_path, *overrides, mirror=mirror))
    assert [download["is_here"] for download in with_mirror["downloads"]] == [
        download["url"] == remote.url for download in planned["downloads"]
    ]
    assert with_mirror["download_bytes"] == planned["download_bytes"] - remote.n_bytes


def others(name: str, tmp_path: Path, speeds: list[float], *overrides: str) -> list[Facts]:
    """What is told of a recipe beside its training here, at these target tokens per second."""
    machine = Machine(tmp_path / "runs", device="cpu")
    chain = Chain(load_recipe(name, overrides), machine, name)
    return command._others(chain, command._estimate(chain, "here", "measured now", speeds))


def measured(recipe: str) -> tuple[float, str, str]:
    """The speed of a recipe that a file of results has, its hardware and the file."""
    table = tomllib.loads((recipes_dir() / "results/results.toml").read_text(encoding="utf-8"))
    (row,) = (row for row in table["rows"] if row[0] == recipe and row[2] == "target tokens/s")
    return float(row[1].replace(",", "")), row[3], row[-1]


@pytest.mark.parametrize("name", ["wmt14-en-de-base", "wmt14-en-de-base-nc11", "multi30k-en-de"])
def test_a_model_that_was_measured_is_told_with_its_hardware_and_file(
    name: str, tmp_path: Path
) -> None:
    speed, hardware, file = measured(name.removesuffix("-nc11"))
    found = others(name, tmp_path, [10**6], "training.max_steps=700", "model.dropout=0.2")
    (told,) = (each for each in found if each["known_from"].startswith("measured"))
    assert (told["recipe"], told["where"]) == (name, hardware)
    assert told["known_from"].endswith(file)
    n_tokens = 700 * load_recipe(name).training.tgt_tokens_per_update
    assert told["seconds"] == pytest.approx([n_tokens / speed] * 2)


def test_a_like_model_is_estimated_and_any_other_is_not_told(tmp_path: Path) -> None:
    rows = 8_192 * 6  # of the embeddings, in place of 5 times as many
    overrides = ["subword.n_merges=40000", "training.max_steps=700"]
    (told,) = others("wmt14-en-de-base", tmp_path, [10**6], *overrides)
    base, _, file = measured("wmt14-en-de-base")
    model = load_recipe("wmt14-en-de-base").model
    ratio = update_flops(model, rows, 9, 9, 30) / update_flops(model, 8_192 * 5, 9, 9, 30)
    assert told["known_from"] == f"estimated by FLOPs: wmt14-en-de-base, {file}"
    assert told["seconds"] == pytest.approx([700 * 25_000 / base * ratio] * 2)
    assert others("demo", tmp_path, [10**6]) == []
    assert others("wmt14-en-de-base", tmp_path, [10**6], "model.n_layers=60") == []


@pytest.mark.parametrize(
    ("name", "speed", "shorter"),
    [
        ("wmt14-en-de-base", 450.0, ["multi30k-en-de"]),
        ("wmt14-en-de-base", 10**6, []),
        ("multi30k-en-de", 50.0, ["demo"]),
        ("wmt14-en-fr-base", 450.0, []),
        ("wsj-parsing", 450.0, ["treebank-sample"]),
    ],
)
def test_a_recipe_that_takes_days_has_one_of_its_languages_beside_it_that_does_not(
    name: str, speed: float, shorter: list[str], tmp_path: Path
) -> None:
    found = [each for each in others(name, tmp_path, [speed]) if each["where"] == "here"]
    assert [each["recipe"] for each in found] == shorter
    assert all(each["seconds"][1] < command.DAY for each in found)


def test_rent_is_the_price_of_the_time_everywhere(tmp_path: Path) -> None:
    small = [f"--set={change}" for change in (*SMALL_MODEL, "subword.n_merges=64")]
    arguments = ["plan", "demo", *small, f"--runs-dir={tmp_path}", "--rent=86.4", "--json"]
    ended = CliRunner().invoke(cli.app, arguments, catch_exceptions=False)
    training = json.loads(ended.stdout)["training"]
    for each in training:
        assert each["rent"] == pytest.approx([seconds / 1_000 for seconds in each["seconds"]])
