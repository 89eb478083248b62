"""What is printed: complete, and not too wide for a page."""

from itertools import zip_longest

import pytest

from nmtkit.reporting.tables import print_recipes

LONG = "/a/very/long/place/" + "with/many/folders/" * 20 + "end"


def columns(printed: str) -> list[str]:
    """The text of each column of the tables, without spaces, folded cells put together again."""
    rows = [line.split("│")[1:-1] for line in printed.split("\n") if line.startswith("│")]
    return [
        "".join("".join(cell.split()) for cell in column)
        for column in zip_longest(*rows, fillvalue="")
    ]


def test_tables_in_a_pipe_are_complete_and_at_most_120_columns_wide(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    recipes = [
        ("recipe", "mine", f"what it is {LONG}", "./mine.toml"),
        ("study", "other", "another", LONG),
    ]
    print_recipes(recipes, as_json=False)
    printed = capsys.readouterr().out
    tables = [line for line in printed.split("\n") if line[:1] in "┏┃┡│├└┌"]
    assert max(map(len, tables)) == 120
    for text in (each for _, *row in recipes for each in row):
        assert any("".join(text.split()) in column for column in columns(printed))
