"""Tables in all formats: complete, not too wide, and with escaped text."""

import csv
import io
import json
from collections.abc import Callable
from itertools import zip_longest

import pytest

from nmtkit.reporting.grid import Grid, as_csv, as_latex, as_markdown
from nmtkit.reporting.show import Form, TableForm, show
from reporting.conftest import HOSTILE

LONG = "/a/very/long/place/" + "with/many/folders/" * 20 + "end"
GRID = Grid(
    "lengths & words",
    ("side", "text", "1,000 words"),
    2,
    [[("en", "a_b [bold]x[/bold]", "1,234"), ("en", "50 % :smile:", "-7.5")], [("de", "~^", "3")]],
)


def columns(printed: str) -> list[str]:
    """The text of the columns of the tables, without spaces and line breaks in cells."""
    rows = [line.split("│")[1:-1] for line in printed.split("\n") if line.startswith("│")]
    texts = []
    for column in zip_longest(*rows, fillvalue=""):
        texts.append("".join("".join(column).split()))
    return texts


def test_pipe_width_of_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    rows = [("prepare", LONG), ("train", f"missing {LONG}")]
    show(Form(), {}, [Grid.of("", ("stage", "where"), rows, 2), f"note: {LONG}"])
    printed = capsys.readouterr().out
    tables = [line for line in printed.split("\n") if line[:1] in "┏┃┡│├└┌"]
    assert max(map(len, tables)) == 120
    assert "".join("".join(text.split()) for _, text in rows) in columns(printed)
    assert f"note: {LONG}\n" in printed
    show(Form(), {}, [GRID])
    out = capsys.readouterr().out
    assert all(cell in out for group in GRID.groups for row in group for cell in row)
    assert all(aligned in out for aligned in ("│ ~^    ", "       -7.5 │"))  # text, and numbers
    assert out.count("en ") == 1  # a repeated first cell is shown once


def test_markdown_renders_as_table() -> None:
    lines = as_markdown(GRID).split("\n")
    assert lines[0] == r"**lengths \& words**"
    assert lines[2:5] == [
        "| side | text | 1,000 words |",
        "|---|---|--:|",
        r"| en | a\_b \[bold\]x\[/bold\] | 1,234 |",
    ]


def test_latex_uses_booktabs() -> None:
    lines = as_latex(GRID).split("\n")
    assert [" ".join(line.split()) for line in lines[1:8]] == [
        r"\begin{tabular}{llr}",
        r"\toprule",
        r"side & text & 1,000 words \\",
        r"\midrule",
        r"en & a\_b [bold]x[/bold] & 1,234 \\",
        r"& 50 \% :smile: & -7.5 \\",
        r"de & \textasciitilde{}\^{} & 3 \\",
    ]


def test_csv_numbers_have_no_commas() -> None:
    rows = list(csv.reader(io.StringIO(as_csv(GRID))))
    assert rows[0] == list(GRID.columns)
    assert [row[0] for row in rows[1:]] == ["en", "en", "de"]  # repeated in every row
    assert [row[2] for row in rows[1:]] == ["1234", "-7.5", "3"]


@pytest.mark.parametrize("write", [as_markdown, as_latex, as_csv])
def test_hostile_text_in_tables(write: Callable[[Grid], str]) -> None:
    text = write(Grid.of(HOSTILE, (HOSTILE, "n"), [(HOSTILE, "7")], 1))
    assert all(line.isprintable() for line in text.split("\n"))
    assert len(text.split("\n")) == len(
        write(Grid.of("x", ("x", "n"), [("x", "7")], 1)).split("\n")
    )
    if write is as_markdown:
        assert "<" not in text.replace("\\<", "")


def test_show_sentences_by_format(
    capsys: pytest.CaptureFixture[str],
) -> None:
    parts: list[Grid | str] = ["a note", GRID]
    begin: dict[TableForm, str] = {"latex": "% a note\n", "markdown": "a note\n", "csv": "side,"}
    for form, beginning in begin.items():
        show(Form(table=form), {}, parts)
        assert capsys.readouterr().out.startswith(beginning)
    show(Form(as_json=True), {"grid": GRID}, parts)
    assert json.loads(capsys.readouterr().out)["grid"]["n_labels"] == 2
