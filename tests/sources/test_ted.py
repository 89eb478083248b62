"""Talks of the IWSLT, read as prepare-iwslt14.sh reads them."""

import hashlib
from pathlib import Path
from typing import Any

import pytest
from texts import DE, EN, NO_DOWNLOADS, write_file

from nmtkit.corpus.moses import Tokenization
from nmtkit.sources.kinds import parse_source
from nmtkit.sources.parallel import find_corpus
from nmtkit.sources.source import Row
from nmtkit.utils.errors import UserError

SETS = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
# The SHA-256 of data/iwslt14-de-en/test.de and .en in harvardnlp/var-attn at ce2ac9ae.
PREPARED = {
    "de": "b899a137e81dc3e3c34f5a2cf16c09880ab33b8d22252483ff9c049b2a34e203",
    "en": "1685cc2a0c169051b66957d7f56056341161dc4617a849b649e84cdac5b73e24",
}
DOCUMENT = """<mteval>
<doc docid="1">
<url>http://talks.example/1</url>
<talkid>1</talkid>
<title>{lang}</title>
<seg id="1"> {lang} 5 &amp; 6 </seg>
<seg id="2">It\u2019s {lang}</seg>
</doc>
</mteval>
"""
TAGS = """<url>http://talks.example/1</url>
<keywords>talks</keywords>
<talkid>1</talkid>
<title>On {lang}</title>
<description>A talk of\u2019 {lang}</description>
 {lang} 1 < 2
{lang}
"""


def rows_of(table: dict[str, Any], *, is_reversed: bool = False) -> list[Row]:
    source = parse_source(table)
    langs = (DE, EN)
    if is_reversed:
        source = source.reversed()
        langs = (EN, DE)
    return list(find_corpus(source, *langs).rows(NO_DOWNLOADS))


def write_talks(folder: Path) -> dict[str, str]:
    """Write a set and a training text in each language; return their paths by name."""
    paths = {}
    for lang in ("de", "en"):
        for name, text in ((f"set.{lang}.xml", DOCUMENT), (f"train.{lang}", TAGS)):
            paths[name] = str(write_file(folder / name, text.format(lang=lang)))
    return paths


def test_segments_keep_entities(tmp_path: Path) -> None:
    paths = write_talks(tmp_path)
    table = {"ted": paths["set.de.xml"], "ted_tgt": paths["set.en.xml"]}
    expected = [("de 5 &amp; 6", "en 5 &amp; 6"), ("It's de", "It's en")]
    assert rows_of(table) == expected
    assert rows_of(table, is_reversed=True) == [row[::-1] for row in expected]


def test_facts_of_talks_are_skipped(tmp_path: Path) -> None:
    paths = write_talks(tmp_path)
    rows = rows_of({"ted": paths["train.de"], "ted_tgt": paths["train.en"]})
    assert [row[0] for row in rows] == ["On de", "A talk of\u2019 de", " de 1 < 2", "de"]


def test_several_files_are_one_text(tmp_path: Path) -> None:
    paths = write_talks(tmp_path)
    src = [paths["set.de.xml"], paths["train.de"]]
    tgt = [paths["set.en.xml"], paths["train.en"]]
    rows = rows_of({"ted": src, "ted_tgt": tgt})
    assert [row[1] for row in rows[:3]] == ["en 5 &amp; 6", "It's en", "On en"]
    with pytest.raises(UserError, match=r"set\.de\.xml has 2 sentences, but .*train\.en has 4"):
        rows_of({"ted": src, "ted_tgt": tgt[::-1]})
    with pytest.raises(ValueError, match="ted has 2 files, but ted_tgt has 1"):
        parse_source({"ted": src, "ted_tgt": tgt[0]}).check(DE, EN)


def test_talks_are_not_plain_text(tmp_path: Path) -> None:
    paths = write_talks(tmp_path)
    with pytest.raises(UserError, match="use the key ted in a recipe; if it is plain"):
        rows_of({"src": paths["set.de.xml"], "tgt": paths["set.en.xml"]})


@pytest.mark.parametrize(("lang", "published"), PREPARED.items())
def test_test_set_equals_published(lang: str, published: str, shared_data: Path) -> None:
    """The files are in maroxtn/IWSLT-BACKUP at 73a09324, with 16 in place of 14."""
    folder = shared_data / "iwslt14"
    paths = []
    for side in ("de", "en"):
        paths.append([str(folder / f"IWSLT16.{name}.de-en.{side}.xml") for name in SETS])
    if not all(Path(path).is_file() for path in paths[0] + paths[1]):
        pytest.skip(f"{folder} does not have the files of the five sets")
    rows = rows_of({"ted": paths[0], "ted_tgt": paths[1]})
    assert len(rows) == 6_750
    tokenization = Tokenization(lang, False, "tokens", "moses", aggressive_hyphens=False)
    prepared = hashlib.sha256()
    for row in rows:
        prepared.update(f"{tokenization.script_output(row[lang == 'en'])}\n".encode())
    assert prepared.hexdigest() == published
