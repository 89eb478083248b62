"""Misspelt columns and keys: the error names the columns, not the languages."""

import json
from pathlib import Path

import pytest
from texts import rows_of

from nmtkit.new.input_texts import InputText, find_languages
from nmtkit.sources.jsonl import Jsonl
from nmtkit.sources.table import Csv, Tsv
from nmtkit.utils.errors import UserError

ROWS = ("id,English,German", "1,A cat.,Eine Katze.", "2,A dog.,Ein Hund.")


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("Englisch,German", r"no column 'Englisch' \(did you mean 'English'\?\); .* id, English"),
        ("english,Deutsch", r"no column 'Deutsch'; .* id, English, German"),
        ("id,English,Germann", r"no column 'Germann' \(did you mean 'German'\?\)"),
    ],
)
@pytest.mark.parametrize("kind", [Csv, Tsv])
def test_misspelt_column_is_named(
    kind: type[Csv | Tsv], typed: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.txt"
    text = "".join(f"{row}\n" for row in ROWS)
    if kind is Tsv:
        text = text.replace(",", "\t")
    path.write_text(text, encoding="utf-8", newline="\n")
    with pytest.raises(UserError, match=message):
        find_languages([InputText.parse(kind, f"{path}:{typed}", {})], None, None, None)


def test_all_columns_may_be_renamed(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("".join(f"{row}\n" for row in ROWS), encoding="utf-8", newline="\n")
    text = InputText.parse(Csv, f"{path}:number,en,de", {})
    assert [lang.code for lang in find_languages([text], None, None, None)] == ["en", "de"]


@pytest.mark.parametrize("typed", ["en,de", "source,target"])
def test_name_of_side_is_not_misspelt(typed: str, tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("Hen\tDen\nThe sources.\tQuellen.\n", encoding="utf-8", newline="\n")
    text = InputText.parse(Tsv, f"{path}:{typed}", {})
    langs = find_languages([text], "en", "de", None)
    source = text.source(langs, reverse=False)
    assert rows_of(source) == [("Hen", "Den"), ("The sources.", "Quellen.")]


def test_misspelt_key_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    line = json.dumps({"text": {"english": "A cat.", "german": "Eine Katze."}})
    path.write_text(f"{line}\n", encoding="utf-8", newline="\n")
    text = InputText.parse(Jsonl, f"{path}:text.englsh,text.german", {})
    with pytest.raises(UserError, match=r"'text.englsh' \(did you mean 'text.english'\?\)"):
        find_languages([text], None, None, None)
