"""Downloads: from any address that works, resumed, and used only after they are verified.

Bytes arrive in a file with the suffix `PART`, which all addresses of an archive share. It gets its
final name when its hash is verified.
"""

import hashlib
import http.client
import shutil
import string
from collections.abc import Iterable, Iterator, Mapping
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
PART = ".part"  # suffix of an archive that is not complete
TIMEOUT_S = 10.0  # without a byte
MAX_ATTEMPTS = 5  # of all addresses, one after the other, in which no byte arrives
FIRST_PAUSE_S = 1.0  # doubled before each attempt
MAX_REDIRECTS = 10
MAX_ANNOUNCED_BYTES = 2**38  # if no length is published
MAX_UNANNOUNCED_BYTES = 2**32  # if the server does not send a length either
MAX_DIGITS = 18  # of a length; Python converts at most 4,300
REDIRECTS = {301, 302, 303, 307, 308}  # HTTP statuses
TRANSIENT = {408, 416, 429, 500, 502, 503, 504}  # HTTP statuses that a retry may cure


class _AddressError(Exception):
    """The reason why an address is given up, and the next one tried."""


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
    """Return the path of a verified file, or of another archive of its texts.

    Args:
        file: The file, which is downloaded unless it is here.
        downloads_dir: The folder of downloads.
        mirror: A folder to read instead of the network. It has files as HOST/PATH of their URLs.
        progress: Counts the bytes that are present or arrive; negative if some are discarded.
        log: Prints waits and retries.
        warn: Prints the failure of an address.

    Raises:
        UserError: The file is not in the mirror, cannot be downloaded, or has another hash.
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
            path = find(file, downloads_dir)  # another process may have downloaded it meanwhile
            if path is None:
                return _download(file, downloads_dir, progress, log, warn)
    # A file that is here is verified at every use: it may have been changed or exchanged.
    archive = archive_of(file, path)
    expected = _with_hash(archive, downloads_dir)
    problem = _difference(path, expected)
    if problem is not None:
        reason = " has; remove it"
        if expected is not archive:  # no hash is published
            record = _place(archive.url, downloads_dir, ".sha256")
            reason = f" had when it was first read; remove both it and {record}"
        raise UserError(f"{path} has {problem}, as {archive.url}{reason}")
    _record_hash(archive, downloads_dir, path)
    progress(_size(path))
    return path


def find(file: RemoteFile, downloads_dir: Path, mirror: Path | None = None) -> Path | None:
    """Return the path of a file that is here, or None. Its hash is not verified.

    Args:
        file: The file; any of its archives counts.
        downloads_dir: The folder of downloads.
        mirror: The mirror, which comes first.
    """
    urls: list[str] = []
    for archive in file.archives:
        urls += archive.urls
    if mirror is not None:
        for url in urls:
            path = Path(mirror, *_host_and_path(url))
            if path.is_file():
                return path
    for url in urls:
        path = _place(url, downloads_dir)
        if path.is_file():
            return path
    return None


def archive_of(file: RemoteFile, path: Path) -> RemoteFile:
    """Return the archive that is at a path that `find` returned, by its name."""
    for archive in file.others:
        for url in archive.urls:
            if path.name == _host_and_path(url)[-1]:
                return archive
    return file


def read_hashes(
    files: Iterable[RemoteFile], downloads_dir: Path, mirror: Path | None
) -> dict[str, str]:
    """Verify the archives that are here, and return their hashes by address.

    Args:
        files: The files; those that are not here are skipped.
        downloads_dir: The folder of downloads.
        mirror: The mirror.
    """
    hashes = {}
    for file in files:
        if find(file, downloads_dir, mirror):
            path = obtain(file, downloads_dir, mirror)
            archive = _with_hash(archive_of(file, path), downloads_dir)
            hashes[archive.url] = f"{'sha256' if archive.sha256 else 'md5'} {archive.digest}"
    return hashes


def part_bytes(file: RemoteFile, downloads_dir: Path) -> int:
    """Return the number of bytes of an unfinished download that have arrived."""
    return max(_size(_place(archive.url, downloads_dir, PART)) for archive in file.archives)


def known_bytes(file: RemoteFile, downloads_dir: Path) -> int | None:
    """Return the published length, or that of the download if it is here."""
    path = find(file, downloads_dir)
    return file.n_bytes or (_size(path) if path else None)


def _place(url: str, downloads_dir: Path, suffix: str = "") -> Path:
    """Return the path of a download, in a folder that no other address has.

    Args:
        url: The first address of an archive.
        downloads_dir: The folder of downloads.
        suffix: Suffix of a file next to the download.
    """
    # The names of files, such as v1.zip, are the same for many corpora.
    folder = hashlib.sha256(url.encode("utf-8")).hexdigest()[:16]
    return downloads_dir / folder / f"{_host_and_path(url)[-1]}{suffix}"


def _size(path: Path) -> int:
    """Return the size of a file, 0 if it does not exist."""
    return path.stat().st_size if path.exists() else 0


def _host_and_path(address: str) -> list[str]:
    """Return the host and the path of a URL as names of folders and of a file."""
    url = urlsplit(address)
    names = [url.netloc]
    names += url.path.strip("/").split("/")
    # The addresses are those of the catalog, and never lead out of a folder.
    assert not {"", ".", ".."} & set(names), address
    return names


def _with_hash(archive: RemoteFile, downloads_dir: Path) -> RemoteFile:
    """Return an archive with a hash: the published one, or else that of its first use, if any."""
    record = _place(archive.url, downloads_dir, ".sha256")
    if archive.sha256 or archive.md5 or not record.exists():
        return archive
    return archive.model_copy(update={"sha256": read_utf8(record, 64) or "none"})


def _record_hash(archive: RemoteFile, downloads_dir: Path, path: Path) -> None:
    """Record the hash of an archive at its first use, unless one is published.

    Args:
        archive: The archive.
        downloads_dir: The folder of downloads.
        path: The file.
    """
    record = _place(archive.url, downloads_dir, ".sha256")
    if archive.sha256 or archive.md5 or record.exists():
        return
    record.parent.mkdir(parents=True, exist_ok=True)
    write_whole(record, sha256_of(path))


def _difference(path: Path, file: RemoteFile) -> str | None:
    """Return the difference between a file and its published length and hash, or None.

    Without a hash, the file is an archive of OPUS, whose members have checksums.
    """
    # A download that was cut off is found by its length, without reading gigabytes.
    n_bytes = path.stat().st_size
    if file.n_bytes not in (None, n_bytes):
        return f"{n_bytes:,} bytes instead of {file.n_bytes:,}"
    if not (file.sha256 or file.md5):
        return None if is_whole_zip(path) else f"{n_bytes:,} bytes, which are no whole zip archive"
    name = "md5" if file.sha256 is None else "sha256"
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, name).hexdigest()
    return None if digest == file.digest else f"{name} {digest} instead of {file.digest}"


def _download(
    file: RemoteFile, downloads_dir: Path, progress: Advance, log: Log, warn: Log
) -> Path:
    """Download one of the archives of a file, verify it, and move it to its place.

    Args:
        file: The file.
        downloads_dir: The folder of downloads.
        progress: See `obtain`.
        log: See `obtain`.
        warn: See `obtain`.

    Raises:
        UserError: All addresses failed.
    """
    name = _host_and_path(file.url)[-1]
    archives: dict[Path, RemoteFile] = {}  # by part
    max_bytes: dict[Path, int] = {}  # that have arrived so far, by part
    sources: list[_Source] = []
    for archive in file.archives:
        part = _place(archive.url, downloads_dir, PART)
        archives[part] = archive
        max_bytes[part] = _size(part)
        # All addresses of an archive serve the same bytes, so that one can continue another's.
        expected = _with_hash(archive, downloads_dir)
        for url in archive.urls:
            sources.append(_Source(url, expected, part, progress))
    has_grown = False
    errors: dict[str, _AddressError] = {}  # the last one of each address
    failures = 0
    while sources and failures < MAX_ATTEMPTS:
        if failures:
            pause = FIRST_PAUSE_S * 2**failures
            log(f"download {name}: attempt {failures + 1} of {MAX_ATTEMPTS} in {pause:.0f} s")
            sleep(pause)
        failures += 1
        # The archive of which the most has arrived is completed first.
        for source in sorted(sources, key=lambda source: -_size(source.part)):
            part = source.part
            progress(_size(part))
            try:
                source.complete()
            except _AddressError as error:
                progress(-_size(part))
                warn(f"download {source.url}: {error}")
                errors[source.url] = error
                sources.remove(source)
                if isinstance(error, _TransientError):
                    sources.append(source)  # last, so that the next attempt begins with another
                # An attempt in which bytes arrived does not count: slow lines need many of them.
                if _size(part) > max_bytes[part]:
                    max_bytes[part] = _size(part)
                    has_grown = True
                    failures = 0
                    break
            else:
                _record_hash(archives[part], downloads_dir, part)
                path = part.with_suffix("")
                move(part, path)
                for other in archives:
                    other.unlink(missing_ok=True)
                return path
        # Without a network, waiting for all attempts would only delay the message.
        if not has_grown and _is_offline(sources, errors):
            break
    reasons = []
    for url, reason in errors.items():
        host = "://".join(urlsplit(url)[:2])
        reasons.append(f"{host} ({reason})")
    raise UserError(
        f"cannot download {name}: {'; '.join(reasons)}; try again later, or save {file.url} as "
        f"DIR/{'/'.join(_host_and_path(file.url))} and give --mirror DIR"
    )


def _is_offline(sources: Iterable["_Source"], errors: Mapping[str, _AddressError]) -> bool:
    """Return whether no host was reached.

    Args:
        sources: The addresses that may still succeed, all of which have failed.
        errors: The last error of each address.
    """
    return all(isinstance(errors[source.url], _NoConnectionError) for source in sources)


@dataclass(frozen=True)
class _Source:
    """One address of an archive, and the bytes that arrived from it or from other addresses.

    Attributes:
        url: The address.
        file: The archive, with its length and hash if they are known.
        part: The file of the bytes that have arrived.
        progress: Counts bytes, see `obtain`.
    """

    url: str
    file: RemoteFile
    part: Path
    progress: Advance

    def complete(self) -> None:
        """Download the missing bytes, and verify the whole.

        Bytes that arrived earlier, or from another address, are discarded once if the whole does
        not have the expected hash.

        Raises:
            _AddressError: The address fails, or sends other bytes than expected.
        """
        self.part.parent.mkdir(parents=True, exist_ok=True)
        while True:
            is_from_here = False
            if _size(self.part) != self.file.n_bytes:
                is_from_here = self._fetch()
            problem = _difference(self.part, self.file)
            if problem is None:
                return
            self._discard()
            # The bytes from earlier, or from another address, may be of another version.
            if is_from_here:
                raise _AddressError(f"sends other bytes than expected: {problem}")

    def _discard(self) -> None:
        """Delete the bytes that have arrived."""
        self.progress(-_size(self.part))
        self.part.unlink(missing_ok=True)

    def _fetch(self) -> bool:
        """Request the missing bytes once, and keep those that arrive.

        Returns:
            Whether the whole file came from this request.

        Raises:
            _AddressError: The address fails. Bytes that may be of use later are kept.
        """
        with self._request() as response:
            has_length = response.length is not None  # reading counts `length` down
            n_total = self._total_bytes(response)
            # Without a length, a connection that breaks looks like the end of the file. Chunks show
            # their own end.
            if n_total is None and not response.chunked:
                raise _AddressError("comes without its length, which was not published either")
            if response.status != http.HTTPStatus.PARTIAL_CONTENT:
                self._discard()  # the server sends the whole file
            start = _size(self.part)
            max_bytes = self._max_bytes(n_total, start)
            # What arrives is kept even if the connection breaks, so that a retry continues it.
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
            if not has_length:  # it may be a complete, but different file
                self._discard()
            of_total = f" of {n_total:,}" if n_total else ""
            raise _TransientError(f"cut off after {n_bytes:,}{of_total} bytes")
        return start == 0

    def _max_bytes(self, n_total: int | None, start: int) -> int:
        """Return the size at which the file is complete, or too long.

        Args:
            n_total: The length that was published or announced.
            start: The number of bytes that are here already.

        Raises:
            UserError: The disk has no room for the published length.
            _AddressError: It has none for the length that the server announces.
        """
        folder = self.part.parent
        if n_total is None:
            # The disk must not become full before anyone knows the length.
            return min(MAX_UNANNOUNCED_BYTES, start + shutil.disk_usage(folder).free // 2)
        try:
            check_free_space(folder, n_total - start, self.url)
        except UserError as error:
            # Another address may announce the right length, but a published one is final.
            if self.file.n_bytes is not None:
                raise
            raise _AddressError(str(error)) from None
        return n_total

    def _total_bytes(self, response: http.client.HTTPResponse) -> int | None:
        """Return the length of the whole file; None if it is neither published nor announced.

        Raises:
            _AddressError: The server announces another length, or another range than requested.
        """
        is_rest = response.status == http.HTTPStatus.PARTIAL_CONTENT
        # The header is "bytes 100-199/200", or the length only. Servers may send anything.
        header = response.headers["Content-Range" if is_rest else "Content-Length"] or ""
        start, _, n_bytes = header.strip().rpartition("/")
        announced = self.file.n_bytes
        if n_bytes.isascii() and n_bytes.isdecimal():
            if len(n_bytes) > MAX_DIGITS or int(n_bytes) > MAX_ANNOUNCED_BYTES:
                raise _AddressError(f"announces {shorten(n_bytes, 20)} bytes")
            announced = int(n_bytes)
        has_right_length = self.file.n_bytes in (None, announced)
        has_right_start = not is_rest or start.startswith(f"bytes {_size(self.part)}-")
        if has_right_length and has_right_start:
            return announced
        if is_rest:
            # The next request begins at the first byte.
            self._discard()
            raise _TransientError("sent another range than was requested")
        raise _AddressError(f"sends {announced:,} bytes, not the expected {self.file.n_bytes:,}")

    def _request(self) -> http.client.HTTPResponse:
        """Request the missing bytes, and follow redirects to http and https.

        Whether they continue the bytes that are here, only the hash shows.

        Raises:
            _AddressError: The server does not answer, or with an error.
        """
        # Without "identity", a server may compress the file once more.
        headers = {"User-Agent": "nmtkit", "Accept-Encoding": "identity"}
        n_bytes = _size(self.part)
        if n_bytes:
            headers["Range"] = f"bytes={n_bytes}-"
        # A loop instead of urllib's own redirects: each address is checked before it is contacted.
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
    """Return an opener of http and https addresses only, with the user's proxies.

    It does not follow redirects: that of urllib reads their bodies, which may have no end.
    """
    opener = OpenerDirector()
    handlers = (
        ProxyHandler,
        HTTPHandler,
        HTTPSHandler,
        # These raise an error for other addresses and statuses.
        UnknownHandler,
        HTTPDefaultErrorHandler,
        HTTPErrorProcessor,
    )
    for handler in handlers:
        opener.add_handler(handler())
    return opener


def _redirected(address: str, location: str) -> str:
    """Return the address that a redirect leads to.

    Args:
        address: The address that redirects.
        location: The value of the header, which may be relative.

    Raises:
        _AddressError: It is not an http or https address.
    """
    # Headers are decoded as Latin-1. Spaces and bytes that are not ASCII are escaped.
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
    """Yield the body of a response.

    Raises:
        _TransientError: The connection broke. An error of the disk is not one of these.
    """
    try:
        while block := response.read1(BLOCK):
            yield block
    except (OSError, http.client.HTTPException) as error:
        raise _TransientError(_reason(error)) from None


def _reason(error: Exception) -> str:
    """Return the message of a server or the network on one line that fits into a sentence."""
    reason = getattr(error, "reason", error)
    message = " ".join(str(getattr(reason, "strerror", None) or reason).split())
    return shorten(message, 200) or type(error).__name__
