"""Hints at what a user means by an option or argument of another toolkit."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nmtkit.cli import app as cli
from nmtkit.config.loading import load_recipe
from nmtkit.utils.errors import UserError

STUDY = """
name = "sizes"
description = "Two sizes"
recipe = "demo"
bleu = "sacrebleu"
rows = [{ name = "base" }]
"""


def error(typed: str) -> str:
    ended = CliRunner().invoke(cli.app, shlex.split(typed))
    assert ended.exit_code == 2
    (message,) = re.findall("^Error: (.*)$", ended.output, re.MULTILINE)
    return str(message)


@pytest.mark.parametrize(
    ("typed", "key", "value"),
    [
        ("train demo --seed 2", "seed", 2),
        ("run demo --max-steps=100", "max_steps", 100),
        ("new mine --warmup-steps 9", "warmup_steps", 9),
        ("run demo --batch-size 64", "src_tokens_per_update", 4096),
        ("run demo --lr 1e-4", "learning_rate_scale", 0.5),
    ],
)
def test_value_of_recipe_is_hinted(typed: str, key: str, value: float) -> None:
    (override,) = re.findall(r"--set (\S+)", error(typed))
    assert getattr(load_recipe("demo", [override]).training, key) == value


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("train demo --resume", "without --resume"),
        ("run demo --gpus 2", "--processes"),
        ("translate --beam-size 2", "pass --beam N"),
        ("run demo --beam-size 2", "--set decoding.beam_size=2"),
        ("train demo --max_tokens 9", "pass --max-tokens"),
        ("train demo --max_steps=9", "--set training.max_steps=9"),
        ("run demo --gpu 0", "--device cuda:0"),
        ("translate --model x", "pass --bundle DIR or --recipe RECIPE"),
        ("serve demo", "pass --recipe demo"),
        ("serve tests", "pass --bundle tests"),
        ("new mine --test wmt20", "pass --test-set wmt20"),
        ("new mine --dev wmt20 --src-lang de", "pass --dev-set wmt20"),
        ("new mine demo-train opus:TED2020/v1", "--corpus demo-train --corpus opus:TED2020/v1"),
        ("new mine memory.tmx", "pass --tmx memory.tmx"),
        ("new mine a.TSV.gz b.en b.de", "pass --tsv a.TSV.gz --src b.en --tgt b.de"),
        ("new mine a.en", "pass --src a.en --tgt FILE"),
        ("translate demo a.en", "--recipe RECIPE -i a.en"),
    ],
)
def test_guess_is_answered(typed: str, hint: str) -> None:
    assert hint in error(typed)


def test_model_of_hub_is_downloaded_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    name = "Helsinki-NLP/opus-mt-en-de"
    download = f"hf download {name} --local-dir opus-mt-en-de"
    for typed in (f"import {name} bundle", f"new mine --from {name} --src a.en --tgt a.de"):
        with pytest.raises(UserError, match=download):
            cli.app(typed.split(), standalone_mode=False)
    with pytest.raises(UserError, match=r"does not exist; correct the path$"):
        cli.app(["import", str(tmp_path / "none"), "bundle"], standalone_mode=False)


def test_key_without_section_is_hinted() -> None:
    with pytest.raises(UserError, match=r"did you mean training\.seed=2\?"):
        load_recipe("demo", ["seed=2"])
    with pytest.raises(UserError, match=r"not 'sed=2'$"):
        load_recipe("demo", ["sed=2"])


def test_text_is_no_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.en").write_text("a\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"pass --recipe RECIPE -i a\.en"):
        cli.app(["translate", "a.en"], standalone_mode=False)


def test_runs_are_compared_not_scored() -> None:
    run = "demo --set model.dropout=0.2"
    with pytest.raises(UserError, match=f"`nmtkit compare demo '{run}'`"):
        cli.app(["score", "demo", run], standalone_mode=False)
    with pytest.raises(UserError, match=r"--set scoring\.sacrebleu_tokenizer=intl"):
        cli.app(["score", "demo", "--tokenizer", "intl"], standalone_mode=False)


@pytest.mark.parametrize("command", ["run", "train", "status", "translate"])
def test_study_is_no_recipe(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sizes.toml").write_text(STUDY, encoding="utf-8")
    for name in ("table-3", "./sizes.toml"):
        with pytest.raises(UserError, match=f"`nmtkit study {name}`"):
            cli.app([*command.split(), name], standalone_mode=False)


def test_recipe_is_no_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.toml").write_text('name = "own"\n[corpus]\n', encoding="utf-8")
    for name in ("demo", "./own.toml"):
        with pytest.raises(UserError, match=f"`nmtkit run {name}`"):
            cli.app(["study", name], standalone_mode=False)
