"""Detection of other formats: many lines are evidence, the first line is not."""

import bz2
import gzip
import io
import json
import lzma
import os
import re
import tarfile
import time
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import zstandard
from texts import DE, EN, write_file

from nmtkit.sources.file_pair import FilePair
from nmtkit.sources.jsonl import Jsonl
from nmtkit.sources.kinds import check_form, read_plain
from nmtkit.sources.source import Source
from nmtkit.sources.table import Csv, Tsv
from nmtkit.sources.text_file import TextFile
from nmtkit.sources.utf8 import available_lines
from nmtkit.sources.xml import Tmx
from nmtkit.utils.errors import UserError

SENTENCES = [
    f"Sentence {i}{', with a comma' * (i % 3)}, of a text{';' * (i % 2)}" for i in range(60)
]
TEXT = "".join(f"{sentence}\n" for sentence in SENTENCES)

FIRST_LINES = [
    "Yes, sir",
    "en,de",
    "en\tde",
    "English;German",
    "sep=;",
    "[",
    "{",
    "[1]",
    '{"a": 1}',
    "<html>",
    "<!DOCTYPE html>",
    '<?xml version="1.0"?>',
    "<doc>",
    '<seg id="1">a</seg>',
    '<srcset setid="a">',
    '<tmx version="1.4">',
    "WEBVTT",
    "00:00:01,000 --> 00:00:02,000",
    'msgid "a"',
    "key = value",
    "en:",
    "---",
    "PAR1 is a protein",
    "BZh",
    "LZIP",
    "%PDF",
    "PK",
]


@pytest.mark.parametrize("line", FIRST_LINES)
def test_first_line_is_no_evidence(tmp_path: Path, line: str) -> None:
    path = write_file(tmp_path / "a.en", f"{line}\n{TEXT}")
    assert list(read_plain(path)) == [line, *SENTENCES]


@pytest.mark.parametrize(
    "tag", ["<BT>", "<de>", "<2de>", "<BT/>", '<src lang="en">', "[de]", ">>de<<", "{x}", "(a)"]
)
def test_tags_before_lines_are_text(tmp_path: Path, tag: str) -> None:
    lines = [f"{tag} {sentence}" for sentence in SENTENCES]
    path = write_file(tmp_path / "a.en", "\n".join(lines))
    assert list(read_plain(path)) == lines


@pytest.mark.parametrize("suffix", ["srt", "po", "yml", "properties", "vtt", "json", "xml", "rtf"])
def test_suffix_is_no_evidence(tmp_path: Path, suffix: str) -> None:
    path = write_file(tmp_path / f"a.{suffix}", TEXT)
    assert list(read_plain(path)) == SENTENCES


def test_speakers_and_decimals_are_text(tmp_path: Path) -> None:
    for line in ("Alice: Hello.", "It costs 1,50 Euro.", '"Yes," he replied.', "[Applause]"):
        assert len(list(read_plain(write_file(tmp_path / "a.en", f"{line}\n" * 20)))) == 20


def cues(pattern: str, end: str = "\n") -> str:
    return "".join(f"{pattern.format(i, i)}{line}{end}" for i, line in enumerate(SENTENCES, 10))


FORMATS = {
    "srt": (cues("1\n00:00:{},000 --> 00:00:{},900\n", "\n\n"), "sub2po"),
    "srt with CRLF": (cues("1\r\n00:00:{},000 --> 00:00:{},900\r\n", "\r\n\r\n"), "sub2po"),
    "vtt": ("WEBVTT\n\n" + cues("00:{}.000 --> 00:{}.900\n", "\nmore\nand more\n\n"), "sub2po"),
    "sbv": (cues("0:00:{}.000,0:00:{}.900\n", "\n\n"), "sub2po"),
    "ass": (cues("Dialogue: 0,0:00:{}.00,0:00:{}.90,Default,,0,0,0,,"), "sub2po"),
    "sub": (cues("{{{}}}{{{}}}"), "sub2po"),
    "po": (cues('#: a.c:{}\nmsgid "', '"\nmsgstr "x"\n\n'), "po2tmx"),
    "pot": (cues('#: a.c:{}\nmsgid ""\n"', '"\nmsgstr ""\n\n'), "po2tmx"),
    "properties": ("# comment\n" + cues("app.key{}="), "prop2po"),
    "ini": ("[section]\n" + cues("key{} = "), "prop2po"),
    "strings": (cues('/* c */\n"key{}" = "', '";\n'), "prop2po"),
    "yml": ("en:\n" + cues('  key{}: "', '"\n'), "YAML"),
    "parquet": ("PAR1\x15\x04" + TEXT, "--dataset"),
    "rtf": ("{\\rtf1\\ansi " + TEXT + "}", "RTF"),
    "xliff": ('<?xml version="1.0"?>\n<xliff>\n' + cues("<x>", "</x>\n"), "xliff2po"),
    "html": ("<html>\n<body>\n" + cues("<p>", "</p>\n"), "XML"),
    "html in lines": ("<!DOCTYPE html>\n" + cues("<p>\n", "\n</p>\n"), "XML"),
    "json": (json.dumps([{"en": line} for line in SENTENCES]), "JSON"),
    "json of strings": (json.dumps(SENTENCES, indent=1), "JSON"),
    "json in lines": (json.dumps({"en": SENTENCES}, indent=2), "JSON"),
    "json arrays": ("".join(f"{json.dumps([line, line])}\n" for line in SENTENCES), "JSON"),
    "json lines": (cues('{{"en":"', '","de":"x"}\n'), "--jsonl"),
    "csv": (cues('{},"', '"\n'), "--csv"),
    "csv with semicolons": (cues('{};"', '"\n'), "--csv"),
    "tsv": (cues("{}\t"), "--tsv"),
}


