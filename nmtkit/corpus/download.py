"""Downloads: resumed after a cut, and never used before the sha256 is right."""

import fcntl
import hashlib
import http.client
import os
import shutil
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from nmtkit.corpus.catalog import RemoteFile
from nmtkit.errors import UserError

BLOCK = 2**20
TIMEOUT_S = 30.0  # without a byte
MAX_ATTEMPTS = 5  # in a row that bring no byte
FIRST_PAUSE_S = 1.0  # doubled each time
MAY_PASS = {408, 416, 429, 500, 502, 503, 504}  # HTTP statuses that another try may mend


class _PassingError(Exception):
    """What another try may mend."""


def obtain(
    file: RemoteFile,
    downloads_dir: Path,
    mirror: Path | None = None,
    progress: Callable[[int], None] | None = None,
    *,
    timeout_s: float = TIMEOUT_S,
    sleep: Callable[[float], None] = time.sleep,
) -> Path:
    """Return a path to the file's verified bytes: in the mirror, downloaded before, or by now.

    `mirror` holds files as HOST/PATH of their URLs. `progress` is told of bytes as they arrive.

    Raises: UserError when the file cannot be had, holds other bytes, or finds no room.
    """
    if mirror is not None:
        if not mirror.is_dir():
            raise UserError(f"the mirror {mirror} is not a folder")
        if (mirrored := mirror.joinpath(*_host_and_path(file))).is_file():
            _verify(mirrored, file)
            return mirrored
    path = _place(file, downloads_dir)
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(path.parent / "lock"):
        if path.exists():
            _verify(path, file)
        else:
            _download(file, path, progress or (lambda _: None), timeout_s, sleep)
    return path


def is_here(file: RemoteFile, downloads_dir: Path, mirror: Path | None = None) -> bool:
    """Say whether `obtain` would need no network."""
    mirrored = mirror is not None and mirror.joinpath(*_host_and_path(file)).is_file()
    return mirrored or _place(file, downloads_dir).is_file()


def _place(file: RemoteFile, downloads_dir: Path) -> Path:
    return downloads_dir / file.sha256[:16] / _host_and_path(file)[-1]


def _host_and_path(file: RemoteFile) -> list[str]:
    """Return host and path of the URL as names of folders and of the file."""
    url = urlsplit(file.url)
    names = [url.netloc, *url.path.strip("/").split("/")]
    assert not {"", ".", ".."} & set(names), file.url
    return names


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Wait until no other process downloads the same file; a killed one holds no lock."""
    with path.open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _verify(path: Path, file: RemoteFile) -> None:
    """Raise UserError unless `path` holds the file's bytes."""
    if (n_bytes := path.stat().st_size) != file.n_bytes:
        raise UserError(
            f"{path} has {n_bytes:,} bytes where {file.url} has {file.n_bytes:,}; remove it"
        )
    if (sha256 := _sha256(path)) != file.sha256:
        raise UserError(f"{path} has sha256 {sha256} where {file.url} has {file.sha256}; remove it")


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _download(
    file: RemoteFile,
    path: Path,
    progress: Callable[[int], None],
    timeout_s: float,
    sleep: Callable[[float], None],
) -> None:
    """Fetch the file, verify it, and only then give it its name."""
    part = _Part(path)
    _check_room(part, file)
    progress(part.n_bytes)
    whole_by_itself = False  # every byte came in one answer
    failures, most_bytes = 0, part.n_bytes
    while True:
        try:
            if part.n_bytes != file.n_bytes:
                whole_by_itself = _fetch(file, part, progress, timeout_s)
            sha256 = _sha256(part.path)
            if sha256 == file.sha256:
                part.publish()
                return
            part.discard()
            if whole_by_itself:
                raise UserError(
                    f"{file.url} sends other bytes than expected: sha256 {sha256} instead of "
                    f"{file.sha256}; they were not kept"
                )
            raise _PassingError("the parts of the download do not fit together")
        except _PassingError as reason:
            failures = 0 if part.n_bytes > most_bytes else failures + 1
            most_bytes = max(most_bytes, part.n_bytes)
            if failures == MAX_ATTEMPTS:
                raise UserError(
                    f"cannot download {file.url} ({reason}); try again later, or give "
                    f"--mirror DIR where DIR/{'/'.join(_host_and_path(file))} is the file"
                ) from None
            sleep(FIRST_PAUSE_S * 2**failures)


