"""Downloads: resumed after an interruption, and never used before their bytes are verified."""

import hashlib
import http.client
from collections.abc import Iterator
from pathlib import Path
from time import sleep
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from nmtkit.errors import Advance, Say, UserError, shortened
from nmtkit.files import check_room, locked, move
from nmtkit.sources.catalog import RemoteFile

BLOCK = 2**20
TIMEOUT_S = 30.0  # without a byte
MAX_ATTEMPTS = 5  # in a row that receive no byte
FIRST_PAUSE_S = 1.0  # doubled each time
TRANSIENT = {408, 416, 429, 500, 502, 503, 504}  # HTTP statuses that a retry may cure


class _TransientError(Exception):
    """A failure that a retry may cure; every other one is a UserError."""


def obtain(
    file: RemoteFile,
    downloads_dir: Path,
    mirror: Path | None = None,
    progress: Advance = lambda _: None,
    say: Say = lambda _: None,
) -> Path:
    """Return the path of the verified file, which is downloaded unless it is here already.

    The folder `mirror`, in place of the network, holds files as HOST/PATH of their URLs. `progress`
    counts the bytes that are present or arrive, and down those that are discarded.
    """
    path = find(file, downloads_dir, mirror)
    if path is None and mirror is not None:
        raise UserError(
            f"the mirror has no {Path(mirror, *_host_and_path(file))}; save {file.url} there, or "
            "leave out --mirror to download it"
        )
    if path is None:
        path = _place(file, downloads_dir)
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.with_name(f"{path.name}.lock")
        with locked(lock, f"{file.url} is being downloaded", note={}, say=say):
            if not path.exists():
                _download(file, path, progress, say)
                return path
    if wrong := _difference(path, file):
        raise UserError(f"{path} has {wrong}, as {file.url} has; remove it")
    progress(_size(path))
    return path


def find(file: RemoteFile, downloads_dir: Path, mirror: Path | None = None) -> Path | None:
    """Return the path that `obtain` would verify and return without the network, if any."""
    mirrored = [Path(mirror, *_host_and_path(file))] if mirror else []
    places = [*mirrored, _place(file, downloads_dir)]
    return next((path for path in places if path.is_file()), None)


def part_bytes(file: RemoteFile, downloads_dir: Path) -> int:
    """Return how many bytes of an unfinished download have arrived."""
    path = _place(file, downloads_dir)
    return _size(path.with_name(f"{path.name}.part"))


def known_bytes(file: RemoteFile, downloads_dir: Path) -> int | None:
    """Return the published length, or else that of the download, if it is here."""
    return file.n_bytes or _size(_place(file, downloads_dir)) or None


def _place(file: RemoteFile, downloads_dir: Path) -> Path:
    folder = hashlib.sha256(file.url.encode("utf-8")).hexdigest()[:16]
    return downloads_dir / folder / _host_and_path(file)[-1]


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _host_and_path(file: RemoteFile) -> list[str]:
    """Return the host and path of the URL as names of folders and of the file."""
    url = urlsplit(file.url)
    names = [url.netloc, *url.path.strip("/").split("/")]
    assert not {"", ".", ".."} & set(names), file.url
    return names


def _difference(path: Path, file: RemoteFile) -> str | None:
    n_bytes = path.stat().st_size
    if file.n_bytes not in (None, n_bytes):
        return f"{n_bytes:,} bytes instead of {file.n_bytes:,}"
    name = "md5" if file.sha256 is None else "sha256"
    with path.open("rb") as stream:
        seen = hashlib.file_digest(stream, name).hexdigest()
    return None if seen == file.digest else f"{name} {seen} instead of {file.digest}"


def _download(file: RemoteFile, path: Path, progress: Advance, say: Say) -> None:
    """Fetch the file, verify it, and only then move it to `path`."""
    part = path.with_name(f"{path.name}.part")
    progress(_size(part))
    failures = 0
    while True:
        before = _size(part)
        try:
            _complete(file, part, progress)
            break
        except _TransientError as reason:
            failures = 0 if _size(part) > before else failures + 1
            if failures == MAX_ATTEMPTS:
                raise UserError(
                    f"cannot download {file.url} ({reason}); try again later, or {_by_hand(file)}"
                ) from None
            pause = FIRST_PAUSE_S * 2**failures
            attempt = f"attempt {failures + 1} of {MAX_ATTEMPTS} in {pause:.0f} s"
            say(f"download {file.url}: {reason}; {attempt}")
            sleep(pause)
    move(part, path)


