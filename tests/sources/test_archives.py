"""Compressed texts and archives: valid, damaged and hostile ones."""

import bz2
import gzip
import lzma
import random
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from packed import tarred, zipped
from texts import write_file

from nmtkit.sources import text_file
from nmtkit.sources.text_file import PackedError, list_zip, read_blocks

TEXT = "".join(f"Zeile {i} ist {i * i % 977} wert.\n" for i in range(400)).encode()
NOISE = random.Random(0).randbytes(50_000)  # cannot be compressed

Packer = Callable[[bytes], bytes]
PACKERS: dict[str, Packer] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor(write_checksum=True).compress,
}


def read(path: Path, member: str | None = None) -> bytes:
    return b"".join(read_blocks(path, member))


# Valid files


@given(
    contents=st.lists(st.binary(max_size=3_000), min_size=1, max_size=3),
    name=st.sampled_from(sorted(PACKERS)),
    block_bytes=st.sampled_from([1, 100, 2**18]),
)
def test_compression_round_trip(
    tmp_path_factory: pytest.TempPathFactory, contents: list[bytes], name: str, block_bytes: int
) -> None:
    for suffix in (name, name.upper()):
        packed = b"".join(map(PACKERS[name], contents))  # as `cat a.gz b.gz` does
        path = write_file(tmp_path_factory.mktemp("packed") / f"a.{suffix}", packed)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(text_file, "BLOCK_BYTES", block_bytes)
            assert read(path) == b"".join(contents)


def test_archive_is_not_unpacked(tmp_path: Path) -> None:
    members = {"../escaped": b"bad\n", "/escaped": b"bad\n", "a.de": TEXT}
    for name, content in (("a.tar", tarred(members)), ("a.zip", zipped(members))):
        path = write_file(tmp_path / name, content)
        before = sorted(tmp_path.parent.iterdir()), sorted(tmp_path.iterdir())
        assert read(path, "a.de") == TEXT
        assert (sorted(tmp_path.parent.iterdir()), sorted(tmp_path.iterdir())) == before
    path = write_file(tmp_path / "b.zip", zipped({"folder/": b"", "folder/a.de": TEXT}))
    assert list_zip(path) == ["folder/a.de"]


# Damage


@pytest.mark.parametrize("name", PACKERS)
@pytest.mark.parametrize("kept", [0, 20, -1])
def test_cut_file_is_refused(tmp_path: Path, name: str, kept: int) -> None:
    path = write_file(tmp_path / f"a.{name}", PACKERS[name](TEXT + NOISE)[:kept])
    with pytest.raises(PackedError, match="cut short"):
        read(path)


@pytest.mark.parametrize("name", PACKERS)
def test_damaged_second_stream(tmp_path: Path, name: str) -> None:
    first = PACKERS[name](TEXT)
    second = bytearray(PACKERS[name](TEXT))
    second[1] ^= 1
    path = write_file(tmp_path / f"a.{name}", first + second)
    with pytest.raises(PackedError, match=f"^is damaged, or is not a .{name} file"):
        read(path)


CHECKED = {
    **{f"a.{name}": (None, packer(TEXT)) for name, packer in PACKERS.items()},
    "a.tgz": ("b/a.de", tarred({"c": NOISE[:2_000], "b/a.de": TEXT}, "gz")),
    "a.tar.xz": ("a.de", tarred({"x" * 200: b"", "a.de": TEXT}, "xz", tarfile.PAX_FORMAT)),
    "a.zip": ("b/a.de", zipped({"b/a.de": TEXT, "c": NOISE[:2_000]})),
    "b.zip": ("b/a.de", zipped({"b/a.de": TEXT}, zipfile.ZIP_STORED)),
}


@given(
    name=st.sampled_from(sorted(CHECKED)), place=st.floats(0, 1, exclude_max=True), data=st.data()
)
def test_altered_file_has_same_text(
    tmp_path_factory: pytest.TempPathFactory, name: str, place: float, data: st.DataObject
) -> None:
    member, content = CHECKED[name]
    altered = bytearray(content)
    change = data.draw(st.sampled_from(["flip a bit", "cut", "omit", "put in"]))
    start = int(place * len(altered))
    if change == "flip a bit":
        altered[start] ^= 1 << data.draw(st.integers(0, 7))
    elif change == "cut":
        del altered[start:]
    elif change == "omit":
        del altered[start : start + data.draw(st.integers(1, 30))]
    else:
        altered[start:start] = data.draw(st.binary(min_size=1, max_size=30))
    path = write_file(tmp_path_factory.mktemp("altered") / name, bytes(altered))
    try:
        assert read(path, member) == TEXT
    except PackedError:
        assert altered != content


