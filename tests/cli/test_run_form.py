"""A run as `nmtkit runs` prints it, such as 'demo --set model.dropout=0.1', in all commands."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from chains import tiny_pipeline
from typer.testing import CliRunner

from nmtkit.cli import app as cli
from nmtkit.evaluation.translations import write_set
from nmtkit.stages.pipeline import Pipeline
from nmtkit.utils.errors import UserError

DROPOUT = "model.dropout=0.25"


def run(*arguments: str) -> str:
    ended = CliRunner().invoke(cli.app, arguments)
    if isinstance(ended.exception, Exception):
        raise ended.exception
    return ended.stdout


@pytest.mark.parametrize("run_form", [f"demo --set {DROPOUT}", f"demo --set={DROPOUT}"])
def test_run_as_recipe(run_form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    expected = json.loads(run("status", "demo", "--set", DROPOUT, "--json"))
    assert expected["next"] == f"nmtkit run demo --set={DROPOUT}"
    found = json.loads(run("status", run_form, "--json"))
    assert found == expected
    both = run("status", run_form, "--set", "training.seed=7", "--json")
    assert json.loads(both)["next"] == f"nmtkit run demo --set={DROPOUT} --set=training.seed=7"
    # The suffix of the last value is not that of a file.
    with pytest.raises(UserError, match="nmtkit translate demo"):
        run("score", run_form)


@pytest.mark.parametrize("command", [("compare", "demo", "demo"), ("report", "demo")])
def test_set_beside_several_runs(command: tuple[str, ...]) -> None:
    with pytest.raises(UserError, match=f"quote that run, such as 'demo --set {DROPOUT}'"):
        run(*command, "--set", DROPOUT)


def test_recipe_in_place_of_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text('name = "mine"\n', encoding="utf-8")
    options = ("out", "--format", "huggingface")
    for source, recipe in (
        ("./mine.toml", "./mine.toml"),
        ("mine.toml", "./mine.toml"),
        ("demo", "demo"),
        (f"demo --set {DROPOUT}", f"'demo --set={DROPOUT}'"),
    ):
        with pytest.raises(UserError, match=f"recipe(;|,) pass --recipe {recipe}") as refused:
            run("export", source, *options)
        # Only a file can be seen to be a recipe, instead of a folder that is missing.
        assert ("does not exist" in str(refused.value)) == (".toml" not in source)
    with pytest.raises(UserError, match=r"^other.toml does not exist; "):
        run("export", "other.toml", *options)


def test_scores_of_run_name_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    built = tiny_pipeline(tmp_path)
    pipeline = Pipeline(built.recipe, built.settings, "demo", [DROPOUT])
    for stage in ("prepare", "train", "average"):
        pipeline.build(stage, lambda _: {})

    def write(draft: Path) -> dict[str, Any]:
        write_set(draft, "test", ["a"], ["Ein Hund."], [["Der Hund."]], [{}])
        return {}

    pipeline.build("translate", write)
    monkeypatch.setattr("nmtkit.cli.score.load_pipeline", lambda *_: pipeline)
    rows = list(csv.DictReader(io.StringIO(run("score", "demo", "--table", "csv"))))
    assert {row["system"] for row in rows} == {pipeline.run} == {f"demo --set={DROPOUT}"}
    assert {row["metric"] for row in rows} >= {"sacrebleu", "chrf", "compound_split_bleu"}
    shown = run("score", "demo")
    assert "chrF2" in shown
    assert "tokenized BLEU" not in shown
    scoring = pipeline.recipe.scoring.model_copy(update={"paper_bleu": True})
    paper = pipeline.recipe.model_copy(update={"scoring": scoring})
    of_paper = Pipeline(paper, built.settings, "demo", [DROPOUT])
    # The same artifact: only its table has more rows.
    assert of_paper.fingerprint("score") == pipeline.fingerprint("score")
    monkeypatch.setattr("nmtkit.cli.score.load_pipeline", lambda *_: of_paper)
    assert "tokenized BLEU" in run("score", "demo")


def test_report_names_unscored_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = 'name = "mine"\ndescription = "d"\nrecipe = "demo"\nbleu = "sacrebleu"\n'
    Path("mine.toml").write_text(f'{rows}[[rows]]\nname = "base"\n', encoding="utf-8")
    ended = CliRunner().invoke(cli.app, ["report", "./mine.toml"])
    printed = ended.output + capfd.readouterr().err
    assert "no row of ./mine.toml is scored in runs yet; run `nmtkit study ./mine.toml`" in printed
