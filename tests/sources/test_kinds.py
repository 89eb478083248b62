"""Formats other than plain text: their rows, and their detection."""

import gzip
import json
import zipfile
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import datasets
import pytest
from sacrebleu.dataset.wmt_xml import WMTXMLDataset
from texts import DE, EN, FR, NO_DOWNLOADS

from nmtkit.sources.file_pair import FilePair
from nmtkit.sources.kinds import _source, read_plain
from nmtkit.sources.parallel import find_corpus
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language

PAIRS = [(f'Sentence {i} & "more"', f"Satz {i} < mehr") for i in range(25)]
Rows = list[tuple[str, ...]]


def read(table: dict[str, Any], src: Language = EN, tgt: Language = DE) -> Rows:
    return list(find_corpus(_source(table), src, tgt).rows(NO_DOWNLOADS))


def document(number: int, src: str, **references: str) -> str:
    """A document of five segments, with references by translator."""

    def side(tag: str, attributes: str, suffix: str, column: int) -> str:
        pairs = PAIRS[5 * number : 5 * number + 5]
        segments = "".join(
            f'<seg id="{i}">{escape(pair[column] + suffix)}</seg>'
            for i, pair in enumerate(pairs, 1)
        )
        return f"<{tag} {attributes}><p>{segments}</p></{tag}>"

    texts = [side("src", 'lang="en"', "", 0)] if src else []
    for translator, suffix in references.items():
        texts.append(side("ref", f'lang="de" translator="{translator}"', suffix, 1))
    hyp = side("hyp", 'system="x" lang="de"', " wrong", 1) if src else ""
    return f'<doc id="d{number}" origlang="en">{"".join(texts)}{hyp}</doc>'


def dataset(path: Path, *documents: str) -> str:
    path.write_text(
        f'<?xml version="1.0" encoding="utf-8"?>\n<dataset id="t">{"".join(documents)}</dataset>',
        encoding="utf-8",
    )
    return str(path)


def test_wmt_xml_equals_sacrebleu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = dataset(
        tmp_path / "a.xml",
        *(document(i, "en", A="", B=" oder so") for i in range(5)),
        '<doc id="s" origlang="en" testsuite="yes"><src lang="en"><p><seg id="1">no</seg></p></src>'
        '<ref lang="de" translator="A"><p><seg id="1">nein</seg></p></ref></doc>',
    )
    theirs = WMTXMLDataset._unwrap_wmt21_or_later(path)  # type: ignore[no-untyped-call]
    expected = list(zip(theirs["src"], theirs["ref:A"], theirs["ref:B"], strict=True))
    assert read({"xml": path}) == expected
    assert "1 of test suites" in capsys.readouterr().err
    assert len(expected) == 25
    assert read({"xml": path}, DE, EN) == [(ref, src) for src, ref, _ in expected]


def test_wmt_xml_in_two_files(tmp_path: Path) -> None:
    src = dataset(tmp_path / "src.xml", *(document(i, "en") for i in range(3)))
    ref = dataset(tmp_path / "ref.xml", *(document(i, "", A="") for i in reversed(range(3))))
    assert read({"xml": [src, ref]}) == PAIRS[:15]
    with pytest.raises(UserError, match=r"both en and fr .*en, de"):
        read({"xml": [src, ref]}, EN, FR)


def test_partial_translator_is_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    documents = [document(0, "en", A="", B="!"), document(1, "en", A=""), document(2, "en")]
    assert read({"xml": dataset(tmp_path / "a.xml", *documents)}) == PAIRS[:10]
    printed = capsys.readouterr().err
    assert "10 units" in printed
    assert "5 without a reference" in printed
    assert "by B" in printed


