"""TSV and CSV: quoting, compared with Python's csv module, and headers."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from texts import DE, EN, rows_of

from nmtkit.sources.table import Csv, Tsv
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language

PAIRS = [("yes", "ja"), ('a "word", quoted', "ein; Wort\tmit Tab"), ("two\nlines", "zwei")]
ONE_LINE = [(src.replace("\n", " "), tgt) for src, tgt in PAIRS]


def write_table(path: Path, rows: Sequence[tuple[str, ...]], **dialect: str) -> str:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, **dialect).writerows(rows)  # type: ignore[arg-type]
    return str(path)


@pytest.mark.parametrize("delimiter", [",", ";"])
def test_csv_cells_with_special_characters(tmp_path: Path, delimiter: str) -> None:
    rows = [("id", "en", "de"), *((str(i), *pair) for i, pair in enumerate(PAIRS))]
    path = write_table(tmp_path / "a.csv", rows, delimiter=delimiter)
    source = Csv.from_file(path, EN, DE, [])
    assert rows_of(source) == ONE_LINE
    assert rows_of(source, DE, EN) == [(tgt, src) for src, tgt in ONE_LINE]
    assert source.model_dump()["delimiter"] == delimiter


@pytest.mark.parametrize(
    ("columns", "has_header"),
    [
        (("id", "en", "de"), True),  # because of "ID"
        (("Original", "Ziel"), True),
        (("original ", "ZIEL"), True),
        (("x", "en", "de"), False),
        (("", "en", "de"), False),
    ],
)
def test_header_of_named_columns(
    tmp_path: Path, columns: tuple[str, ...], has_header: bool
) -> None:
    path = write_table(tmp_path / "a.csv", [("ID", "Original", "Ziel"), ("1", "yes", "ja")])
    source = Csv.from_file(path, EN, DE, columns)
    assert source.model_dump()["header"] == has_header
    assert rows_of(source)[-1] == ("yes", "ja")
    assert len(rows_of(source)) == 2 - has_header


@pytest.mark.parametrize(
    ("header", "columns", "sides"),
    [
        ("ID English Indonesian", "", None),
        ("ID English Indonesian", "English Indonesian", (1, 2)),
        ("ID English Indonesian", "English ID", (1, 0)),
        ("id en id", "en id", None),  # two columns named id
        ("key en ID", "", (1, 2)),
        ("key en ID", "key en ID", (1, 2)),
        ("key ID en", "key en ID", None),  # in another order than typed
        ("en id de ja", "de ja", (2, 3)),  # whatever the names mean
        ("en de", "en de", (0, 1)),
        ("to it", "it to", (1, 0)),
        ("source target", "target source", (1, 0)),  # as typed, not as called
        ("text_en text_id n", "", (0, 1)),
        ("text_en id n", "", None),
        ("text_en text_id id", "", None),
        ("text_en text_id n", "text_en text_id", (0, 1)),
        ("text_en text_id n", "text_en text_ix", None),
        ("source target source_lang", "", None),
        ("source target source_lang", "source target", (0, 1)),
        ("en id source_lang", "", (0, 1)),
        ("Source TARGET n", "", (0, 1)),
        ("en en-US id", "", (0, 2)),
        ("en-GB en-US id", "", None),
        ("English Kommentar", "", None),  # not English and the other column
        ("id en", "", (1, 0)),
        ("id en", "id en", None),  # the target first
        ("x en", "x en", (0, 1)),
        ("en id n", "id id", None),
        ("en id id n", "en id", None),
        ("en x", "en x", (0, 1)),
    ],
)
def test_columns_of_header(
    tmp_path: Path, header: str, columns: str, sides: tuple[int, int] | None
) -> None:
    names = header.split()
    cells = tuple(f"cell {position}" for position in range(len(names)))
    path = write_table(tmp_path / "a.tsv", [tuple(names), cells], delimiter="\t")
    langs = EN, Language.of("id")
    if sides is None:
        with pytest.raises(UserError, match=r"--tsv .*a\.tsv"):
            Tsv.from_file(path, *langs, columns.split())
    else:
        source = Tsv.from_file(path, *langs, columns.split())
        assert rows_of(source, *langs) == [tuple(cells[side] for side in sides)]
        source.check(*langs)


def test_header_after_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("\ufeff EN \t\tDeutsch\nyes\tx\tja\n", encoding="utf-8")
    assert rows_of(Tsv.from_file(str(path), EN, DE, [])) == [("yes", "ja")]


def test_tsv_quoting_is_optional(tmp_path: Path) -> None:
    path = write_table(tmp_path / "a.tsv", [*PAIRS], delimiter="\t")
    assert rows_of(Tsv(tsv=path, columns=("en", "de"), quoted=True)) == ONE_LINE
    (tmp_path / "b.tsv").write_text('"a\tb"\n', encoding="utf-8")
    assert rows_of(Tsv(tsv=str(tmp_path / "b.tsv"), columns=("en", "de"))) == [('"a', 'b"')]


@given(st.lists(st.tuples(st.text(), st.text()), min_size=1))
def test_csv_equals_python(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]
) -> None:
    text = io.StringIO(newline="")
    csv.writer(text).writerows([("en", "de"), *rows, ("x", "y")])
    try:
        data = text.getvalue().encode()
    except UnicodeEncodeError:
        return
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    path.write_bytes(data)
    as_lines = data.decode().replace("\r\n", "\n")  # line ends are normalized, inside cells too
    expected = [tuple(cell.replace("\n", " ") for cell in row) for row in _rows(as_lines)[1:]]
    expected = [(src, tgt) for src, tgt in expected if src.strip() and tgt.strip()]
    assert rows_of(Csv(csv=str(path), columns=("en", "de"), header=True)) == expected


def _rows(text: str) -> list[list[str]]:
    lines = [f"{line}\n" for line in text.split("\n")]
    return [row for row in csv.reader(lines) if row]


VARIANTS = [("pt-PT", "pt-BR"), ("zh_TW", "zh_CN"), ("sr-Latn", "sr-Cyrl")]


@pytest.mark.parametrize(
    "names",
    [
        *VARIANTS,
        ("DE", "EN"),
        ("de-DE", "en-US"),
        ("German", "English"),
        ("Deutsch", "english"),
        ("deu_Latn", "eng_Latn"),
        (" de ", "en"),
        ("German (Germany)", "English (United States)"),
    ],
)
def test_header_decides_the_direction(tmp_path: Path, names: tuple[str, str]) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("\t".join(names) + "\nja\tyes\nnein\tno\n", encoding="utf-8")
    tgt, src = map(Language.of, names) if names in VARIANTS else (DE, EN)
    assert rows_of(Tsv.from_file(str(path), src, tgt, []), src, tgt) == [
        ("yes", "ja"),
        ("no", "nein"),
    ]
    right = (str(tgt), str(src))
    wrong = (str(src), str(tgt))
    for columns, header in ((wrong, False), (wrong, True), (right, False)):
        with pytest.raises(UserError, match="line 1 is a header"):
            rows_of(Tsv(tsv=str(path), columns=columns, header=header), src, tgt)
    assert rows_of(Tsv(tsv=str(path), columns=right, header=True), src, tgt)[0] == ("yes", "ja")


@pytest.mark.parametrize(
    "line", ["is\tes", "no\tnein", "It\tEs", "as\tals", "Polish\tPolitur", "no way\tin de"]
)
def test_language_codes_as_words_are_text(tmp_path: Path, line: str) -> None:
    path = tmp_path / "a.tsv"
    path.write_text(f"{line}\nyes\tja\n", encoding="utf-8")
    source = Tsv.from_file(str(path), EN, DE, [])
    assert rows_of(source) == [tuple(line.split("\t")), ("yes", "ja")]


SENTENCES = [
    ("Der Himmel ist heute blau.", "The sky is blue today."),
    ("Wohin gehst du jetzt?", "Where are you going now?"),
    ("Ja", "Yes"),
    ("Das weiß ich wirklich nicht", "I really do not know that"),
]
SPEECH = [("今日は空が青いです。", "The sky is blue today."), ("はい", "Yes it is so")]
TERMS = [("Hund", "dog"), ("grüner Tee", "green tea"), ("Haus", "house")]
SCORES = [("0.93", "The sky is blue today."), ("0.5", "Where are you going now?")]


@pytest.mark.parametrize(
    ("first", "rows"),
    [
        (("text_a", "text_b"), SENTENCES),
        (("text.de", "translation.en"), SENTENCES),
        (("Source text", "Target text"), SENTENCES),
        (("Satz", "Übersetzung"), SENTENCES),
        (("", "text"), SENTENCES),
        (("score", "text"), SCORES),
        (("日本語文", "英語文"), SPEECH),
        (("term_a", "term_b"), TERMS),
        (("term_a", "term_b"), []),
    ],
)
@pytest.mark.parametrize("kind", [Tsv, Csv])
def test_unknown_header_is_refused(
    tmp_path: Path, kind: type[Tsv | Csv], first: tuple[str, str], rows: list[tuple[str, str]]
) -> None:
    """Two columns are not read in order if line 1 may name them in another."""
    delimiter = "\t" if kind is Tsv else ","
    path = write_table(tmp_path / "a.txt", [first, *rows], delimiter=delimiter)
    with pytest.raises(UserError, match=rf"line 1 of --{kind.key} .*a\.txt:SOURCE,TARGET"):
        kind.from_file(path, EN, DE, [])
    # Both remedies of the message: the names of a header, and any names if line 1 is text.
    source = kind.from_file(path, EN, DE, first[::-1])
    assert source.model_dump()["header"]
    if rows:
        assert rows_of(source) == [row[::-1] for row in rows]
    if all(first):  # a row with a blank cell is skipped
        assert rows_of(kind.from_file(path, EN, DE, ["en", "de"]))[0] == first


@pytest.mark.parametrize(
    "header",
    [
        ("text_de", "text_en"),
        ("text.de", "text.en"),
        ("Text (DE)", "Text (EN)"),
        ("de-DE text", "en-GB text"),
        ("Text in German", "Text in English"),
    ],
)
def test_languages_in_header_are_found(tmp_path: Path, header: tuple[str, str]) -> None:
    path = write_table(tmp_path / "a.tsv", [header, *SENTENCES], delimiter="\t")
    assert rows_of(Tsv.from_file(path, EN, DE, [])) == [row[::-1] for row in SENTENCES]


@pytest.mark.parametrize(
    ("first", "rows"),
    [
        (("Hallo!", "Hello!"), SENTENCES),
        (("Sprichst du Deutsch?", "Do you speak English?"), SENTENCES),
        (("Geh.", "Go."), SENTENCES),
        (("Ja, gut", "Well, yes"), SENTENCES),
        (("Wiederaufnahme der Sitzungsperiode", "Resumption of the session"), SENTENCES),
        (("„Nein“", "“No”"), SENTENCES),
        (("はい。", "Yes."), SPEECH),
        (("Katze", "cat"), TERMS),
        (("Ja", "Yes"), []),
    ],
)
def test_text_in_line_1_is_read(
    tmp_path: Path, first: tuple[str, str], rows: list[tuple[str, str]]
) -> None:
    path = write_table(tmp_path / "a.tsv", [first, *rows], delimiter="\t")
    assert rows_of(Tsv.from_file(path, DE, EN, []), DE, EN) == [first, *rows]


@pytest.mark.parametrize("row", ['"a"b,c', '"a,b', "a", "a,b,c", "", "a\rb,c"])
def test_damaged_csv_names_its_line(tmp_path: Path, row: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"x,y\n{row}\n", encoding="utf-8", newline="")
    with pytest.raises(UserError, match=r"a\.csv, line 2: [^?]*$"):
        rows_of(Csv(csv=str(path), columns=("en", "de")))


def test_blank_cells_and_joined_rows_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ["en,de", *(f"word {i},Wort {i}" for i in range(40))]
    lines[5] = "word," + " "
    lines[10] = '"a screen of 24,Schirm'
    lines[20] = 'of 24",Bildschirm'
    path = tmp_path / "a.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    source = Csv(csv=str(path), columns=("en", "de"), header=True)
    assert len(rows_of(source)) == 40 - 1 - 10
    skipped, suspicion = capsys.readouterr().err.rstrip("\n").split("\n")
    assert skipped.endswith("1 with a blank de")
    assert "lines 11 to 21" in suspicion
