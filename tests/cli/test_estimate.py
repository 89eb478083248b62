"""What is said of a training that would take long, and when nothing is said."""

from pathlib import Path

import pytest
import torch

from nmtkit.cli.cost import TYPICAL_MFU, warn_if_long
from nmtkit.fast import peak
from nmtkit.machine import Machine
from nmtkit.model.cost import training_flops
from nmtkit.recipe_file import load_recipe
from nmtkit.stages.chain import Chain

BASE = load_recipe("wmt14-en-de-base")
FLOPS = training_flops(BASE.model, BASE.training, 40_960)


def chain_of(name: str, tmp_path: Path, *overrides: str, device: str = "cpu") -> Chain:
    machine = Machine(tmp_path / "runs", device=device)
    return Chain(load_recipe(name, [*overrides]), machine, name)


def said(
    chain: Chain,
    peak_flops: float,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> str:
    monkeypatch.setattr(peak, "measured_peak", lambda *_: peak_flops)
    warn_if_long(chain)
    return capfd.readouterr().err


def test_weeks_are_said_with_the_time_and_nothing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    chain = chain_of("wmt14-en-de-base", tmp_path)
    for days, expected in ((100, "about 100 days on this machine (cpu); `nmtkit plan"), (6, "")):
        peak_flops = FLOPS / (days * 86_400 * TYPICAL_MFU)
        assert expected in said(chain, peak_flops, monkeypatch, capfd)
    assert not list(tmp_path.iterdir())


def test_several_gpus_share_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Machine, "torch_device", lambda _: torch.device("cuda"))
    monkeypatch.setattr(Machine, "n_processes", lambda _: 8)
    chain = chain_of("wmt14-en-de-base", tmp_path)
    peak_flops = FLOPS / (80 * 86_400 * TYPICAL_MFU)
    assert "about 10 days on this machine (cuda)" in said(chain, peak_flops, monkeypatch, capfd)


def test_small_recipes_are_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("demo", "multi30k-en-de"):
        assert said(chain_of(name, tmp_path), 1.0, monkeypatch, capfd) == ""


def test_a_training_that_was_begun_is_not_mentioned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    chain = chain_of("demo", tmp_path, "training.max_steps=1_000_000_000")
    assert "would take" in said(chain, 1e9, monkeypatch, capfd)
    place = chain.store.draft_place("train", chain.fingerprint("train"))
    place.mkdir(parents=True)
    assert said(chain, 1e9, monkeypatch, capfd) == ""
