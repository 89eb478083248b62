"""The table of results: what is published, and what was measured with nmtkit."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nmtkit import cli
from nmtkit.config.loading import recipes_dir
from nmtkit.reporting import results as command
from nmtkit.reporting.show import Form
from nmtkit.utils.errors import UserError

RUNNER = CliRunner()
OURS = recipes_dir() / "results"


def shown(*form: str) -> str:
    result = RUNNER.invoke(cli.app, ["report", "--results", *form])
    assert result.exit_code == 0, result.exception
    return result.stdout


def test_the_readme_has_the_table() -> None:
    table = shown("--table", "markdown")
    assert table in (OURS / "README.md").read_text(encoding="utf-8")


def test_what_we_reached_names_its_file() -> None:
    ours = [row for row in json.loads(shown("--json")) if row["by"].startswith("us, ")]
    assert len(ours) > 5
    assert all((OURS / row["source"]).is_file() for row in ours)


def test_results_of_a_recipe_begin_with_published_ones() -> None:
    authors = [
        row["by"] for row in json.loads(shown("--json")) if row["recipe"] == "multi30k-en-de"
    ]
    are_ours = [author.startswith("us, ") for author in authors]
    assert any(are_ours)
    assert are_ours == sorted(are_ours)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "rows = 3",
        "rows = [3]",
        'rows = [["demo", "1.0"]]',
        'rows = [["demo", 1.0, "", "", "", "", ""]]',
        "rows = [",
    ],
)
def test_invalid_results_are_an_error(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "results.toml").write_text(text, encoding="utf-8")
    monkeypatch.setattr(command, "recipes_dir", lambda: tmp_path)
    with pytest.raises(UserError, match=r"results\.toml"):
        command.show_results(Form())