def test_opus_zip_by_languages(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("README", "TED2020")
        archive.writestr("TED2020.en-pt_br.xml", "<linkGrp/>")
        archive.writestr("TED2020.en-pt_br.ids", "1 1")
        for hidden in ("__MACOSX/", ".", ".git/"):
            archive.writestr(f"{hidden}.TED2020.en-pt_br.en", "a")
            archive.writestr(f"{hidden}.TED2020.en-pt_br.pt_br", "b")
        for lang, column in (("en", 0), ("pt_br", 1)):
            text = "".join(f"{pair[column]}\n" for pair in PAIRS)
            archive.writestr(f"TED2020.en-pt_br.{lang}", text)
    table = {"opus_zip": str(path)}
    assert read(table, EN, Language.of("pt-BR")) == PAIRS
    assert read(table, Language.of("por"), EN) == [(tgt, src) for src, tgt in PAIRS]
    with pytest.raises(UserError, match=r"both en and pt-PT .*en, pt_br"):
        read(table, EN, Language.of("pt-PT"))


def test_saved_datasets_are_read(tmp_path: Path) -> None:
    nested = datasets.Dataset.from_list(
        [{"translation": {"en": src, "de": f"{tgt}\n"}} for src, tgt in PAIRS]
    )
    nested.save_to_disk(str(tmp_path / "nested"))
    datasets.DatasetDict({"dev": nested}).save_to_disk(str(tmp_path / "splits"))
    flat = datasets.Dataset.from_list(
        [{"n": 1, "source": src, "target": tgt} for src, tgt in PAIRS]
    )
    (tmp_path / "many").mkdir()
    for number, part in enumerate((flat.select(range(9)), flat.select(range(9, 25)))):
        part.to_parquet(str(tmp_path / "many" / f"{number}.parquet"))
    columns = ["source", "target"]
    assert read({"dataset": str(tmp_path / "nested")}) == [(src, f"{tgt} ") for src, tgt in PAIRS]
    assert len(read({"dataset": str(tmp_path / "splits"), "split": "dev"}, DE, EN)) == 25
    assert read({"dataset": str(tmp_path / "many"), "columns": columns}) == PAIRS
    assert read({"dataset": str(tmp_path / "many")}) == PAIRS
    both = {"en": "a", "de": "b"}
    datasets.Dataset.from_list([{"title": both, "text": both}]).save_to_disk(
        str(tmp_path / "titles")
    )
    one = {"dataset": str(tmp_path / "many" / "0.parquet"), "columns": columns}
    assert read(one) == PAIRS[:9]
    for table, reason in (
        ({"dataset": str(tmp_path / "titles")}, r"candidates for en: title\.en, text\.en "),
        ({"dataset": str(tmp_path / "splits")}, r"no split train \(it has dev"),
        ({**one, "columns": ["source", "n"]}, "no texts in column n"),
        ({"dataset": str(tmp_path / "none")}, "does not exist"),
    ):
        with pytest.raises(UserError, match=reason):
            read(table)


# JSON Lines


WITH_FEEDS = [(f"Sentence {i} \u2028 «a»", f"Satz {i}\nmehr") for i in range(7)]


def json_lines(path: Path, values: list[Any], *, ensure_ascii: bool = True) -> dict[str, str]:
    lines = (json.dumps(value, ensure_ascii=ensure_ascii) for value in values)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return {"jsonl": str(path)}


@pytest.mark.parametrize("ensure_ascii", [True, False])
@pytest.mark.parametrize("keys", [("en", "de"), ("eng_Latn", "deu_Latn"), ("English", "German")])
def test_jsonl_keys_flat_or_nested(
    tmp_path: Path, keys: tuple[str, str], ensure_ascii: bool
) -> None:
    flat: list[Any] = [
        {"id": i, **dict(zip(keys, pair, strict=True)), "score": 0.5}
        for i, pair in enumerate(WITH_FEEDS)
    ]
    nested = [{"translation": value} for value in flat]
    for values in (flat, nested):
        table = json_lines(tmp_path / "a.jsonl", values, ensure_ascii=ensure_ascii)
        assert read(table) == [(src, tgt.replace("\n", " ")) for src, tgt in WITH_FEEDS]


def test_jsonl_without_a_side_is_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = [{"en": "a", "de": "b"}, {"en": "a", "fr": "b"}, {"en": "a", "de": None}, {"de": "b"}]
    assert read(json_lines(tmp_path / "a.jsonl", values)) == [("a", "b")]
    printed = capsys.readouterr().err
    assert "3 units" in printed
    assert "2 without de" in printed
    assert "1 without en" in printed


@pytest.mark.parametrize("line", ["{", "[1]", '"a"', "null", "[" * 10_000, '{"en": "\\ud800"}'])
def test_invalid_jsonl_names_its_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"en": "a", "de": "b"}}\n{line}\n', encoding="utf-8")
    with pytest.raises(UserError, match=r"a\.jsonl, line 2 "):
        read({"jsonl": str(path)})


