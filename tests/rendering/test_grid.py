"""Tables in all formats: complete, not too wide, and with escaped text."""

import csv
import io
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from itertools import pairwise, zip_longest
from pathlib import Path

import pytest
from rich.console import Console

from nmtkit.rendering.grid import Grid, Row, as_csv, as_latex, as_markdown, as_rich
from nmtkit.rendering.show import Form, TableForm, show
from nmtkit.utils.errors import UserError
from rendering.conftest import HOSTILE

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


DOCUMENT = r"""\documentclass{article}
\usepackage{booktabs}
\begin{document}
%s
\end{document}
"""


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [("[in brackets]", "25.50 ± 0.50"), ("* starred", "7")],
        [(HOSTILE, "[1]"), ("a\nb", r"\x {y} $1 50% # _ ^ ~ < >")],
    ],
)
def test_latex_compiles(rows: list[Row], tmp_path: Path) -> None:
    table = as_latex(Grid.of("100% [a]", ("[system]", "score\nof all"), rows, 1))
    lines = table.split("\n")
    assert r"\begin{tabular}{lr}" in lines
    for before, line in pairwise(lines):  # a bracket would be an argument of \\ or \midrule
        assert not line.lstrip().startswith(("[", "*")), before
    heads = lines[lines.index(r"\toprule") + 1]
    assert heads.count(" & ") == 1
    if shutil.which("pdflatex") is None:
        pytest.skip("pdflatex is not installed")
    # The fonts of a plain document have no such characters, which are not the table's fault.
    ascii_table = table.encode("ascii", "ignore").decode("ascii")
    (tmp_path / "t.tex").write_text(DOCUMENT % ascii_table, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    ended = subprocess.run(
        command, cwd=tmp_path, capture_output=True, encoding="utf-8", check=False
    )
    assert ended.returncode == 0, ended.stdout


@pytest.mark.parametrize("width", [60, 80])
def test_terminal_breaks_no_words(width: int) -> None:
    texts = ("multi30k-en-de", "Multi30k English-German, Transformer-tiny; lower-cased")
    rows = [("recipe", *texts), ("study", "wmt14-en-de-base-nc11", "English-French " * 9)]
    console = Console(width=width, file=io.StringIO())
    console.print(as_rich(Grid.of("", ("", "name", "what it is"), rows, 3), console.width))
    assert isinstance(console.file, io.StringIO)
    printed = console.file.getvalue()
    assert {len(line) for line in printed.split("\n")} == {0, width}
    words = re.sub("[│┃┏┡└]", " ", printed).split()
    for row in rows:
        for word in " ".join(row).split():
            assert word in words


def test_terminal_breaks_lines_rather_than_words() -> None:
    run = "demo --set=averaging.n_checkpoints=1"
    console = Console(width=60, file=io.StringIO())
    grid = Grid.of("", ("run", "score"), [(run, "demo-test 83.29 sacreBLEU")], 2)
    console.print(as_rich(grid, console.width))
    assert isinstance(console.file, io.StringIO)
    words = re.sub("[│┃┏┡└]", " ", console.file.getvalue()).split()
    assert set(run.split()) < set(words)


def test_terminal_without_space_breaks_words() -> None:
    console = Console(width=20, file=io.StringIO())
    row = ("multi30k-en-de", "English-German", LONG)
    console.print(as_rich(Grid.of("", ("", "", "file"), [row], 3), console.width))
    assert isinstance(console.file, io.StringIO)
    printed = console.file.getvalue()
    assert max(len(line) for line in printed.split("\n")) <= 20
    assert columns(printed)[:2] == list(row[:2])


def test_csv_writes_data() -> None:
    data = Grid.of("", ("score", "low", "high"), [("25.5", "25", "26")], 3)
    grid = Grid("title", ("score",), 0, [[("25.50 [25.00, 26.00]",)]], data=data)
    assert as_csv(grid.filled()) == "score,low,high\n25.5,25,26"
    assert "[25.00, 26.00]" in as_latex(grid)


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


def test_csv_is_one_table(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match="--json"):
        show(Form(table="csv"), {}, [GRID, GRID])
    assert capsys.readouterr().out == ""
