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
        ("translate --beam-size 2", "--beam"),
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
