"""Downloads: from any address that works, resumed, and never used before they are verified."""

import hashlib
import http.client
import shutil
import string
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import sleep
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urljoin, urlsplit
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    UnknownHandler,
)

from nmtkit.sources.archives import is_whole_zip
from nmtkit.sources.catalog import RemoteFile
from nmtkit.store.files import check_free_space, move, write_whole
from nmtkit.store.locks import locked
from nmtkit.store.records import read_utf8, sha256_of
from nmtkit.utils.errors import Advance, Log, UserError
from nmtkit.utils.text import shorten

BLOCK = 2**20
PART = ".part"  # the suffix of an archive that arrives, from whichever of its addresses
TIMEOUT_S = 10.0  # without a byte
MAX_ATTEMPTS = 5  # of all addresses, in a row that receive no byte
FIRST_PAUSE_S = 1.0  # doubled each time
MAX_REDIRECTS = 10
MAX_ANNOUNCED_BYTES = 2**38  # where no length is published
MAX_UNANNOUNCED_BYTES = 2**32  # where the server sends none either
MAX_DIGITS = 18  # of a length; Python converts no more than 4,300
REDIRECTS = {301, 302, 303, 307, 308}  # HTTP statuses
TRANSIENT = {408, 416, 429, 500, 502, 503, 504}  # HTTP statuses that a retry may cure


class _AddressError(Exception):
    """What an address did, for which it is left for the next one."""


class _TransientError(_AddressError):
    """A failure that a retry may cure."""


class _NoConnectionError(_TransientError):
    """A host was not reached."""


def obtain(
    file: RemoteFile,
    downloads_dir: Path,
    mirror: Path | None = None,
    progress: Advance = lambda _: None,
    log: Log = lambda _: None,
    warn: Log = lambda _: None,
) -> Path:
    """Return the path of the verified file, or of another archive of its texts.

    It is downloaded unless it is here already. The folder `mirror`, in place of the network, holds
    files as HOST/PATH of any of their URLs. `progress` counts the bytes that are present or arrive,
    and down those that are discarded.
    """
    path = find(file, downloads_dir, mirror)
    if path is None and mirror is not None:
        raise UserError(
            f"the mirror has no {Path(mirror, *_host_and_path(file.url))}; save {file.url} there, "
            "or leave out --mirror to download it"
        )
    if path is None:
        lock = _place(file.url, downloads_dir, ".lock")
        lock.parent.mkdir(parents=True, exist_ok=True)
        with locked(lock, f"{file.url} is being downloaded", note={}, log=log):
            path = find(file, downloads_dir)
            if path is None:
                return _download(file, downloads_dir, progress, log, warn)
    archive = archive_of(file, path)
    expected = _with_hash(archive, downloads_dir)
    if wrong := _difference(path, expected):
        record = _place(archive.url, downloads_dir, ".sha256")
        noted = f" had when it was first read; remove both it and {record}"
        when = " has; remove it" if expected is archive else noted
        raise UserError(f"{path} has {wrong}, as {archive.url}{when}")
    _with_hash(archive, downloads_dir, path)
    progress(_size(path))
    return path


def find(file: RemoteFile, downloads_dir: Path, mirror: Path | None = None) -> Path | None:
    """Return the path that `obtain` would verify and return without the network, if any."""
    urls = [url for archive in file.archives for url in archive.urls]
    mirrored = [Path(mirror, *_host_and_path(url)) for url in urls] if mirror else []
    places = [*mirrored, *(_place(url, downloads_dir) for url in urls)]
    return next((path for path in places if path.is_file()), None)


def archive_of(file: RemoteFile, path: Path) -> RemoteFile:
    """Return which of the archives of the texts is at a path that `find` returned, by its name."""
    names = {_host_and_path(url)[-1]: other for other in file.others for url in other.urls}
    return names.get(path.name, file)


def read_hashes(
    files: Iterable[RemoteFile], downloads_dir: Path, mirror: Path | None
) -> dict[str, str]:
    """Return the addresses of the archives that are here, and their hashes, verified again."""
    hashes = {}
    for file in files:
        if find(file, downloads_dir, mirror):
            path = obtain(file, downloads_dir, mirror)
            archive = _with_hash(archive_of(file, path), downloads_dir)
            hashes[archive.url] = f"{'sha256' if archive.sha256 else 'md5'} {archive.digest}"
    return hashes


def part_bytes(file: RemoteFile, downloads_dir: Path) -> int:
    """Return how many bytes of an unfinished download have arrived."""
    parts = (_place(archive.url, downloads_dir, PART) for archive in file.archives)
    return max(map(_size, parts))


def known_bytes(file: RemoteFile, downloads_dir: Path) -> int | None:
    """Return the published length, or else that of the download, if it is here."""
    path = find(file, downloads_dir)
    return file.n_bytes or (_size(path) if path else None)


