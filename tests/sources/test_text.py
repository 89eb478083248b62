"""Every way in which parallel text is stored, and every way in which it is broken."""

import bz2
import gzip
import html
import io
import lzma
import re
import tarfile
import time
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from nmtkit.errors import UserError
from nmtkit.sources import archives
from nmtkit.sources import text as sources
from nmtkit.sources.text import (
    ParallelText,
    TextFile,
    TmxText,
    TsvText,
    read_lines,
    read_pairs,
)

TEXT = "Grüße\u0085!\nzwei\u2028Zeilen\n\nletzte\n"
LINES = ["Grüße\u0085!", "zwei\u2028Zeilen", "", "letzte"]


def pairs(src: Path, tgt: Path) -> list[tuple[str, str]]:
    return list(read_pairs(ParallelText("tiny", TextFile(src), TextFile(tgt))))


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def archive(path: Path, members: dict[str, bytes], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return path


def test_lines_end_at_line_feeds_alone(tmp_path: Path) -> None:
    assert list(read_lines(TextFile(written(tmp_path / "a.de", TEXT)))) == LINES


@given(st.lists(st.text(st.characters(exclude_characters="\r\n\ufeff", exclude_categories=["Cs"]))))
def test_any_lines_survive(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    content = "".join(f"{line}\n" for line in lines)
    path = written(tmp_path_factory.mktemp("text") / "a.de", content)
    assert list(read_lines(TextFile(path))) == lines


def test_the_last_line_may_lack_its_end(tmp_path: Path) -> None:
    assert list(read_lines(TextFile(written(tmp_path / "a", "one\ntwo")))) == ["one", "two"]


def test_windows_line_ends_and_byte_order_mark_are_dropped(tmp_path: Path) -> None:
    path = written(tmp_path / "a", b"\xef\xbb\xbfone\r\n\xef\xbb\xbftwo\r\r\n")
    assert list(read_lines(TextFile(path))) == ["one", "\ufefftwo\r"]


@pytest.mark.parametrize("block_bytes", [1, 2, 3, 7, 64])
def test_lines_do_not_depend_on_where_blocks_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    monkeypatch.setattr(archives, "BLOCK_BYTES", block_bytes)
    path = written(tmp_path / "a", b"\xef\xbb\xbf" + TEXT.encode() + b"\r\n\0\n\nend")
    assert list(read_lines(TextFile(path))) == [*LINES, "", "\0", "", "end"]


@pytest.mark.parametrize(
    ("suffix", "packed"),
    [
        (".gz", gzip.compress),
        (".GZ", gzip.compress),
        (".bz2", bz2.compress),
        (".xz", lzma.compress),
        (".zst", zstandard.compress),
    ],
)
def test_compressed_text_is_unpacked(
    tmp_path: Path, suffix: str, packed: Callable[[bytes], bytes]
) -> None:
    # Two streams end to end are one file, as `cat a.gz b.gz` makes it.
    content = packed(TEXT[:8].encode()) + packed(TEXT[8:].encode())
    assert list(read_lines(TextFile(written(tmp_path / f"a.de{suffix}", content)))) == LINES


@pytest.mark.parametrize(
    ("name", "mode"), [("a.tgz", "w:gz"), ("a.tar", "w:"), ("a.tar", "w:xz"), ("a", "w:bz2")]
)
def test_a_member_is_read_from_an_archive(tmp_path: Path, name: str, mode: str) -> None:
    members = {
        "training/a.en": b"other\n",
        "./training/a.de": TEXT.encode(),
        "b.fr.gz": gzip.compress(TEXT.encode()),
    }
    path = archive(tmp_path / name, members, mode)
    assert list(read_lines(TextFile(path, "training/a.de"))) == LINES
    assert list(read_lines(TextFile(path, "b.fr.gz"))) == LINES


def test_a_member_is_read_from_a_tar_packed_with_zstandard(tmp_path: Path) -> None:
    tar = archive(tmp_path / "a.tar", {"a.en": b"other\n", "a.de": TEXT.encode()}, "w:")
    path = written(tmp_path / "a.tar.zst", zstandard.compress(tar.read_bytes()))
    assert list(read_lines(TextFile(path, "a.de"))) == LINES


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_member_is_read_from_a_zip_archive(tmp_path: Path, method: int) -> None:
    path = tmp_path / "europarl.zip"
    with zipfile.ZipFile(path, "w", method) as file:
        file.writestr("training/a.en", b"other\n")
        file.writestr("training/a.de", TEXT)
        file.writestr("b.fr.gz", gzip.compress(TEXT.encode()))
    assert list(read_lines(TextFile(path, "training/a.de"))) == LINES
    assert list(read_lines(TextFile(path, "b.fr.gz"))) == LINES


def test_both_sides_may_be_in_one_archive(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.tgz", {"a.de": b"eins\nzwei\n", "a.en": b"one\ntwo\n"})
    text = ParallelText("tiny", TextFile(path, "a.en"), TextFile(path, "a.de"))
    assert list(read_pairs(text)) == [("one", "eins"), ("two", "zwei")]


def test_segments_of_sgml_are_read(tmp_path: Path) -> None:
    content = (
        '<refset setid="newstest" srclang="any" trglang="de">\n<doc docid="1">\n<p>\n'
        '<seg id="1">Müller &amp; Söhne: &quot;a &lt; b&quot;</seg>\n'
        '<seg id="2"> geht\nweiter </seg> <seg id="3"></seg>\n'
        "</p>\n</doc>\n</refset>\n"
    )
    expected = ['Müller & Söhne: "a < b"', "geht weiter", ""]
    assert list(read_lines(TextFile(written(tmp_path / "a-ref.de.sgm", content)))) == expected
    members = {
        "dev/a-ref.de.sgm": content.encode(),
        "dev/a-ref.de.SGML.gz": gzip.compress(content.encode()),
    }
    path = archive(tmp_path / "dev.tgz", members)
    for member in members:
        assert list(read_lines(TextFile(path, member))) == expected


def test_a_segment_is_one_line(tmp_path: Path) -> None:
    path = written(tmp_path / "a.sgm", "<seg>a&#10;b\nc</seg><SEG id=2>d</SEG>\n")
    assert list(read_lines(TextFile(path))) == ["a b c", "d"]


@pytest.mark.parametrize("content", ["<seg>a</seg>\n<seg>b\n", "<doc>\n<seg\n"])
def test_sgml_that_ends_in_a_segment_is_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(UserError, match=r"a\.sgm is cut short: its last segment has no end"):
        list(read_lines(TextFile(written(tmp_path / "a.sgm", content))))


TAGS = ["<seg", "<seg>", '<SEG id="1">', "</seg>", "</Seg>", "<", ">", "a &lt; b", " ", "\n"]


@given(st.lists(st.sampled_from(TAGS)).map("".join))
def test_segments_are_those_of_one_expression_over_the_whole_text(
    tmp_path_factory: pytest.TempPathFactory, content: str
) -> None:
    path = written(tmp_path_factory.mktemp("text") / "a.sgm", f"{content}</seg>")
    segments = re.findall(r"(?is)<seg[^<>]*>(.*?)</seg>", f"{content}</seg>")
    expected = [html.unescape(" ".join(segment.split())) for segment in segments]
    assert list(read_lines(TextFile(path))) == expected


@pytest.mark.parametrize("reference", ["&#" + "9" * 5_000, "&#" + "0" * 5_000 + "65;"])
def test_an_endless_character_reference_is_refused(tmp_path: Path, reference: str) -> None:
    path = written(tmp_path / "a.sgm", f"<seg>{reference}</seg>")
    with pytest.raises(UserError, match=r"a\.sgm: a character reference, &#\.\.\.;, of too many"):
        list(read_lines(TextFile(path)))


SECONDS = 2.0  # of processor time, for what takes a tenth where time grows with the size alone


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.sgm", b"</seg>" + b"<seg>" * 40_000),
        ("a.tmx", b"<tmx><!--" + b"a" * 2**23),
        ("a.tmx", b"<tmx" + b" a=''" * 2**21),
    ],
)
def test_no_shape_of_a_text_takes_more_time_than_its_size(
    tmp_path: Path, name: str, content: bytes
) -> None:
    file = TextFile(written(tmp_path / f"{name}.gz", gzip.compress(content, 0)))  # small blocks
    text = ParallelText("tiny", file, file) if name == "a.sgm" else TmxText("tiny", file, "a", "b")
    begin = time.process_time()
    with suppress(UserError):
        list(read_pairs(text))
    assert time.process_time() - begin < SECONDS


TMX = b"<tmx><tu><tuv lang='en'><seg>a</seg></tuv><tuv lang='de'><seg>b</seg></tuv></tu></tmx>"
WHOLE = {"a.en": b"a\tb\n" * 9, "a.sgm": b"<seg>a &amp; b</seg>\n" * 9, "a.tmx": TMX}
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.compress,
}


