"""JSON Lines: texts of two languages, however their keys are written, against json itself."""

import json
from pathlib import Path
from typing import Any

import pytest

from nmtkit.errors import UserError
from nmtkit.languages import Language
from nmtkit.sources.jsonl import Jsonl
from nmtkit.sources.parallel import find_corpus

EN, DE = Language.of("en"), Language.of("de")
PAIRS = [(f"Sentence {i} \u2028 «a»", f"Satz {i}\nmehr") for i in range(7)]
ONE_LINE = [(src, tgt.replace("\n", " ")) for src, tgt in PAIRS]


def written(path: Path, values: list[Any], *, ensure_ascii: bool = True) -> str:
    lines = (json.dumps(value, ensure_ascii=ensure_ascii) for value in values)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def read(path: str, columns: tuple[str, str] | None = None, notes: Any = None) -> list[Any]:
    def no_download(file: object) -> Path:
        raise AssertionError(file)

    corpus = find_corpus(Jsonl(jsonl=path, columns=columns), EN, DE)
    return list(corpus.pairs(no_download, (notes if notes is not None else []).append))


@pytest.mark.parametrize("ascii_alone", [True, False])
@pytest.mark.parametrize("keys", [("en", "de"), ("eng_Latn", "deu_Latn"), ("English", "German")])
def test_keys_are_languages_flat_or_nested(
    tmp_path: Path, keys: tuple[str, str], ascii_alone: bool
) -> None:
    flat: list[Any] = [
        {"id": i, **dict(zip(keys, pair, strict=True)), "score": 0.5}
        for i, pair in enumerate(PAIRS)
    ]
    nested = [{"translation": value} for value in flat]
    for values in (flat, nested):
        path = written(tmp_path / "a.jsonl", values, ensure_ascii=ascii_alone)
        assert read(path) == ONE_LINE


def test_objects_without_a_side_are_counted(tmp_path: Path) -> None:
    values = [{"en": "a", "de": "b"}, {"en": "a", "fr": "b"}, {"en": "a", "de": None}, {"de": "b"}]
    notes: list[str] = []
    assert read(written(tmp_path / "a.jsonl", values), notes=notes) == [("a", "b")]
    assert "3 units" in notes[0]
    assert "2 without de" in notes[0]
    assert "1 without en" in notes[0]


@pytest.mark.parametrize("line", ["{", "[1]", '"a"', "null", "[" * 10_000, '{"en": "\\ud800"}'])
def test_a_line_that_is_no_object_is_refused_with_its_number(tmp_path: Path, line: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"en": "a", "de": "b"}}\n{line}\n', encoding="utf-8")
    with pytest.raises(UserError, match=r"a\.jsonl, line 2 is not an object of JSON"):
        read(str(path))
