"""Downloads: resumed after an interruption, and never used before their bytes are verified.

A file must match what was published about it. If no sha256 was published, it must also match its
first download, which the lock file records.
"""

import hashlib
import http.client
import time
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from nmtkit.artifacts import check_room, replace_file
from nmtkit.errors import UserError
from nmtkit.sources import lockfile
from nmtkit.sources.catalog import RemoteFile

BLOCK = 2**20
TIMEOUT_S = 30.0  # without a byte
MAX_ATTEMPTS = 5  # in a row that receive no byte
FIRST_PAUSE_S = 1.0  # doubled each time
MAX_QUOTED = 200  # characters of a server's message that one of ours quotes
TRANSIENT = {408, 416, 429, 500, 502, 503, 504}  # HTTP statuses that a retry may cure
FIRST_BYTES = {  # of a file with this suffix, and their offset
    ".gz": (0, b"\x1f\x8b"),
    ".tgz": (0, b"\x1f\x8b"),
    ".zip": (0, b"PK"),
    ".xz": (0, b"\xfd7zXZ"),
    ".zst": (0, b"\x28\xb5\x2f\xfd"),
    ".bz2": (0, b"BZh"),
    ".tar": (257, b"ustar"),
}


class _TransientError(Exception):
    """A failure that a retry may cure."""


class _WrongBytesError(Exception):
    """The bytes are not those of the file: what was found, and what was expected.

    `way_out` says what to do if only the first download says what to expect.
    """

    def __init__(self, seen: str, expected: str, way_out: str = "") -> None:
        super().__init__(seen, expected)
        self.seen, self.expected, self.way_out = seen, expected, way_out


def obtain(
    file: RemoteFile,
    downloads_dir: Path,
    mirror: Path | None = None,
    progress: Callable[[int], None] | None = None,
    say: Callable[[str], None] = lambda _: None,
    *,
    timeout_s: float = TIMEOUT_S,
    sleep: Callable[[float], None] = time.sleep,
) -> Path:
    """Return the path of the verified file, which is downloaded unless it is here already.

    Args:
        mirror: a folder that holds files as HOST/PATH of their URLs, in place of the network.
        progress: called with the number of bytes that are present or arrive; the number is
            negative if some have to be discarded.
        say: told why and when it will be tried again, a sentence each time.

    Raises:
        UserError: the file is not available, has other bytes than expected, or does not fit on
            the disk.
    """
    progress = progress or (lambda _: None)
    if mirror is not None and not mirror.is_dir():
        raise UserError(f"the mirror {mirror} is not a folder")
    if mirror is not None and (mirrored := _mirrored(file, mirror)).is_file():
        _verify_stored(mirrored, file, downloads_dir, progress)
        return mirrored
    path = _place(file, downloads_dir)
    path.parent.mkdir(parents=True, exist_ok=True)
    with lockfile.waiting_lock(path.parent / "lock"):
        if path.exists():
            _verify_stored(path, file, downloads_dir, progress)
        elif mirror is not None:
            raise UserError(
                f"the mirror has no {_mirrored(file, mirror)}; save {file.url} there, or leave out "
                "--mirror to download it"
            )
        else:
            _download(file, path, downloads_dir, progress, say, timeout_s, sleep)
    return path


# What is known without a network


def find(file: RemoteFile, downloads_dir: Path, mirror: Path | None = None) -> Path | None:
    """Return the path that `obtain` would verify and return without the network, if any."""
    places = [_place(file, downloads_dir)]
    if mirror is not None:
        places.insert(0, _mirrored(file, mirror))
    return next((path for path in places if path.is_file()), None)


def is_here(file: RemoteFile, downloads_dir: Path, mirror: Path | None = None) -> bool:
    """Return whether `obtain` would need no network."""
    return find(file, downloads_dir, mirror) is not None


def part_bytes(file: RemoteFile, downloads_dir: Path) -> int:
    """Return how many bytes of an unfinished download have arrived."""
    return _size(_part_of(_place(file, downloads_dir)))


def known_sha256(file: RemoteFile, downloads_dir: Path) -> str | None:
    """Return the published sha256, or else that of the first download, if there was one.

    Raises:
        UserError: the lock file is damaged.
    """
    return _known(file, downloads_dir).sha256


def known_bytes(file: RemoteFile, downloads_dir: Path) -> int | None:
    """Return the published length, or else that of the first download, if there was one.

    Raises:
        UserError: the lock file is damaged.
    """
    return _known(file, downloads_dir).n_bytes