def _place(url: str, downloads_dir: Path, suffix: str = "") -> Path:
    folder = hashlib.sha256(url.encode("utf-8")).hexdigest()[:16]
    return downloads_dir / folder / f"{_host_and_path(url)[-1]}{suffix}"


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _host_and_path(address: str) -> list[str]:
    """Return the host and path of a URL as names of folders and of the file."""
    url = urlsplit(address)
    names = [url.netloc, *url.path.strip("/").split("/")]
    assert not {"", ".", ".."} & set(names), address
    return names


def _with_hash(archive: RemoteFile, downloads_dir: Path, path: Path | None = None) -> RemoteFile:
    """Return the archive with a hash: if none is published, that of its first use, by `path`."""
    record = _place(archive.url, downloads_dir, ".sha256")
    if not (archive.sha256 or archive.md5):
        if path is not None and not record.exists():
            record.parent.mkdir(parents=True, exist_ok=True)
            write_whole(record, sha256_of(path))
        if record.exists():
            return archive.model_copy(update={"sha256": read_utf8(record, 64) or "none"})
    return archive


def _difference(path: Path, file: RemoteFile) -> str | None:
    n_bytes = path.stat().st_size
    if file.n_bytes not in (None, n_bytes):
        return f"{n_bytes:,} bytes instead of {file.n_bytes:,}"
    if not (file.sha256 or file.md5):
        return None if is_whole_zip(path) else f"{n_bytes:,} bytes, which are no whole zip archive"
    name = "md5" if file.sha256 is None else "sha256"
    with path.open("rb") as stream:
        seen = hashlib.file_digest(stream, name).hexdigest()
    return None if seen == file.digest else f"{name} {seen} instead of {file.digest}"


def _download(
    file: RemoteFile, downloads_dir: Path, progress: Advance, log: Log, warn: Log
) -> Path:
    """Fetch one of the archives, verify it, and only then move it to its place."""
    name = _host_and_path(file.url)[-1]
    archives = {_place(each.url, downloads_dir, PART): each for each in file.archives}
    began = {part: _size(part) for part in archives}  # bytes
    furthest = dict(began)
    sources = [
        _Source(url, _with_hash(each, downloads_dir), part, progress)
        for part, each in archives.items()
        for url in each.urls
    ]
    said: dict[str, _AddressError] = {}
    failures = 0
    while sources and failures < MAX_ATTEMPTS:
        if failures:
            pause = FIRST_PAUSE_S * 2**failures
            log(f"download {name}: attempt {failures + 1} of {MAX_ATTEMPTS} in {pause:.0f} s")
            sleep(pause)
        failures += 1
        for source in sorted(sources, key=lambda each: -_size(each.part)):
            url, part = source.url, source.part
            progress(_size(part))
            try:
                source.complete()
            except _AddressError as error:
                progress(-_size(part))
                warn(f"download {url}: {error}")
                said[url] = error
                sources.remove(source)
                if isinstance(error, _TransientError):
                    sources.append(source)
                if _size(part) > furthest[part]:
                    furthest[part], failures = _size(part), 0
                    break
            else:
                _with_hash(archives[part], downloads_dir, part)
                move(part, part.with_suffix(""))
                for other in archives:
                    other.unlink(missing_ok=True)
                return part.with_suffix("")
        cut_off = (isinstance(said[each.url], _NoConnectionError) for each in sources)
        if furthest == began and all(cut_off):
            break
    told = (f"{'://'.join(urlsplit(url)[:2])} ({error})" for url, error in said.items())
    raise UserError(
        f"cannot download {name}: {'; '.join(told)}; try again later, or save {file.url} as "
        f"DIR/{'/'.join(_host_and_path(file.url))} and give --mirror DIR"
    )


