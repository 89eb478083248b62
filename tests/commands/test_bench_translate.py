"""Translation speed: what is counted, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from chains import tiny_chain
from models import tiny

from nmtkit.commands.bench_translate import bench_translation, translation_flops
from nmtkit.errors import UserError
from nmtkit.fast.peak import peak_dtype
from nmtkit.machine import EngineName, EnginePrecision, Machine
from nmtkit.model.transformer import Linear, Transformer
from nmtkit.reporting.facts import TranslationSpeed
from nmtkit.reporting.tables import print_translation_speeds
from nmtkit.stages import average, prepare, train

CPU = torch.device("cpu")
MACHINE = Machine(Path("runs"), device="cpu")
TORCH, FLOAT32 = [EngineName.TORCH], [EnginePrecision.FLOAT32]


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


def benched(bundle: Path, text: Path, **changes: Any) -> list[TranslationSpeed]:
    """Measure the first three sentences with one engine, dtype and beam."""
    how = {"engines": TORCH, "dtypes": FLOAT32, "beams": [2], "batches": [], "n_lines": 3}
    return bench_translation(bundle, text, MACHINE, **{**how, **changes})


def test_speed_counts_sentences_tokens_and_a_share_of_the_peak(
    bundle: Path, text: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    speeds = benched(bundle, text)
    (speed,) = speeds
    assert (speed.beam_size, speed.batch, speed.sentences) == (2, 3, 3)
    assert speed.tokens_per_second >= speed.sentences_per_second > 0
    assert 0 < speed.share_of_peak == speed.flops / speed.peak_flops < 1
    assert speed.peak_bytes > 10**8
    print_translation_speeds(speeds, as_json=True)
    assert json.loads(capsys.readouterr().out)[0]["beam_size"] == 2


def test_empty_text_is_refused(bundle: Path, text: Path) -> None:
    text.write_text("\n\n", encoding="utf-8", newline="\n")
    with pytest.raises(UserError, match="has no lines to translate"):
        benched(bundle, text)


@pytest.mark.parametrize("beam", [0, 1_025])
def test_beam_is_bounded_as_in_a_recipe(bundle: Path, text: Path, beam: int) -> None:
    with pytest.raises(UserError, match=rf"beam_size = {beam}: Input should be"):
        benched(bundle, text, beams=[2, beam])


def test_share_is_of_a_peak_that_the_processor_has(bundle: Path, text: Path) -> None:
    int8 = {"engines": [EngineName.CTRANSLATE2], "dtypes": [EnginePrecision.INT8]}
    (speed,) = benched(bundle, text, **int8)
    assert speed.peak_of == str(peak_dtype(CPU, torch.bfloat16)).removeprefix("torch.")
    assert 0 < speed.share_of_peak < 1


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