def identity(file: RemoteFile, downloads_dir: Path) -> str:
    """Return the sha256 that identifies the file.

    Raises:
        UserError: it was not published, and the file was never downloaded.
    """
    sha256 = known_sha256(file, downloads_dir)
    if sha256 is None:
        raise UserError(
            f"the sha256 of {file.url} was not published, so it is unknown before the first "
            "download; run `nmtkit prepare` first"
        )
    return sha256


class _Known(NamedTuple):
    """What is known about a file before it is downloaded."""

    n_bytes: int | None
    sha256: str | None
    md5: str | None
    way_out: str  # what to do if only the first download differs from the file as it is now

    @property
    def has_hash(self) -> bool:
        return bool(self.sha256 or self.md5)


def _known(file: RemoteFile, downloads_dir: Path) -> _Known:
    first = None if file.sha256 else lockfile.find(file.url, downloads_dir)
    if first is None:
        return _Known(file.n_bytes, file.sha256, file.md5, "")
    return _Known(first.n_bytes, first.sha256, file.md5, _way_out(downloads_dir))


def _place(file: RemoteFile, downloads_dir: Path) -> Path:
    folder = hashlib.sha256(file.url.encode("utf-8")).hexdigest()[:16]
    return downloads_dir / folder / _host_and_path(file)[-1]


def _mirrored(file: RemoteFile, mirror: Path) -> Path:
    return mirror.joinpath(*_host_and_path(file))


def _part_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.part")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _host_and_path(file: RemoteFile) -> list[str]:
    """Return the host and path of the URL as names of folders and of the file."""
    url = urlsplit(file.url)
    names = [url.netloc, *url.path.strip("/").split("/")]
    assert not {"", ".", ".."} & set(names), file.url
    return names


# Verification


def _verify_stored(
    path: Path, file: RemoteFile, downloads_dir: Path, progress: Callable[[int], None]
) -> None:
    try:
        _verify(path, file, downloads_dir)
        progress(_size(path))
    except _WrongBytesError as wrong:
        has = "had {} at its first download" if wrong.way_out else "has {}"
        raise UserError(
            f"{path} has {wrong.seen}, but {file.url} {has.format(wrong.expected)}; remove it"
            f"{wrong.way_out}"
        ) from None


def _verify(path: Path, file: RemoteFile, downloads_dir: Path) -> None:
    """Compare a file with what was published and with the first download, which this may be.

    Raises:
        _WrongBytesError: they differ.
    """
    n_bytes = path.stat().st_size
    if file.n_bytes not in (None, n_bytes):
        raise _WrongBytesError(f"{n_bytes:,} bytes", f"{file.n_bytes:,}")
    sha256 = _hash(path, "sha256")
    if file.sha256 not in (None, sha256):
        raise _WrongBytesError(f"sha256 {sha256}", str(file.sha256))
    if file.md5 is not None and (md5 := _hash(path, "md5")) != file.md5:
        raise _WrongBytesError(f"md5 {md5}", file.md5)
    if file.sha256 is not None:
        return
    if file.md5 is None:
        _check_first_bytes(path, file)
    seen = lockfile.Record(sha256=sha256, n_bytes=n_bytes)
    first = lockfile.note(file.url, seen, downloads_dir)
    if seen != first:
        raise _WrongBytesError(f"sha256 {sha256}", first.sha256, _way_out(downloads_dir))


def _way_out(downloads_dir: Path) -> str:
    return (
        f", or remove its entry from {lockfile.place(downloads_dir)} if its publisher changed the "
        "file and you accept the new one"
    )


def _check_first_bytes(path: Path, file: RemoteFile) -> None:
    """Check the signature of an archive: without a hash, it could be a web page of an error."""
    suffix = PurePosixPath(_host_and_path(file)[-1]).suffix
    start, expected = FIRST_BYTES.get(suffix, (0, b""))
    with path.open("rb") as stream:
        stream.seek(start)
        seen = stream.read(len(expected))
    if seen != expected:
        raise _WrongBytesError(f"the bytes {seen!r}", f"{expected!r}, as {suffix} files have")


def _hash(path: Path, name: str) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, name).hexdigest()


# Downloading


