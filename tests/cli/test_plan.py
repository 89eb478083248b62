"""The command `nmtkit plan`."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nmtkit.benchmark import estimates
from nmtkit.cli import app as cli
from nmtkit.config.settings import Settings
from nmtkit.config.study import load_study
from nmtkit.stages.pipeline import STAGES
from nmtkit.study.study_runs import study_pipelines
from nmtkit.utils.errors import UserError

TINY = (
    *("model.n_layers=1", "model.d_model=8", "model.d_ff=9", "model.n_heads=2"),
    *("model.d_k=3", "model.d_v=5", "model.vocabulary_multiple=8", "subword.n_merges=64"),
)


def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> str:
    monkeypatch.setattr(estimates, "measured_results", list)  # only this machine
    overrides = [f"--set={override}" for override in TINY]
    arguments = ["plan", "demo", *overrides, f"--runs-dir={tmp_path}", "--device=cpu", *options]
    result = CliRunner().invoke(cli.app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_plan_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (training,) = json.loads(plan(tmp_path, monkeypatch, "--json"))["training"]
    assert training["seconds"] > 0
    assert not list(tmp_path.iterdir())


def test_plan_tables_as_markdown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = plan(tmp_path, monkeypatch, "--table=markdown").split("\n\n**")
    assert [table.split("**")[0] for table in tables[1:]] == ["cost", "training"]
    assert "| prepare | yes |" in tables[0]


@pytest.mark.parametrize(
    "command",
    ["plan demo", "inspect demo", "score demo --worst 2", "verify wmt14-en-de-base --published"],
)
def test_csv_of_several_tables_is_refused(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"one table.*--json"):
        CliRunner().invoke(cli.app, [*command.split(), "--table=csv"], catch_exceptions=False)


def test_plan_of_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimates, "measured_results", list)
    run = " ".join(["demo", *(f"--set={override}" for override in TINY)])
    command = ["plan", run, f"--runs-dir={tmp_path}", "--device=cpu", "--json"]
    printed = CliRunner().invoke(cli.app, command, catch_exceptions=False).stdout
    assert (
        json.loads(printed)["n_parameters"]
        == json.loads(plan(tmp_path, monkeypatch, "--json"))["n_parameters"]
    )


def test_download_of_unknown_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = "--set=corpus.train=['opus:TED2020/v1']"
    assert "0 bytes, and 1 file of unknown size" in plan(tmp_path, monkeypatch, corpus)


STUDY = f"""
name = "sizes"
description = "Two sizes"
recipe = "demo"
bleu = "sacrebleu"
set = {json.dumps(TINY)}

[[rows]]
name = "base"

[[rows]]
name = "wide"
seeds = [1, 2]
set = ["model.d_ff=90", "corpus.max_tokens=80"]
"""


def test_plan_of_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(estimates, "measured_results", list)
    Path("sizes.toml").write_text(STUDY, encoding="utf-8")
    command = ["plan", "./sizes.toml", "--device=cpu", "--json"]
    printed = CliRunner().invoke(cli.app, command, catch_exceptions=False).stdout
    planned = json.loads(printed)
    base, wide = planned["rows"]
    assert (base["n_runs"], base["n_left"], wide["n_runs"]) == (1, 1, 2)
    assert wide["seconds_per_run"] > base["seconds_per_run"]
    assert planned["seconds"] == base["seconds_per_run"] + 2 * wide["seconds_per_run"]
    # Two runs need twice the space.
    assert wide["n_parameters"] > base["n_parameters"]
    assert wide["disk_bytes"] > 2 * base["disk_bytes"]
    assert planned["disk_bytes"] > base["disk_bytes"] + wide["disk_bytes"]
    assert [path.name for path in tmp_path.iterdir()] == ["sizes.toml"]
    # A finished run needs no more space; those that are left need what they did before.
    study = load_study("./sizes.toml")
    runs = study_pipelines(study, Settings(Path("runs"), device="cpu"), [])["wide"]
    for stage in STAGES:
        runs["wide seed=1"].build(stage, lambda _: {})
    printed = CliRunner().invoke(cli.app, command, catch_exceptions=False).stdout
    _, left = json.loads(printed)["rows"]
    assert left["n_left"] == 1
    assert left["disk_bytes"] == wide["disk_bytes"] / 2
    with pytest.raises(UserError, match="omit --processes"):
        CliRunner().invoke(cli.app, [*command, "--processes=2"], catch_exceptions=False)
