"""Every way in which parallel text is stored, and every way in which it is broken."""

import gzip
import io
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmtkit.corpus import sources
from nmtkit.corpus.sources import ParallelText, TextFile, read_lines, read_pairs
from nmtkit.errors import UserError

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


def test_gzipped_text_is_unzipped(tmp_path: Path) -> None:
    # Two streams end to end are one file, as `cat a.gz b.gz` makes it.
    content = gzip.compress(TEXT[:8].encode()) + gzip.compress(TEXT[8:].encode())
    assert list(read_lines(TextFile(written(tmp_path / "a.de.gz", content)))) == LINES


@pytest.mark.parametrize(("name", "mode"), [("a.tgz", "w:gz"), ("a.tar", "w:"), ("a.tar", "w:xz")])
def test_a_member_is_read_from_an_archive(tmp_path: Path, name: str, mode: str) -> None:
    members = {
        "training/a.en": b"other\n",
        "./training/a.de": TEXT.encode(),
        "b.fr.gz": gzip.compress(TEXT.encode()),
    }
    path = archive(tmp_path / name, members, mode)
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
    path = archive(tmp_path / "dev.tgz", {"dev/a-ref.de.sgm": content.encode()})
    assert list(read_lines(TextFile(path, "dev/a-ref.de.sgm"))) == expected


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
    with pytest.raises(UserError, match="the corpus tiny is empty"):
        pairs(empty, empty)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    present = written(tmp_path / "a.de", "1\n")
    with pytest.raises(UserError, match=r"cannot read .*a\.en: No such file"):
        pairs(tmp_path / "a.en", present)
    with pytest.raises(UserError, match=r"cannot read .*: Is a directory"):
        pairs(tmp_path, present)


def test_bytes_that_are_not_utf8_are_named_with_their_line(tmp_path: Path) -> None:
    path = written(tmp_path / "a.de", b"gut\n" * 2_000 + "Grüße\n".encode("latin-1"))
    with pytest.raises(UserError, match=r"a\.de, line 2,001: byte 3 is not valid UTF-8"):
        list(read_lines(TextFile(path)))


def test_a_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MAX_LINE_BYTES", 100)
    path = written(tmp_path / "a.gz", gzip.compress(b"short\n" + b"\0" * 100_000))
    with pytest.raises(UserError, match="line 2: longer than 100 bytes"):
        list(read_lines(TextFile(path)))


@pytest.mark.parametrize("kept", [1, 20, -9, -1])
def test_a_gzip_file_cut_short_is_refused(tmp_path: Path, kept: int) -> None:
    content = gzip.compress(TEXT.encode() * 50)
    path = written(tmp_path / "a.gz", content[:kept])
    with pytest.raises(UserError, match=r"a\.gz is (cut short|not a gzip file)"):
        list(read_lines(TextFile(path)))


def test_an_altered_gzip_file_is_refused(tmp_path: Path) -> None:
    content = bytearray(gzip.compress(TEXT.encode() * 50))
    content[-6] ^= 1  # in its own checksum
    with pytest.raises(UserError, match=r"a\.gz is not a gzip file, or is damaged: CRC"):
        list(read_lines(TextFile(written(tmp_path / "a.gz", bytes(content)))))


def test_text_that_only_claims_to_be_gzip_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a\.gz is not a gzip file"):
        list(read_lines(TextFile(written(tmp_path / "a.gz", "plain\n"))))


@pytest.mark.parametrize("kept", [0, 10, 60, -200])
def test_an_archive_cut_short_is_refused(tmp_path: Path, kept: int) -> None:
    noise = bytes(i * i % 251 for i in range(50_000))
    path = archive(tmp_path / "a.tgz", {"noise": noise, "a.de": b"eins\n" * 9})
    written(path, path.read_bytes()[:kept])
    with pytest.raises(UserError, match=r"a\.tgz"):
        list(read_lines(TextFile(path, "a.de")))


def test_a_missing_member_is_named(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.tgz", {"a.de": b"eins\n"})
    with pytest.raises(UserError, match=r"a\.tgz has no member a\.en"):
        list(read_lines(TextFile(path, "a.en")))


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE]
)
def test_only_regular_members_are_read(tmp_path: Path, kind: bytes) -> None:
    secret = written(tmp_path / "secret", "do not read\n")
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        entry = tarfile.TarInfo("a.de")
        entry.type, entry.linkname = kind, str(secret)
        tar.addfile(entry)
    with pytest.raises(UserError, match=r"a\.de in .*a\.tar is no regular file"):
        list(read_lines(TextFile(tmp_path / "a.tar", "a.de")))


def test_reading_an_archive_writes_nothing(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.tgz", {"../escaped": b"bad\n", "a.de": b"eins\n"})
    before = sorted(tmp_path.parent.iterdir()), sorted(tmp_path.iterdir())
    assert list(read_lines(TextFile(path, "a.de"))) == ["eins"]
    assert (sorted(tmp_path.parent.iterdir()), sorted(tmp_path.iterdir())) == before