def tarred(name: str, content: bytes) -> bytes:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    return entry.tobuf() + content.ljust(-(-len(content) // 512) * 512, b"\0") + bytes(1_024)


def zipped(name: str, content: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(name, content)
    return stream.getvalue()


ARCHIVERS: dict[str, Callable[[str, bytes], bytes] | None] = {
    "": None, ".tar": tarred, ".zip": zipped
}  # fmt: skip


@given(
    name=st.sampled_from(sorted(WHOLE)),
    suffix=st.sampled_from(sorted(PACKERS)),
    archive_suffix=st.sampled_from(sorted(ARCHIVERS)),
    noise=st.lists(st.tuples(st.integers(0, 2_000), st.binary(max_size=4)), max_size=3),
)
def test_any_bytes_are_a_text_or_get_one_sentence(
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
    suffix: str,
    archive_suffix: str,
    noise: list[tuple[int, bytes]],
) -> None:
    content, member = PACKERS[suffix](WHOLE[name]), None
    if archiver := ARCHIVERS[archive_suffix]:
        content, member = archiver(name + suffix, content), name + suffix
    for place, replaced in noise:
        at = place % len(content)
        content = content[:at] + replaced + content[at + len(replaced) :]
    path = tmp_path_factory.mktemp("any") / (f"a{archive_suffix}" if member else name + suffix)
    file = TextFile(written(path, content), member)
    for text in (
        ParallelText("any", file, file),
        TsvText("any", file, 0, 1),
        TmxText("any", file, "en", "de"),
    ):
        with suppress(UserError):
            list(read_pairs(text))


@pytest.mark.parametrize("line", ["word\n", "\n"])
def test_a_segment_without_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.setattr(sources, "MAX_LINE_BYTES", 100)
    path = written(tmp_path / "a.sgm", "<seg>\n" + line * 100)
    with pytest.raises(UserError, match="a segment longer than 100 characters"):
        list(read_lines(TextFile(path)))


def test_columns_are_read_in_both_directions(tmp_path: Path) -> None:
    content = gzip.compress("Grüße\u2028!\thello\n\t\nja\tyes".encode())
    file = TextFile(written(tmp_path / "a.tsv.gz", content))
    expected = [("Grüße\u2028!", "hello"), ("", ""), ("ja", "yes")]
    assert list(read_pairs(TsvText("tiny", file, 0, 1))) == expected
    assert list(read_pairs(TsvText("tiny", file, 1, 0))) == [(b, a) for a, b in expected]


@pytest.mark.parametrize(("line", "n_columns"), [("one", 1), ("", 1), ("a\tb\tc", 3)])
def test_lines_without_two_columns_are_refused_with_their_number(
    tmp_path: Path, line: str, n_columns: int
) -> None:
    file = TextFile(written(tmp_path / "a.tsv", f"ja\tyes\n{line}\nnein\tno\n"))
    with pytest.raises(UserError, match=rf"a\.tsv, line 2: {n_columns} columns"):
        list(read_pairs(TsvText("tiny", file, 0, 1)))


def test_a_translation_memory_is_read_from_an_archive(tmp_path: Path) -> None:
    tmx = (
        '<tmx version="1.4"><body><tu><tuv xml:lang="de"><seg>ja</seg></tuv>'
        '<tuv xml:lang="en-US"><seg>yes</seg></tuv></tu></body></tmx>'
    )
    path = archive(tmp_path / "a.tgz", {"de-en.tmx.gz": gzip.compress(tmx.encode())})
    text = TmxText("tiny", TextFile(path, "de-en.tmx.gz"), "en", "de")
    assert list(read_pairs(text)) == [("yes", "ja")]


def test_real_text_keeps_its_number_of_lines(shared_data: Path) -> None:
    folder = shared_data / "wmt-news"
    n_pairs = sum(1 for _ in pairs(folder / "ende.en", folder / "ende.de"))
    assert n_pairs == 24_241


def test_sides_of_different_length_are_refused_with_both_counts(tmp_path: Path) -> None:
    src = written(tmp_path / "a.en", "1\n2\n3\n4\n5\n")
    tgt = written(tmp_path / "a.de", "1\n2\n")
    with pytest.raises(UserError, match=r"a\.en has 5 lines, .*a\.de has 2"):
        pairs(src, tgt)
    with pytest.raises(UserError, match=r"a\.de has 2 lines, .*a\.en has 5"):
        pairs(tgt, src)


def test_an_empty_corpus_is_refused(tmp_path: Path) -> None:
    empty = written(tmp_path / "a.en", "")
    with pytest.raises(UserError, match=r"the corpus tiny is empty: .*a\.en has no line"):
        pairs(empty, empty)
    with pytest.raises(UserError, match=r"the corpus tiny is empty: .*a\.en has no line"):
        list(read_pairs(TsvText("tiny", TextFile(empty), 0, 1)))
    tmx = TextFile(written(tmp_path / "a.tmx", "<tmx><body/></tmx>"))
    with pytest.raises(UserError, match=r"tiny is empty: .*a\.tmx has no unit in both en and de"):
        list(read_pairs(TmxText("tiny", tmx, "en", "de")))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    present = written(tmp_path / "a.de", "1\n")
    with pytest.raises(UserError, match=r"cannot read .*a\.en: No such file"):
        pairs(tmp_path / "a.en", present)
    with pytest.raises(UserError, match=r"cannot read .*: Is a directory"):
        pairs(tmp_path, present)


def test_bytes_that_are_not_utf8_are_named_with_their_line(tmp_path: Path) -> None:
    path = written(tmp_path / "a.de", b"gut\n" * 2_000 + "Grüße\n".encode("latin-1") + b"gut\n")
    with pytest.raises(UserError, match=r"a\.de, line 2,001: byte 3 is not valid UTF-8"):
        list(read_lines(TextFile(path)))


@pytest.mark.parametrize("n_bytes", [2**24, 2**24 + 1, 2**24 + 2**18])
def test_a_line_of_more_than_16_mebibytes_is_refused(tmp_path: Path, n_bytes: int) -> None:
    path = written(tmp_path / "a.gz", gzip.compress(b"short\n" + b"\0" * n_bytes + b"\nend\n", 1))
    lines = read_lines(TextFile(path))
    assert next(lines) == "short"
    if n_bytes == sources.MAX_LINE_BYTES:
        assert [len(line) for line in lines] == [n_bytes, 3]
        return
    with pytest.raises(UserError, match=r"a\.gz, line 2: longer than 16,777,216 bytes"):
        list(lines)


def test_what_is_wrong_with_a_member_is_said_of_it_and_its_archive(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.tgz", {"a.de": b"eins\n"})
    with pytest.raises(UserError, match=r"^a\.en in .*a\.tgz is not there; the archive has a\.de$"):
        list(read_lines(TextFile(path, "a.en")))
    with pytest.raises(UserError, match=r"^cannot read a\.en in .*b\.tgz: No such file"):
        list(read_lines(TextFile(tmp_path / "b.tgz", "a.en")))