@pytest.mark.parametrize("name", FORMATS)
def test_other_formats_are_refused(tmp_path: Path, name: str) -> None:
    text, remedy = FORMATS[name]
    path = write_file(tmp_path / "a.txt", text)
    with pytest.raises(UserError, match=f"looks like .*{remedy}"):
        check_form(TextFile(path))
    with pytest.raises(UserError, match="looks like") as error:
        list(read_plain(path))
    assert not re.search("--(tmx|csv|tsv|jsonl|dataset)|in a recipe", str(error.value))
    if name not in ("parquet", "rtf"):
        lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
        assert list(read_plain(path, is_plain=True)) == lines


@pytest.mark.parametrize(
    ("suffix", "line"), [("yml", "key{}: "), ("yaml", "k{}: |\n  "), ("properties", "a.key{}: ")]
)
def test_suffix_with_contents_is_evidence(tmp_path: Path, suffix: str, line: str) -> None:
    content = cues(line)
    assert len(list(read_plain(write_file(tmp_path / "a.en", content)))) > 59
    with pytest.raises(UserError, match="looks like"):
        list(read_plain(write_file(tmp_path / f"a.{suffix}", content)))


def packed_with(name: str, content: bytes = b"x") -> bytes:
    stored = io.BytesIO()
    with zipfile.ZipFile(stored, "w") as archive:
        archive.writestr(name, content)
    return stored.getvalue()


def in_tar() -> bytes:
    stored = io.BytesIO()
    with tarfile.open(fileobj=stored, mode="w") as archive:
        entry = tarfile.TarInfo("a.en")
        entry.size = len(TEXT)
        archive.addfile(entry, io.BytesIO(TEXT.encode()))
    return stored.getvalue()


BINARY = {
    "gzip": gzip.compress(TEXT.encode()),
    "bzip2": bz2.compress(TEXT.encode()),
    "xz": lzma.compress(TEXT.encode()),
    "LZMA": lzma.compress(TEXT.encode(), format=lzma.FORMAT_ALONE),
    "zstd": zstandard.compress(TEXT.encode()),
    "zip": packed_with("a.en"),
    "Office": packed_with("[Content_Types].xml"),
    "a document": packed_with("mimetype", b"application/vnd.oasis.opendocument.text"),
    "document .Word": packed_with("word/document.xml"),
    "a spreadsheet": packed_with("mimetype", b"application/vnd.oasis.opendocument.spreadsheet"),
    "spreadsheet .Excel": packed_with("xl/workbook.xml"),
    "old Office": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(30),
    "tar": in_tar(),
    "7z": b"7z\xbc\xaf\x27\x1c\0\4" + bytes(30),
    "lz4": b"\x04\x22\x4d\x18dp\xb9" + bytes(30),
    ".Z": b"\x1f\x9d\x90" + bytes(30),
    "RAR": b"Rar!\x1a\x07\1\0",
    "UTF-16": TEXT.encode("utf-16"),
    "UTF-32": TEXT.encode("utf-32"),
    "carriage returns": TEXT.replace("\n", "\r").encode(),
    "carriage": TEXT.replace("\n", "\r").encode() + b"\n",
}
KINDS: list[type[Source]] = [FilePair, Tsv, Csv, Jsonl, Tmx]


@pytest.mark.parametrize("name", BINARY)
def test_binary_files_are_refused_everywhere(tmp_path: Path, name: str) -> None:
    path = write_file(tmp_path / "a.txt", BINARY[name])
    readers: list[Callable[[], object]] = [
        lambda: list(read_plain(path)),
        lambda: list(read_plain(path, is_plain=True)),
        lambda: Csv.from_file(str(path), EN, DE, []),
        lambda: Tsv.from_file(str(path), EN, DE, []),
        lambda: Jsonl.names_in(str(path)),
    ]
    if name not in ("UTF-16", "carriage returns", "carriage"):  # these are valid XML
        readers.append(lambda: Tmx.names_in(str(path)))
    for reader in readers:
        with pytest.raises(UserError, match=rf"a\.txt .*{name}"):
            reader()


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("text", [TEXT, "你好世界。\n" * 50])
def test_utf_16_without_mark_is_refused(tmp_path: Path, text: str, encoding: str) -> None:
    with pytest.raises(UserError, match="UTF-16"):
        list(read_plain(write_file(tmp_path / "a.zh", text.encode(encoding))))


def test_binary_standard_input_is_refused() -> None:
    reader, writer = os.pipe()
    os.write(writer, BINARY["gzip"])
    os.close(writer)
    with pytest.raises(UserError, match=r"standard input .*gzip"):
        list(available_lines(reader))
    os.close(reader)


def test_carriage_returns_within_lines_are_text(tmp_path: Path) -> None:
    content = "a\rb\nc\r\r\nd\r\n"
    assert list(read_plain(write_file(tmp_path / "a.en", content))) == ["a\rb", "c\r", "d"]


@pytest.mark.parametrize(
    "line", ["<" * 99, "\r" * 99, "[", '"', " ", "<a ", "{", "a" * 99, "\\", "\t"]
)
def test_detection_takes_linear_time(tmp_path: Path, line: str) -> None:
    start = time.process_time()
    for end in ("", "\n"):
        path = write_file(tmp_path / "a.en", f"{line}{end}" * (2**16 // len(f"{line}{end}")))
        for kind in KINDS:
            with suppress(UserError):
                check_form(TextFile(path), kind)
    assert time.process_time() - start < 10