# Detection of plain text


LINES = "".join(f"Sentence {i}, with a comma; and more.\n" for i in range(20))
FORMS: dict[str, tuple[bytes, str]] = {
    "gzip": (gzip.compress(LINES.encode()), "gzip; add .gz"),
    "zip": (b"PK\x03\x04" + bytes(30), "zip"),
    "UTF-16": (LINES.encode("utf-16"), "UTF-16; convert it to UTF-8"),
    "UTF-16 without a mark": (LINES.encode("utf-16-be"), "UTF-16"),
    "Parquet": (b"PAR1" + bytes(30), "Parquet"),
    "SGML": (b'<srcset setid="a">\n<doc docid="b">\n<seg id="1">a</seg>\n', "SGML; add .sgm"),
    "segments": (b'<seg id="10">Hello</seg>\n' * 9, "SGML"),
    "XML": (b'<?xml version="1.0"?>\n<xliff/>\n', "XML"),
    "HTML": (b"<!DOCTYPE html>\n<html>\n", "XML"),
    "XML without a declaration": (b"<text>\n<s>a</s>\n</text>\n", "XML"),
    "TMX": (b'<?xml version="1.0"?>\n<tmx version="1.4">\n', "the key tmx"),
    "WMT XML": (b'<dataset><doc id="1"><src lang="en"><p><seg id="1">', "the key xml"),
    "JSON": (json.dumps([{"en": "a"}], indent=1).encode(), "JSON"),
    "CSV": (b"en,de\n" + b"yes,ja\n" * 9, "the key csv"),
    "quoted CSV": (b'"yes","ja, ja"\n' * 9, "the key csv"),
    "TSV": (b"yes\tja\n" * 9, "the key tsv"),
    "TSV with a header": (b"id\tEnglish\tGerman\n1\tyes\tja\n", "the key tsv"),
}


@pytest.mark.parametrize("form", FORMS)
def test_other_formats_are_refused(tmp_path: Path, form: str) -> None:
    content, message = FORMS[form]
    path = tmp_path / "train.en"
    path.write_bytes(content)
    (tmp_path / "train.de").write_text(LINES, encoding="utf-8")
    with pytest.raises(UserError, match=rf"train\.en .*{message}"):
        read({"src": str(path), "tgt": str(tmp_path / "train.de")})
    # Commands that read plain text name no option of `nmtkit new`.
    with pytest.raises(UserError, match=r"train\.en ") as error:
        list(read_plain(path))
    assert "--tsv" not in str(error.value)
    assert "`nmtkit new`" not in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        LINES,
        "",
        "<br> is a tag of HTML.\n" + LINES,
        "{curly} brackets\n[Applause]\n" + LINES,
        "German, English and French are languages.\n" + LINES,
        '"Yes," he replied.\n' * 9,
        "(TOP (S (NN a)))\n" * 9,
        "a tab\there\nbut not here\n" * 9,
        "\ufeffWith a mark.\n",
        "null\0byte\n" + LINES,
    ],
)
def test_plain_text_stays_plain_text(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.en"
    path.write_text(text, encoding="utf-8", newline="\n")
    lines = text.removeprefix("\ufeff").removesuffix("\n").split("\n") if text else []
    assert list(read_plain(path)) == lines


def test_swapped_file_names_are_warned_of() -> None:
    swapped = FilePair(src="train.de", tgt="train.eng")
    assert "swap them" in " ".join(swapped.warnings(EN, DE))
    assert swapped.warnings(DE, EN) == []
    portuguese = FilePair(src="a.pt-BR", tgt="a.pt-PT")
    assert portuguese.warnings(Language.of("pt-BR"), Language.of("pt-PT")) == []
    assert len(portuguese.warnings(Language.of("pt-PT"), Language.of("pt-BR"))) == 1


def test_swapped_suffixes_are_warned_of() -> None:
    for swapped in (
        FilePair(src="train.clean.de.gz", tgt="train.en"),
        FilePair(src="news.de", tgt=("a.en", "b.en")),
    ):
        assert "swap them" in swapped.warnings(EN, DE)[0]
        assert swapped.warnings(DE, EN) == []
    assert FilePair(src="news.de", tgt="b.txt").warnings(EN, DE) == []
