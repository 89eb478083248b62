"""The table of results: what is published, what we reached, and files that anyone may have sent."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from nmtkit import cli
from nmtkit.cli import results as command
from nmtkit.errors import UserError
from nmtkit.recipe_file import recipes_dir
from nmtkit.reporting.show import Form

RUNNER = CliRunner()
OURS = recipes_dir() / "results"
CHECKS = [
    {"what": "demo, 1 x cpu", "state": "held", "seen": "", "figures": {"loss_1": 8.4}},
    {
        "what": "wmt14-en-de-base, 8 x cuda",
        "state": "held",
        "seen": "fast",
        "figures": {"tgt_tokens_per_second": 2_500_000.4, "mfu": 0.4},
    },
]
SCORES = {
    "newstest2014": {
        "sacrebleu": {"score": 26.5, "how": "13a", "signature": "nrefs:1", "lines": [1]},
        "compound_split_bleu": {"score": 26.9, "score_quotes_replaced": 27.4, "how": "split"},
        "test_set": {"name": "newstest2014", "lines": 3003, "sha256": "00"},
    }
}


def shown(*form: str) -> str:
    result = RUNNER.invoke(cli.app, ["report", "--results", *form])
    assert result.exit_code == 0, result.exception
    return result.stdout


@pytest.fixture
def sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for files that were sent."""
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / "results.toml").write_text("rows = []\n", encoding="utf-8")
    monkeypatch.setattr(command, "recipes_dir", lambda: tmp_path)
    return folder


def rows_of(source: str) -> list[dict[str, Any]]:
    return [row for row in json.loads(shown("--json")) if row["source"] == source]


def test_the_readme_has_the_table() -> None:
    table = shown("--table", "markdown")
    assert table in (OURS / "README.md").read_text(encoding="utf-8")


def test_what_we_reached_names_its_file() -> None:
    ours = [row for row in json.loads(shown("--json")) if row["by"].startswith("us, ")]
    assert len(ours) > 5
    assert all((OURS / row["source"]).is_file() for row in ours)


def test_speeds_of_a_machine_stand_beside_what_is_published(sent: Path) -> None:
    name = "selftest_8-h100_2026-12-01.json"
    (sent / name).write_text(json.dumps(CHECKS), encoding="utf-8")
    (row,) = rows_of(name)
    assert [row[key] for key in ("recipe", "figure", "counted as", "hardware", "by")] == [
        "wmt14-en-de-base",
        "2,500,000",
        "target tokens/s, 8 x cuda",
        "8-h100",
        "2026-12-01",
    ]
    recipes = [line.split(" | ")[0] for line in shown("--table", "markdown").split("\n")]
    first = recipes.index("| wmt14-en-de-base")
    assert {*recipes[first:][: recipes.count("| wmt14-en-de-base")]} == {"| wmt14-en-de-base"}


def test_scores_of_a_run_are_shown_by_kind(sent: Path) -> None:
    name = "wmt14-en-de-base_4-a40_2026-12-01.json"
    (sent / name).write_text(json.dumps(SCORES), encoding="utf-8")
    found = {row["counted as"]: row["figure"] for row in rows_of(name)}
    assert found == {
        "sacreBLEU, newstest2014": "26.50",
        "compound-split BLEU, newstest2014": "26.90",
        "compound-split BLEU, quotes replaced, newstest2014": "27.40",
    }


@pytest.mark.parametrize("content", ["", "rows = 1", "rows = [1]", 'rows = [["a"]]', "x = 1"])
def test_table_without_valid_rows_is_one_sentence(sent: Path, content: str) -> None:
    (sent / "results.toml").write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=r"results\.toml is damaged"):
        command.show_results(Form())


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a_b_c.json", "{"),
        ("a_b_c.json", "\udcff"),
        ("a_b_c.json", '[{"what": 1, "state": "held", "seen": ""}]'),
        ("a_b_c.json", '[{"what": "x", "state": "won", "seen": ""}]'),
        ("a_b_c.json", '[{"what": "x", "state": "held", "seen": "", "figures": {"a": NaN}}]'),
        ("a_b_c.json", '{"set": {"sacrebleu": {"score": "much"}}}'),
        ("a_b_c.json", '{"set": {"sacrebleu": {"score": Infinity}}}'),
        ("a_b_c.json", "[" * 100_000),
        ("a_b_c.json", " " * 2**22),
        ("scores.json", "[]"),
    ],
)
def test_a_damaged_file_is_one_sentence_and_the_others_are_shown(
    sent: Path, name: str, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (sent / name).write_text(content, encoding="utf-8", errors="surrogateescape")
    (sent / "z_b_c.json").write_text(json.dumps(CHECKS), encoding="utf-8")
    command.show_results(Form(as_json=True))
    said = capsys.readouterr()
    assert len(said.err.removesuffix("\n").split("\n")) == 1
    assert name in said.err
    assert [row["source"] for row in json.loads(said.out)].count("z_b_c.json") == 1