def _by_hand(file: RemoteFile) -> str:
    return f"save it as DIR/{'/'.join(_host_and_path(file))} and give --mirror DIR"


def _complete(file: RemoteFile, part: Path, progress: Advance) -> None:
    in_one = _size(part) != file.n_bytes and _fetch(file, part, progress)
    if wrong := _difference(part, file):
        _discard(part, progress)
        if not in_one:
            raise _TransientError("the parts of the download do not fit together")
        raise UserError(
            f"{file.url} sends other bytes than expected: {wrong}; they were deleted: check what "
            "the address serves now"
        )


def _fetch(file: RemoteFile, part: Path, progress: Advance) -> bool:
    """Request what is missing once, keep what arrives, and return whether it is the whole file."""
    with _ask(file, part, progress) as response:
        resumed = response.status == http.HTTPStatus.PARTIAL_CONTENT
        n_total = _announced(response, file, part, progress)
        if n_total is None and not response.chunked:
            raise UserError(
                f"{file.url} comes without its length, which was not published either, so that it "
                f"may never end; {_by_hand(file)}"
            )
        if not resumed:
            _discard(part, progress)
        check_room(part.parent, (n_total or 0) - _size(part), file.url)
        with part.open("ab") as stream:
            for block in _blocks(response):
                stream.write(block)
                progress(len(block))
                if n_total is not None and stream.tell() > n_total:
                    break
    if _size(part) < (n_total or 1):
        of_total = f" of {n_total:,}" if n_total else ""
        raise _TransientError(f"cut off after {_size(part):,}{of_total} bytes")
    return not resumed


def _discard(part: Path, progress: Advance) -> None:
    progress(-_size(part))
    part.unlink(missing_ok=True)


def _announced(
    response: http.client.HTTPResponse, file: RemoteFile, part: Path, progress: Advance
) -> int | None:
    """Return the length of the whole file, if it was published or the server tells it."""
    resumed = response.status == http.HTTPStatus.PARTIAL_CONTENT
    told = response.headers["Content-Range" if resumed else "Content-Length"] or ""
    start, _, n_bytes = told.rpartition("/")
    announced = int(n_bytes) if n_bytes.isdecimal() else file.n_bytes
    is_known = file.n_bytes in (None, announced)
    if announced == 0:
        raise _TransientError("an empty response")
    if is_known and (not resumed or start.startswith(f"bytes {_size(part)}-")):
        return announced
    _discard(part, progress)
    if resumed:
        raise _TransientError("the server sent another range than was requested")
    raise UserError(f"{file.url} sends {announced:,} bytes, not the expected {file.n_bytes:,}")


def _ask(file: RemoteFile, part: Path, progress: Advance) -> http.client.HTTPResponse:
    """Request what is missing; only the hash tells whether it fits what is already here."""
    headers = {"User-Agent": "nmtkit", "Accept-Encoding": "identity"}
    if n_bytes := _size(part):
        headers["Range"] = f"bytes={n_bytes}-"
    request = Request(file.url, headers=headers)  # noqa: S310 - a catalog has only http and https
    try:
        response: http.client.HTTPResponse = urlopen(request, timeout=TIMEOUT_S)  # noqa: S310
    except HTTPError as error:
        error.close()
        reason = f"HTTP {error.code} {_reason(error)}"
        if error.code not in TRANSIENT:
            raise UserError(f"{file.url} is not available: {reason}; {_by_hand(file)}") from None
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            _discard(part, progress)  # the server has no such range: it has another file
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
    """Shorten the message of a server or the network to fit into a sentence."""
    said = " ".join(str(getattr(error, "reason", error)).split())
    return shortened(said, 200) or type(error).__name__