@dataclass(frozen=True)
class _Source:
    """An address, and what has arrived from it or from others that have the same bytes."""

    url: str
    file: RemoteFile
    part: Path
    progress: Advance

    def complete(self) -> None:
        self.part.parent.mkdir(parents=True, exist_ok=True)
        in_one = _size(self.part) != self.file.n_bytes and self._fetch()
        if wrong := _difference(self.part, self.file):
            self._discard()
            if in_one:
                raise _AddressError(f"sends other bytes than expected: {wrong}")
            self.complete()  # what came from elsewhere, or earlier, does not fit

    def _discard(self) -> None:
        self.progress(-_size(self.part))
        self.part.unlink(missing_ok=True)

    def _fetch(self) -> bool:
        """Request what is missing once, keep what arrives, and return whether it is all."""
        with self._request() as response:
            resumed = response.status == http.HTTPStatus.PARTIAL_CONTENT
            has_length = response.length is not None
            n_total = self._announced(response)
            if n_total is None and not response.chunked:
                raise _AddressError("comes without its length, which was not published either")
            if not resumed:
                self._discard()
            start = _size(self.part)
            max_bytes = self._max_bytes(n_total, start)
            with self.part.open("ab") as stream:
                for block in _blocks(response):
                    stream.write(block)
                    self.progress(len(block))
                    if stream.tell() > max_bytes:
                        break
        n_bytes = _size(self.part)
        if n_total is None and n_bytes > max_bytes:
            self._discard()
            raise _AddressError(f"sends more than {max_bytes:,} bytes and no length")
        if n_bytes < (n_total or 1):
            if not has_length:  # it may be all that the server wanted to send
                self._discard()
            of_total = f" of {n_total:,}" if n_total else ""
            raise _TransientError(f"cut off after {n_bytes:,}{of_total} bytes")
        return start == 0

    def _max_bytes(self, n_total: int | None, start: int) -> int:
        """Return the size at which the file is complete, or else too long.

        Args:
            n_total: The length that was published or announced.
            start: The number of bytes that are here already.

        Raises:
            UserError: The disk has no room for the published length.
            _AddressError: It has none for the length that the server announces.
        """
        folder = self.part.parent
        if n_total is None:
            return min(MAX_UNANNOUNCED_BYTES, start + shutil.disk_usage(folder).free // 2)
        try:
            check_free_space(folder, n_total - start, self.url)
        except UserError as error:
            if self.file.n_bytes is not None:
                raise
            raise _AddressError(str(error)) from None
        return n_total

    def _announced(self, response: http.client.HTTPResponse) -> int | None:
        """Return the length of the whole file, if it was published or the server sends it."""
        resumed = response.status == http.HTTPStatus.PARTIAL_CONTENT
        header = response.headers["Content-Range" if resumed else "Content-Length"] or ""
        start, _, n_bytes = header.strip().rpartition("/")
        announced = self.file.n_bytes
        if n_bytes.isascii() and n_bytes.isdecimal():
            if len(n_bytes) > MAX_DIGITS or int(n_bytes) > MAX_ANNOUNCED_BYTES:
                raise _AddressError(f"announces {shorten(n_bytes, 20)} bytes")
            announced = int(n_bytes)
        is_known = self.file.n_bytes in (None, announced)
        if is_known and (not resumed or start.startswith(f"bytes {_size(self.part)}-")):
            return announced
        if resumed:
            self._discard()
            raise _TransientError("sent another range than was requested")
        raise _AddressError(f"sends {announced:,} bytes, not the expected {self.file.n_bytes:,}")

    def _request(self) -> http.client.HTTPResponse:
        """Request what is missing; only the hash shows whether it fits what is already here."""
        headers = {"User-Agent": "nmtkit", "Accept-Encoding": "identity"}
        if n_bytes := _size(self.part):
            headers["Range"] = f"bytes={n_bytes}-"
        opener = _opener()
        address = self.url
        for _ in range(MAX_REDIRECTS + 1):
            try:
                request = Request(address, headers=headers)  # noqa: S310 - `_redirected` checks it
                response: http.client.HTTPResponse = opener.open(request, timeout=TIMEOUT_S)
            except HTTPError as error:
                error.close()
                if error.code in REDIRECTS and error.headers["Location"]:
                    address = _redirected(address, error.headers["Location"])
                    continue
                if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                    self._discard()  # the server has no such range: it has another file
                kind = _TransientError if error.code in TRANSIENT else _AddressError
                raise kind(f"HTTP {error.code} {_reason(error)}") from None
            except URLError as error:
                raise _NoConnectionError(_reason(error)) from None
            except (OSError, http.client.HTTPException) as error:
                raise _TransientError(_reason(error)) from None
            except (ValueError, OverflowError) as error:  # of a host or port
                raise _AddressError(f"{shorten(address, 200)}: {_reason(error)}") from None
            else:
                return response
        raise _AddressError(f"redirects more than {MAX_REDIRECTS} times")


def _opener() -> OpenerDirector:
    """Return what opens http and https addresses, with the user's proxies, and no other ones."""
    opener = OpenerDirector()
    handlers = (
        *(ProxyHandler, HTTPHandler, HTTPSHandler),
        *(UnknownHandler, HTTPDefaultErrorHandler, HTTPErrorProcessor),  # raise, also of redirects
    )
    for handler in handlers:
        opener.add_handler(handler())
    return opener


def _redirected(address: str, location: str) -> str:
    """Return the address that a redirect leads to; raise _AddressError unless it is http(s)."""
    # Headers are decoded as Latin-1; bytes that are not ASCII, and spaces, are escaped.
    escaped = quote(location, safe=string.punctuation, encoding="latin-1")
    try:
        new = urljoin(address, escaped)
        parts = urlsplit(new)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:  # such as an address of IPv6 that does not end
        is_valid = False
    if not is_valid:
        raise _AddressError(f"redirects to {shorten(location, 200)}, not to http or https")
    return new


def _blocks(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """Yield the body; a broken connection is transient, a broken disk is not."""
    try:
        while block := response.read1(BLOCK):
            yield block
    except (OSError, http.client.HTTPException) as error:
        raise _TransientError(_reason(error)) from None


def _reason(error: Exception) -> str:
    """Shorten the message of a server or the network to fit into a sentence."""
    reason = getattr(error, "reason", error)
    said = " ".join(str(getattr(reason, "strerror", None) or reason).split())
    return shorten(said, 200) or type(error).__name__
