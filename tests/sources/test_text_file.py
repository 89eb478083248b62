"""Reading of text files, archives, pipes and SGML, and their errors."""

import gzip
import html
import os
import re
import time
from contextlib import suppress
from pathlib import Path

import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st
from packed import tarred, zipped
from texts import DE, EN, write_file

from nmtkit.sources import sgml, text_file
from nmtkit.sources.sgml import read_segments
from nmtkit.sources.sides import Variants
from nmtkit.sources.text_file import TextFile, read_lines
from nmtkit.sources.utf8 import MAX_LINE_BYTES, available_lines
from nmtkit.sources.xml import Tmx
from nmtkit.utils.errors import UserError

TEXT = "Grüße\u0085!\nzwei\u2028Zeilen\n\nletzte\n"
LINES = ["Grüße\u0085!", "zwei\u2028Zeilen", "", "letzte"]


@pytest.mark.parametrize("block_bytes", [1, 3, 64, 2**18])
@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (TEXT, LINES),
        (f"\ufeff{TEXT}\r\n\0\n\nend", [*LINES, "", "\0", "", "end"]),
        ("\ufeffone\r\n\ufefftwo\r\r\n", ["one", "\ufefftwo\r"]),
    ],
)
def test_lines_end_only_at_line_feeds(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    content: str,
    lines: list[str],
    block_bytes: int,
) -> None:
    monkeypatch.setattr(text_file, "BLOCK_BYTES", block_bytes)
    path = write_file(tmp_path / "a.de", content)
    assert list(read_lines(TextFile(path))) == lines
    kept = list(read_lines(TextFile(path, keep_bom=True)))
    mark = "\ufeff" if content.startswith("\ufeff") else ""
    assert kept == [mark + lines[0], *lines[1:]]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.tgz", "gz"),
        ("a.tar", ""),
        ("a.tar.xz", "xz"),
        ("a.TBZ2", "bz2"),
        ("a.tar.zst", ""),
        ("a.zip", ""),
    ],
)
def test_member_of_archive(tmp_path: Path, name: str, kind: str) -> None:
    members = {
        "training/a.en": b"other\n",
        "training/a.de": TEXT.encode(),
        "b.fr.gz": gzip.compress(TEXT.encode()),
    }
    is_zip = name.endswith(".zip")
    path = write_file(tmp_path / name, zipped(members) if is_zip else tarred(members, kind))
    if name.endswith(".zst"):
        path.write_bytes(zstandard.compress(path.read_bytes()))
    assert list(read_lines(TextFile(path, "training/a.de"))) == LINES
    assert list(read_lines(TextFile(path, "b.fr.gz"))) == LINES


SECONDS = 2.0  # of CPU time; in linear time, the work takes a tenth of it


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.sgm", b"</seg>" + b"<seg>" * 40_000),
        ("a.tmx", b"<tmx><!--" + b"a" * 2**23),
        ("a.tmx", b"<tmx" + b" a=''" * 2**21),
    ],
)
def test_reading_takes_linear_time(tmp_path: Path, name: str, content: bytes) -> None:
    file = TextFile(write_file(tmp_path / f"{name}.gz", gzip.compress(content, 0)))  # small blocks
    variants = Variants(EN, DE)
    begin = time.process_time()
    with suppress(UserError):
        list(read_lines(file) if name == "a.sgm" else Tmx(tmx=name).rows([file], variants))
    assert time.process_time() - begin < SECONDS


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read .*a\.en: No such file"):
        list(read_lines(TextFile(tmp_path / "a.en")))
    with pytest.raises(UserError, match=r"cannot read .*: Is a directory"):
        list(read_lines(TextFile(tmp_path)))


def test_invalid_utf8_names_its_line(tmp_path: Path) -> None:
    path = write_file(tmp_path / "a.de", b"gut\n" * 2_000 + "Grüße\n".encode("latin-1") + b"gut\n")
    with pytest.raises(UserError, match=r"a\.de, line 2,001: byte 3 "):
        list(read_lines(TextFile(path)))


@pytest.mark.parametrize("n_bytes", [2**24, 2**24 + 1, 2**24 + 2**18])
def test_huge_line_is_refused(tmp_path: Path, n_bytes: int) -> None:
    path = write_file(
        tmp_path / "a.gz", gzip.compress(b"short\n" + b"\0" * n_bytes + b"\nend\n", 1)
    )
    lines = read_lines(TextFile(path))
    assert next(lines) == "short"
    if n_bytes == MAX_LINE_BYTES:
        assert [len(line) for line in lines] == [n_bytes, 3]
        return
    with pytest.raises(UserError, match=r"a\.gz, line 2: .*16,777,216"):
        list(lines)


# Lines of a pipe: they are not delayed, lost or split


def test_lines_of_pipe_are_not_delayed() -> None:
    reader, writer = os.pipe()
    lines = available_lines(reader)
    os.write(writer, b"\xef\xbb\xbffirst\nsecond\r\n\nhal")
    assert next(lines) == ["first", "second", ""]
    os.write(writer, b"f\n")
    assert next(lines) == ["half"]
    os.write(writer, "\u2028 last".encode())
    os.close(writer)
    assert list(lines) == [["\u2028 last"]]
    os.close(reader)


# Segments of SGML: the same as with a regular expression, in bounded memory


def segments(content: str) -> list[str]:
    return [segment.text for segment in read_segments(iter(content.split("\n")), "a.sgm")]


@pytest.mark.parametrize("content", ["<seg>a</seg>\n<seg>b\n", "<doc>\n<seg\n"])
def test_unfinished_sgml_is_refused(content: str) -> None:
    with pytest.raises(UserError, match=r"a\.sgm is cut short"):
        segments(content)


TAGS = ["<seg", "<seg>", '<SEG id="1">', "</seg>", "</Seg>", "<", ">", "&lt;", "&#10;", " ", "\n"]


@given(st.lists(st.sampled_from(TAGS)).map("".join))
@example("<seg>a&#10;b\nc</seg>")
def test_segments_equal_regular_expression(content: str) -> None:
    found = re.findall(r"(?is)<seg[^<>]*>(.*?)</seg>", f"{content}</seg>")
    expected = [html.unescape(" ".join(segment.split())).replace("\n", " ") for segment in found]
    assert segments(f"{content}</seg>") == expected


@pytest.mark.parametrize("line", ["word\n", "\n"])
def test_endless_segment_is_refused(monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    monkeypatch.setattr(sgml, "MAX_SEGMENT_CHARACTERS", 100)
    with pytest.raises(UserError, match="longer than 100 characters"):
        segments("<seg>\n" + line * 100)
