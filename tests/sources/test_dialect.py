"""Dialects of tables: quoting and delimiters of files that Python's csv module writes."""

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from texts import rows_of, write_file

from nmtkit.sources.dialect import detect_delimiter, detect_quoting
from nmtkit.sources.table import Csv, Tsv
from nmtkit.utils.errors import UserError

ROWS = [(f"Sentence {i}, with a comma", f"Satz {i}") for i in range(1_200)]
SOME = ROWS[:20]
IN_MARKS = csv.QUOTE_ALL
DELIMITERS = (",", ";", "|")


def table(rows: Sequence[Sequence[object]], delimiter: str = "\t", quoting: int = 0) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=delimiter, quoting=quoting, lineterminator="\n").writerows(rows)  # type: ignore[arg-type]
    return text.getvalue()


def raw(rows: Sequence[tuple[str, str]]) -> str:
    return "".join(f"{src}\t{tgt}\n" for src, tgt in rows)


def lines(text: str) -> Iterator[str]:
    return iter(text.removesuffix("\n").split("\n"))


QUOTED = {
    "all": table(SOME, quoting=IN_MARKS),
    "all but the header": "en\tde\n" + table(SOME, quoting=IN_MARKS),
    "all but numbers": table([(i, *row) for i, row in enumerate(SOME)], quoting=2),
    "what needs it": table([*SOME, ('A "word"', "x"), *SOME]),
    "what needs it, late": table([*ROWS, *ROWS, ('A "word"', "x")]),
    "line ends": table([*SOME, ("two\nlines", "x"), *SOME]),
    "line ends, late": table([*ROWS, ("two\nlines", "x"), *ROWS]),
    "line ends, cut": table([("a\nb\nc", "d\ne")] * 900),
    "tabs": table([*SOME, ("a\ttab", "x"), *SOME]),
    "commas, by Excel": raw([(f'"{src}"', tgt) for src, tgt in SOME]),
}
AS_IT_IS = {
    "no marks": raw(SOME),
    "inches": raw([*SOME, ('a 5" disk', '5"-Disk'), ('5" disk', "x"), *SOME]),
    "an opening mark": raw([*SOME, ('"Hello', "Hallo"), *SOME]),
    "marks over lines": raw([*SOME, ('"Hello', "Hallo"), *SOME, ('Bye"', "x"), *SOME]),
    "marks around lines": raw([*SOME, ('"Hello', "Hallo"), *SOME, ('Bye"', 'x"'), *SOME]),
    "some quotations": raw([*SOME, ('"Yes."', '"Ja."'), ('"No."', '"Nein."'), *SOME]),
    "quotations with inner ones": raw([*SOME, ('"Yes."', '"Ja."'), ('so "no"', "x")]),
    "empty marks": raw([*SOME, ('""', "x")]),
    "one row": raw([('"Yes."', '"Ja."')]),
}


@pytest.mark.parametrize("name", QUOTED)
def test_quoted_columns_are_detected(name: str) -> None:
    assert detect_quoting(lines(QUOTED[name]), name)


@pytest.mark.parametrize("name", AS_IT_IS)
def test_quotations_are_text(name: str) -> None:
    assert not detect_quoting(lines(AS_IT_IS[name]), name)


@pytest.mark.parametrize("cell", ['"He said "yes"."', '"He said \\"yes\\"."'])
def test_marks_that_are_not_doubled(cell: str) -> None:
    text = raw([*((f'"{src}"', f'"{tgt}"') for src, tgt in SOME), (cell, '"x"')])
    with pytest.raises(UserError, match=r"He said.*--unquoted"):
        detect_quoting(lines(text), "a.tsv")


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, IN_MARKS])
@pytest.mark.parametrize("delimiter", DELIMITERS)
def test_delimiter_is_detected(delimiter: str, quoting: int) -> None:
    hard = [("a; b, c|d", "e"), ("two\nlines; or, three", "f")]
    for rows in ([*SOME, *hard], [("en", "de"), *hard], hard * 900, [*hard, ("a", "b", "c")]):
        text = table(rows, delimiter, quoting)
        assert detect_delimiter(lines(text), DELIMITERS, "a.csv") == delimiter
    declared = f"sep={delimiter}\n" + table([("a;b", "c,d|e")], delimiter, quoting)
    assert detect_delimiter(lines(declared), DELIMITERS, "a.csv") == delimiter


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Well, 1;Nun 1\nWell, 2;Nun 2\n", "--delimiter"),
        ("a;b,c\n", "--delimiter"),
        ("yes\nno\n", "one column"),
        ("", "one column"),
    ],
)
def test_unclear_delimiter_is_refused(text: str, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        detect_delimiter(lines(text), DELIMITERS, "a.csv")


@pytest.mark.parametrize("directive", ["sep=;", "SEP=;", '"sep=;"', "\ufeffsep=;"])
def test_directive_is_not_a_row(tmp_path: Path, directive: str) -> None:
    text = f'{directive}\r\nen;de\r\n"yes, sir";ja\r\nx;y;z\r\n'
    path = str(write_file(tmp_path / "a.csv", text))
    source = Csv(csv=path, columns=("en", "de"), header=True, delimiter=";")
    with pytest.raises(UserError, match="line 4: 3 columns"):
        rows_of(source)
    write_file(tmp_path / "a.csv", text.removesuffix("x;y;z\r\n"))
    assert rows_of(source) == [("yes, sir", "ja")]
    with pytest.raises(UserError, match=r"line 1 declares the delimiter ';'"):
        rows_of(source.model_copy(update={"delimiter": ","}))
    tsv = str(write_file(tmp_path / "a.tsv", "sep=\t\nyes\tja\n"))
    assert rows_of(Tsv(tsv=tsv, columns=("en", "de"))) == [("yes", "ja")]


def test_delimiters_have_other_identities(tmp_path: Path) -> None:
    path = str(write_file(tmp_path / "a.csv", "Well, 1;Nun 1\n"))
    sources = [Csv(csv=path, columns=("en", "de"), delimiter=sign) for sign in (",", ";", "|")]
    assert len({tuple(source.identity(["hash"])) for source in sources}) == 3
    assert rows_of(sources[0]) == [("Well", " 1;Nun 1")]
    assert rows_of(sources[1]) == [("Well, 1", "Nun 1")]


def test_description_names_the_dialect() -> None:
    columns = ("en", "de")
    assert "semicolon" in Csv(csv="a", columns=columns, delimiter=";").description()
    assert "quotation" in Tsv(tsv="a", columns=columns, quoted=True).description()
    assert "quotation" not in Tsv(tsv="a", columns=columns).description()
