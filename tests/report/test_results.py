"""The table of published and measured results."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nmtkit.cli import app as cli
from nmtkit.config.loading import recipes_dir
from nmtkit.report import results
from nmtkit.utils.errors import UserError

RUNNER = CliRunner()
FOLDER = recipes_dir() / "results"


def report_results(*options: str) -> str:
    result = RUNNER.invoke(cli.app, ["report", "--results", *options])
    assert result.exit_code == 0, result.exception
    return result.stdout


def test_results_table_is_in_readme() -> None:
    table = report_results("--table", "markdown")
    assert table in (FOLDER / "README.md").read_text(encoding="utf-8")


def test_own_results_name_their_file() -> None:
    records = json.loads(report_results("--json"))
    own = [record for record in records if record["by"].startswith("us, ")]
    assert len(own) > 5
    assert all((FOLDER / record["source"]).is_file() for record in own)


def test_published_results_come_first() -> None:
    records = json.loads(report_results("--json"))
    are_own = [
        record["by"].startswith("us, ")
        for record in records
        if record["recipe"] == "multi30k-en-de"
    ]
    assert any(are_own)
    assert are_own == sorted(are_own)


def test_measured_speeds_are_numbers() -> None:
    speeds = [row for row in results.measured_results() if row.counted_as == results.RATE]
    assert len(speeds) > 1
    for row in speeds:
        assert isinstance(row.figure, int)
        assert row.cells()[1] == f"{row.figure:,}"


OTHERS = '"", "", "", ""]]'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "rows = 3",
        "rows = [3]",
        'rows = [["demo", "1.0"]]',
        f'rows = [["demo", 1.0, "BLEU", {OTHERS}',
        f'rows = [["demo", 30, "BLEU", {OTHERS}',
        f'rows = [["demo", true, "target tokens/s", {OTHERS}',
        f'rows = [["demo", "9,000", "target tokens/s", {OTHERS}',
        f'rows = [["demo", 0, "target tokens/s", {OTHERS}',
        "rows = [",
    ],
)
def test_invalid_results_are_an_error(text: str, tmp_path: Path) -> None:
    path = tmp_path / "results.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=r"results\.toml"):
        results.read_results(path)