def _download(
    file: RemoteFile,
    path: Path,
    downloads_dir: Path,
    progress: Callable[[int], None],
    say: Callable[[str], None],
    timeout_s: float,
    sleep: Callable[[float], None],
) -> None:
    """Fetch the file, verify it, and only then move it to `path`."""
    known = _known(file, downloads_dir)
    part = _Part(path, known.n_bytes, progress)
    if not known.has_hash:
        part.discard()  # nothing could verify what an earlier run left
    if known.n_bytes is not None:
        check_room(path.parent, known.n_bytes - part.n_bytes, file.url)
    failures, most_bytes = 0, part.n_bytes
    while True:
        try:
            _try(file, known, part, downloads_dir, timeout_s)
            return
        except _TransientError as reason:
            failures = 0 if part.n_bytes > most_bytes else failures + 1
            most_bytes = max(most_bytes, part.n_bytes)
            if failures == MAX_ATTEMPTS:
                raise UserError(
                    f"cannot download {file.url} ({reason}); try again later, or {_by_hand(file)}"
                ) from None
            pause = FIRST_PAUSE_S * 2**failures
            attempt = f"attempt {failures + 1} of {MAX_ATTEMPTS} in {pause:.0f} s"
            say(f"download {file.url}: {reason}; {attempt}")
            sleep(pause)


def _by_hand(file: RemoteFile) -> str:
    return f"save it as DIR/{'/'.join(_host_and_path(file))} and give --mirror DIR"


def _try(
    file: RemoteFile, known: _Known, part: "_Part", downloads_dir: Path, timeout_s: float
) -> None:
    """Fetch what is missing and publish the file.

    Raises:
        _TransientError: a retry may succeed.
        UserError: no retry can.
    """
    is_whole_answer = False
    if part.n_bytes != part.n_total:
        is_whole_answer = _fetch(file, known, part, timeout_s)
    try:
        _verify(part.path, file, downloads_dir)
    except _WrongBytesError as wrong:
        part.discard()
        if is_whole_answer:
            before = "at its first download" if wrong.way_out else "expected"
            raise UserError(
                f"{file.url} sends other bytes than {before}: {wrong.seen} instead of "
                f"{wrong.expected}; they were deleted: check what the address serves now"
                f"{wrong.way_out}"
            ) from None
        raise _TransientError("the parts of the download do not fit together") from None
    part.publish()


class _Part:
    """The part of a file that has arrived, and the server's name for its version.

    The version, an ETag or a date, lets a later attempt request the rest of the same bytes.
    """

    def __init__(self, path: Path, n_total: int | None, progress: Callable[[int], None]) -> None:
        self._final_path = path
        self._version_path = path.with_name(f"{path.name}.version")
        self._progress = progress
        self.path = _part_of(path)
        self.n_total = n_total  # bytes of the whole file; None while unknown
        progress(self.n_bytes)

    @property
    def n_bytes(self) -> int:
        return _size(self.path)

    @property
    def version(self) -> str:
        """Return the value for If-Range; it is empty if the server named no version."""
        path = self._version_path
        return path.read_text(encoding="latin-1") if path.exists() else ""

    def begin(self, version: str) -> None:
        """Discard what has arrived, and record the version that comes next."""
        self.discard()
        self._version_path.write_text(version, encoding="latin-1")

    def append(self, blocks: Iterator[bytes]) -> None:
        """Append blocks, and stop after the first one that exceeds the expected length."""
        with self.path.open("ab") as stream:
            for block in blocks:
                stream.write(block)
                self._progress(len(block))
                if self.n_total is not None and stream.tell() > self.n_total:
                    break

    def discard(self) -> None:
        self._progress(-self.n_bytes)
        self.path.unlink(missing_ok=True)
        self._version_path.unlink(missing_ok=True)

    def publish(self) -> None:
        self._version_path.unlink(missing_ok=True)  # first: nothing would clean it up afterwards
        replace_file(self.path, self._final_path)