@pytest.mark.parametrize("name", ["a.tar", "a.TGZ", "a.zip", "a.tar.zst"])
def test_archive_without_member(tmp_path: Path, name: str) -> None:
    with pytest.raises(PackedError, match="is an archive"):
        read(write_file(tmp_path / name, b""))


# Hostile files


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_tar_links_are_not_read(tmp_path: Path, kind: bytes) -> None:
    secret = write_file(tmp_path / "secret", b"do not read\n")
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        entry = tarfile.TarInfo("a.de")
        entry.type = kind
        entry.linkname = str(secret)
        tar.addfile(entry)
    with pytest.raises(PackedError, match="not a regular file"):
        read(tmp_path / "a.tar", "a.de")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_zip_methods_are_refused(tmp_path: Path, method: int) -> None:
    with pytest.raises(PackedError, match="with deflate"):
        read(write_file(tmp_path / "a.zip", zipped({"a.de": TEXT}, method)), "a.de")


def test_zip_size_claim_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The claimed size would raise the limit on the decompressed size.
    monkeypatch.setattr(text_file, "ALLOWANCE_BYTES", 0)
    monkeypatch.setattr(text_file, "MAX_RATIO", 20)
    content = bytearray(zipped({"a.de": bytes(2**24), "b": NOISE * 6}))
    claim = content.index(b"PK\1\2") + 20
    content[claim : claim + 4] = (2**32 - 2).to_bytes(4, "little")
    assert len(content) * text_file.MAX_RATIO < 2**24
    # Newer Pythons (3.11.8, 3.12.2 and Debian's 3.11.2) detect first that it overlaps with `b`.
    with pytest.raises(PackedError, match=r"more than 20 times|Overlapped entries"):
        read(write_file(tmp_path / "a.zip", bytes(content)), "a.de")


MONOTONOUS = (b"x" * 999 + b"\n") * 2**14  # 16 MiB
BOMBS: dict[str, tuple[str | None, Callable[[], bytes]]] = {
    "a.gz": (None, lambda: gzip.compress(MONOTONOUS) * 16),
    "a.xz": (None, lambda: lzma.compress(MONOTONOUS, preset=0) * 16),
    "a.zst": (None, lambda: zstandard.compress(MONOTONOUS) * 16),
    "a.zip": ("a.de", lambda: zipped({"a.de": MONOTONOUS * 6})),
    "outer.tgz": ("a.de", lambda: gzip.compress(tarred({"a.de": MONOTONOUS * 6}))),
    "inner.tar": ("a.de.bz2", lambda: tarred({"a.de.bz2": bz2.compress(MONOTONOUS) * 16})),
}
READ_AND_PRINT_PEAK_MEMORY = r"""
import re, sys
from pathlib import Path
from nmtkit.sources.text_file import TextFile, read_lines
from nmtkit.utils.errors import UserError
def peak_kib():  # ru_maxrss would include that of the parent process
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])
before = peak_kib()
try:
    for line in read_lines(TextFile(Path(sys.argv[1]), *sys.argv[2:])):
        pass
except UserError as error:
    print(peak_kib() - before, error)
"""


@pytest.mark.parametrize("name", BOMBS)
def test_decompression_bomb_is_refused(tmp_path: Path, name: str) -> None:
    member, bomb = BOMBS[name]
    path = write_file(tmp_path / name, bomb())
    assert path.stat().st_size < 2**20
    result = subprocess.run(
        [sys.executable, "-c", READ_AND_PRINT_PEAK_MEMORY, path, *([member] if member else [])],
        capture_output=True,
        check=True,
        encoding="utf-8",
    )
    growth_kib, _, message = result.stdout.partition(" ")
    assert "more than 200 times" in message
    assert int(growth_kib) < 64 * 1024


def test_huge_window_is_refused(tmp_path: Path) -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=30)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    content = compressor.compress(TEXT) + compressor.flush()
    with pytest.raises(PackedError, match=r"a\.zst|requires too much memory"):
        read(write_file(tmp_path / "a.zst", content))
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 2**28}]
    with pytest.raises(PackedError, match="Memory usage limit exceeded"):
        read(write_file(tmp_path / "a.xz", lzma.compress(TEXT, filters=filters)))