class _Part:
    """What has arrived of a file, and which version of it the server called that.

    The version, an ETag or a date, lets a later run ask for the rest of the same bytes.
    """

    def __init__(self, path: Path) -> None:
        self._final_path = path
        self._version_path = path.with_name(f"{path.name}.version")
        self.path = path.with_name(f"{path.name}.part")

    @property
    def n_bytes(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    @property
    def version(self) -> str:
        """Return what If-Range takes; empty when the server named no version."""
        path = self._version_path
        return path.read_text(encoding="latin-1") if path.exists() else ""

    def begin(self, version: str) -> None:
        """Drop what is there and note the version of what comes."""
        self.discard()
        self._version_path.write_text(version, encoding="latin-1")

    def discard(self) -> None:
        self.path.unlink(missing_ok=True)
        self._version_path.unlink(missing_ok=True)

    def publish(self) -> None:
        """Give the file its name, for good even if the power fails."""
        _fsync(self.path)
        self.path.replace(self._final_path)
        _fsync(self._final_path.parent)
        self._version_path.unlink(missing_ok=True)


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def _check_room(part: _Part, file: RemoteFile) -> None:
    free = shutil.disk_usage(part.path.parent).free
    needed = file.n_bytes - part.n_bytes
    if free < needed:
        raise UserError(
            f"{file.url} needs {needed:,} bytes in {part.path.parent}, where {free:,} are free"
        )


def _fetch(
    file: RemoteFile, part: _Part, progress: Callable[[int], None], timeout_s: float
) -> bool:
    """Ask once for what is missing and keep what comes.

    Return whether the file is whole and came in this one answer. Raise _PassingError when it is
    not whole, and UserError when the server has another file or none.
    """
    headers = {"User-Agent": "nmtkit", "Accept-Encoding": "identity"}
    if part.n_bytes and part.version:
        headers |= {"Range": f"bytes={part.n_bytes}-", "If-Range": part.version}
    try:
        with urlopen(Request(file.url, headers=headers), timeout=timeout_s) as response:  # noqa: S310 - the catalog has http and https alone
            resumed = _continues(response, part)
            _check_length(response, file, part, resumed=resumed)
            if not resumed:
                part.begin(_version(response))
            _append(response, file, part, progress)
    except HTTPError as error:
        error.close()
        if error.code not in MAY_PASS:
            raise UserError(
                f"{file.url} is not to be had: HTTP {error.code} {error.reason}"
            ) from None
        if error.code == 416:  # the server has no such rest: another file
            part.discard()
        raise _PassingError(f"HTTP {error.code} {error.reason}") from None
    except (
        URLError,
        TimeoutError,
        ConnectionError,
        ssl.SSLError,
        http.client.HTTPException,
    ) as error:
        raise _PassingError(str(getattr(error, "reason", error)) or type(error).__name__) from None
    if part.n_bytes < file.n_bytes:
        raise _PassingError(f"cut off after {part.n_bytes:,} of {file.n_bytes:,} bytes")
    return not resumed


def _continues(response: http.client.HTTPResponse, part: _Part) -> bool:
    """Say whether the answer goes on where the part ends, rather than starting afresh."""
    if response.status != http.HTTPStatus.PARTIAL_CONTENT:
        return False
    if not response.headers.get("Content-Range", "").startswith(f"bytes {part.n_bytes}-"):
        part.discard()
        raise _PassingError("the server sent another range than asked for")
    return True


def _check_length(
    response: http.client.HTTPResponse, file: RemoteFile, part: _Part, *, resumed: bool
) -> None:
    """Refuse another file, or an error page, before it is fetched."""
    announced = response.headers.get("Content-Length", "")
    if not announced.isdecimal():
        return
    n_bytes = int(announced) + (part.n_bytes if resumed else 0)
    if n_bytes == file.n_bytes:
        return
    part.discard()
    if resumed:
        raise _PassingError("the file changed between two tries")
    raise UserError(
        f"{file.url} sends {n_bytes:,} bytes where {file.n_bytes:,} are expected; it is another "
        f"file by now, or a page that says why there is none"
    )


def _version(response: http.client.HTTPResponse) -> str:
    """Return a strong ETag, or the date of the last change (RFC 9110, section 13.1.5)."""
    etag = response.headers.get("ETag", "")
    return etag if etag.startswith('"') else response.headers.get("Last-Modified", "")


def _append(
    response: http.client.HTTPResponse,
    file: RemoteFile,
    part: _Part,
    progress: Callable[[int], None],
) -> None:
    with part.path.open("ab") as stream:
        while block := response.read1(BLOCK):
            stream.write(block)
            progress(len(block))
            if stream.tell() > file.n_bytes:
                break
    if part.n_bytes > file.n_bytes:
        part.discard()
        raise UserError(f"{file.url} sends more than the {file.n_bytes:,} bytes that are expected")