def _fetch(file: RemoteFile, known: _Known, part: _Part, timeout_s: float) -> bool:
    """Request what is missing once, and keep what arrives.

    Returns:
        Whether this one response certainly held the whole file.

    Raises:
        _TransientError: the file is still incomplete.
        UserError: the server has another file or none.
    """
    if part.n_total is None and not known.has_hash:
        part.discard()  # nothing would show that a rest belongs to it
    with _ask(file, part, timeout_s) as response:
        _refuse_page(response, file)
        resumed = _continues(response, part)
        announced = _announced(response, resumed=resumed)
        _check_length(announced, file, known, part, resumed=resumed)
        n_total = known.n_bytes or announced or (part.n_total if resumed else None)
        is_bounded = n_total is not None or response.chunked
        if not is_bounded:
            raise UserError(
                f"{file.url} comes without its length, which was not published either, so that a "
                f"truncated download would go unnoticed; {_by_hand(file)}"
            )
        if not resumed:
            part.begin(_version(response))
        part.n_total = n_total
        if n_total is not None:
            check_room(part.path.parent, n_total - part.n_bytes, file.url)
        part.append(_blocks(response))
    if n_total is not None and part.n_bytes > n_total:
        part.discard()
        raise UserError(f"{file.url} sends more than the expected {n_total:,} bytes")
    if part.n_bytes < (n_total or 1):
        of_total = f" of {n_total:,}" if n_total else ""
        raise _TransientError(f"cut off after {part.n_bytes:,}{of_total} bytes")
    return not resumed and is_bounded


def _ask(file: RemoteFile, part: _Part, timeout_s: float) -> http.client.HTTPResponse:
    headers = {"User-Agent": "nmtkit", "Accept-Encoding": "identity"}
    if part.n_bytes and part.version:
        headers |= {"Range": f"bytes={part.n_bytes}-", "If-Range": part.version}
    request = Request(file.url, headers=headers)  # noqa: S310 - a catalog has only http and https
    try:
        response: http.client.HTTPResponse = urlopen(request, timeout=timeout_s)  # noqa: S310
    except HTTPError as error:
        error.close()
        reason = f"HTTP {error.code} {_one_line(error.reason)}"
        if error.code not in TRANSIENT:
            raise UserError(f"{file.url} is not available: {reason}; {_by_hand(file)}") from None
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            part.discard()  # the server has no such range: it has another file
        raise _TransientError(reason) from None
    except (OSError, http.client.HTTPException) as error:
        raise _TransientError(_reason(error)) from None
    return response


def _blocks(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """Yield the body; a broken connection is transient, a broken disk is not."""
    try:
        while block := response.read1(BLOCK):
            yield block
    except (OSError, http.client.HTTPException) as error:
        raise _TransientError(_reason(error)) from None


def _reason(error: Exception) -> str:
    return _one_line(getattr(error, "reason", error)) or type(error).__name__


def _one_line(said: object) -> str:
    """Shorten what a server said to fit into a sentence."""
    return " ".join(str(said).split())[:MAX_QUOTED]


def _continues(response: http.client.HTTPResponse, part: _Part) -> bool:
    """Return whether the response continues where the part ends, rather than starting over."""
    if response.status != http.HTTPStatus.PARTIAL_CONTENT:
        return False
    if not response.headers.get("Content-Range", "").startswith(f"bytes {part.n_bytes}-"):
        part.discard()
        raise _TransientError("the server sent another range than requested")
    if _version(response) not in ("", part.version):
        part.discard()
        raise _TransientError("the file changed between two attempts")
    return True


def _announced(response: http.client.HTTPResponse, *, resumed: bool) -> int | None:
    """Return the length of the whole file, if the response gives it."""
    told = response.headers.get("Content-Range" if resumed else "Content-Length", "")
    n_bytes = told.rpartition("/")[2]
    return int(n_bytes) if n_bytes.isdecimal() else None


def _check_length(
    announced: int | None, file: RemoteFile, known: _Known, part: _Part, *, resumed: bool
) -> None:
    """Refuse a file of another length before it is fetched."""
    expected = part.n_total if resumed else known.n_bytes
    if announced == 0:
        raise _TransientError("an empty response")
    if announced is None or expected in (None, announced):
        return
    part.discard()
    if resumed:
        raise _TransientError("the file changed between two attempts")
    raise UserError(
        f"{file.url} sends {announced:,} bytes, not the expected {expected:,}; it is another file "
        f"now, or a page that explains why there is none: look at it{known.way_out}"
    )


def _refuse_page(response: http.client.HTTPResponse, file: RemoteFile) -> None:
    if response.headers.get_content_type() == "text/html":
        raise UserError(
            f"{file.url} sends a web page instead of the file; look at what it says, or "
            f"{_by_hand(file)}"
        )


def _version(response: http.client.HTTPResponse) -> str:
    """Return a strong ETag, or the date of the last change (RFC 9110, section 13.1.5)."""
    etag = response.headers.get("ETag", "")
    return etag if etag.startswith('"') else response.headers.get("Last-Modified", "")
