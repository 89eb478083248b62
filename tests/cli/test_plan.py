"""What a plan says, and that it leaves nothing behind."""

from pathlib import Path
from typing import Any

import pytest
import torch

from nmtkit.cli import plan as command
from nmtkit.cli.plan import Facts
from nmtkit.corpus import prepared, store
from nmtkit.corpus.prepared import SIDES, SPLITS
from nmtkit.languages import Language
from nmtkit.machine import Machine
from nmtkit.model.cost import update_flops
from nmtkit.model.transformer import Transformer
from nmtkit.recipe_file import load_recipe
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
    seconds = 7 * tgt / planned["tgt_tokens_per_second"]
    assert planned["cost"].seconds == pytest.approx(seconds)
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
