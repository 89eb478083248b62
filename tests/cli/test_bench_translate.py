"""Translation speed: what is counted, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from chains import tiny_chain
from models import tiny
from typer.testing import CliRunner

from nmtkit import cli
from nmtkit.cli.bench import translation_flops
from nmtkit.errors import UserError
from nmtkit.fast.peak import peak_dtype
from nmtkit.model.transformer import Linear, Transformer
from nmtkit.stages import average, prepare, train

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    chain = tiny_chain(tmp_path_factory.mktemp("chain"), d_k=2, d_v=2)
    prepare.run(chain)
    train.run(chain)
    return average.run(chain).path


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text"
    path.write_text("a a a\n\na a\na\na a a a\n", encoding="utf-8", newline="\n")
    return path


def benched(bundle: Path, text: Path, *options: str) -> list[dict[str, Any]]:
    arguments = ["bench", "translate", "--bundle", bundle, "-i", text, "--device", "cpu", *options]
    ended = CliRunner().invoke(cli.app, [*map(str, arguments), "--json"], catch_exceptions=False)
    return json.loads(ended.stdout)  # type: ignore[no-any-return]


def test_each_beam_is_measured_by_sentences_tokens_and_a_share_of_the_peak(
    bundle: Path, text: Path
) -> None:
    speeds = benched(bundle, text, "--engine", "torch", "--beam", "2", "--beam", "1")
    assert [(each["engine"], each["beam_size"]) for each in speeds] == [("torch", 2), ("torch", 1)]
    for speed in speeds:
        assert (speed["batch"], speed["sentences"]) == (4, 4)
        assert speed["tokens_per_second"] >= speed["sentences_per_second"] > 0
        assert 0 < speed["share_of_peak"] == speed["flops"] / speed["peak_flops"] < 1
        assert speed["peak_bytes"] > 10**8


def test_empty_text_is_refused(bundle: Path, text: Path) -> None:
    text.write_text("\n\n", encoding="utf-8", newline="\n")
    with pytest.raises(UserError, match="has no lines to translate"):
        benched(bundle, text)


def test_share_is_of_a_peak_that_the_processor_has(bundle: Path, text: Path) -> None:
    (speed,) = benched(bundle, text, "--dtype", "int8")  # which the engine of CPUs has
    assert (speed["engine"], speed["dtype"]) == ("ctranslate2", "int8")
    assert speed["peak_of"] == str(peak_dtype(CPU, torch.bfloat16)).removeprefix("torch.")
    assert 0 < speed["share_of_peak"] < 1


def test_flops_are_those_of_all_matrices_and_of_attention() -> None:
    """One sentence of 3 source tokens and 4 steps: 1 + 3 * 2 rows, which see 3 and about 2."""
    config = tiny(n_layers=1)
    with torch.device("meta"):
        model = Transformer(config, 40)
    decoder = model.decoder[0]
    sides: dict[str, int] = {}
    for side in ("encoder", "decoder"):
        modules = getattr(model, side).modules()
        sides[side] = sum(m.weight.numel() for m in modules if isinstance(m, Linear))
    memory = decoder.get_parameter("cross_attention.kv.weight").numel()
    attention = 2 * config.n_heads * (config.d_k + config.d_v) * (3 * 3 + 7 * (3 + 2))
    expected = 2 * (
        3 * (sides["encoder"] + memory) + 7 * (sides["decoder"] - memory + 40 * config.d_model)
    )
    assert translation_flops(config, 40, [3], [4], beam_size=2) == expected + attention
