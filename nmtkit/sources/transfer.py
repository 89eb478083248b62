"""Retry a download from several addresses, with exponential backoff, and verify the whole.

No address is trusted: it may redirect, send other bytes than expected, or never stop.
"""

import hashlib
import http.client
import shutil
import string
from collections.abc import Iterator, Sequence
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

from nmtkit.sources.catalog import RemoteFile
from nmtkit.sources.text_file import is_whole_archive
from nmtkit.store.files import check_free_space
from nmtkit.store.links import no_follow
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import shorten

MAX_ATTEMPTS = 5  # of all addresses, one after the other, without a byte
FIRST_PAUSE_S = 1.0  # doubled before each attempt

BLOCK = 2**20
TIMEOUT_S = 10.0  # without a byte
MAX_REDIRECTS = 10
MAX_ANNOUNCED_BYTES = 2**38  # if no length is published
MAX_UNANNOUNCED_BYTES = 2**32  # if the server does not send a length either
MAX_DIGITS = 18  # of a length; Python converts at most 4,300
REDIRECTS = {301, 302, 303, 307, 308}  # HTTP statuses
MISSING = {403, 404, 410}  # HTTP statuses; 403 of stores that do not list their files
TRANSIENT = {408, 416, 429, 500, 502, 503, 504}  # HTTP statuses that a retry may cure


class AddressError(Exception):
    """The reason why an address is given up, and the next one tried."""


class NoSuchFileError(AddressError):
    """The host has no such file."""


class TransientError(AddressError):
    """A failure that a retry may cure."""


class NoConnectionError(TransientError):
    """A host was not reached."""


@dataclass(frozen=True)
class Address:
    """One address of an archive, and the bytes that arrived from it or from other addresses.

    Attributes:
        url: The address.
        file: The archive, with its length and hash if they are known.
        part: The file of the bytes that have arrived.
        task: Counts the bytes that are on disk.
    """

    url: str
    file: RemoteFile
    part: Path
    task: progress.Task

    def complete(self) -> None:
        """Download the missing bytes, and verify the whole.

        Bytes that arrived earlier, or from another address, are discarded once if the whole does
        not have the expected hash.

        Raises:
            AddressError: The address fails, or sends other bytes than expected.
        """
        self.part.parent.mkdir(parents=True, exist_ok=True)
        while True:
            is_from_here = False
            if file_size(self.part) != self.file.n_bytes:
                is_from_here = self._fetch()
            problem = difference(self.part, self.file)
            if problem is None:
                return
            self._discard()
            # The bytes from earlier, or from another address, may be of another version.
            if is_from_here:
                raise AddressError(f"sent other bytes than expected: {problem}")

    def _discard(self) -> None:
        """Delete the bytes that have arrived."""
        self.task.advance(-file_size(self.part))
        self.part.unlink(missing_ok=True)

    def _fetch(self) -> bool:
        """Request the missing bytes once, and keep those that arrive.

        Returns:
            Whether the whole file came from this request.

        Raises:
            AddressError: The address fails. Bytes that may be of use later are kept.
        """
        with self._request() as response:
            has_length = response.length is not None  # reading counts `length` down
            n_total = self._total_bytes(response)
            # Without a length, a connection that breaks looks like the end of the file. Chunks show
            # their own end.
            if n_total is None and not response.chunked:
                raise AddressError("sent no Content-Length, and no length is published")
            if response.status != http.HTTPStatus.PARTIAL_CONTENT:
                self._discard()  # the server sends the whole file
            start = file_size(self.part)
            max_bytes = self._max_bytes(n_total, start)
            # What arrives is kept even if the connection breaks: a retry continues it.
            with open(self.part, "ab", opener=no_follow) as stream:
                for block in _blocks(response):
                    stream.write(block)
                    self.task.advance(len(block))
                    if stream.tell() > max_bytes:
                        break
        n_bytes = file_size(self.part)
        if n_total is None and n_bytes > max_bytes:
            self._discard()
            raise AddressError(f"sent more than {max_bytes:,} bytes without a Content-Length")
        if n_bytes < (n_total or 1):
            if not has_length:  # it may be a complete, but different file
                self._discard()
            total = f" of {n_total:,}" if n_total else ""
            raise TransientError(f"cut off after {n_bytes:,}{total} bytes")
        return start == 0

    def _max_bytes(self, n_total: int | None, start: int) -> int:
        """Return the size of the complete file, or a maximum if it is not known.

        Args:
            n_total: The length that was published or announced.
            start: The number of bytes that are here already.

        Raises:
            UserError: The disk has no room for the published length.
            AddressError: It has none for the length that the server announces.
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
            raise AddressError(str(error)) from None
        return n_total

    def _total_bytes(self, response: http.client.HTTPResponse) -> int | None:
        """Return the length of the whole file; None if it is neither published nor announced.

        Raises:
            AddressError: The server announces another length, or another range than requested.
        """
        is_rest = response.status == http.HTTPStatus.PARTIAL_CONTENT
        # The header is "bytes 100-199/200", or the length only. Servers may send anything.
        header = response.headers["Content-Range" if is_rest else "Content-Length"] or ""
        start, _, n_bytes = header.strip().rpartition("/")
        announced = self.file.n_bytes
        if n_bytes.isascii() and n_bytes.isdecimal():
            if len(n_bytes) > MAX_DIGITS or int(n_bytes) > MAX_ANNOUNCED_BYTES:
                raise AddressError(f"sent the invalid length {shorten(n_bytes, 20)}")
            announced = int(n_bytes)
        has_right_length = self.file.n_bytes in (None, announced)
        has_right_start = not is_rest or start.startswith(f"bytes {file_size(self.part)}-")
        if has_right_length and has_right_start:
            return announced
        if is_rest:
            # The next request begins at the first byte.
            self._discard()
            raise TransientError("sent another range than requested")
        raise AddressError(f"sent {announced:,} bytes instead of {self.file.n_bytes:,}")

    def _request(self) -> http.client.HTTPResponse:
        """Request the missing bytes, and follow redirects to http and https.

        Only the hash can tell whether they continue the bytes already on disk.

        Raises:
            AddressError: The server does not answer, or with an error.
        """
        # Without "identity", a server may compress the file once more.
        headers = {"User-Agent": "nmtkit", "Accept-Encoding": "identity"}
        n_bytes = file_size(self.part)
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
                kind = AddressError
                if error.code in TRANSIENT:
                    kind = TransientError
                elif error.code in MISSING:
                    kind = NoSuchFileError
                raise kind(f"HTTP {error.code} {_reason(error)}") from None
            except URLError as error:
                raise NoConnectionError(_reason(error)) from None
            except (OSError, http.client.HTTPException) as error:
                raise TransientError(_reason(error)) from None
            except (ValueError, OverflowError) as error:  # of a host or port
                raise AddressError(f"{shorten(address, 200)}: {_reason(error)}") from None
            else:
                return response
        raise AddressError(f"redirected more than {MAX_REDIRECTS} times")


class Attempts:
    """Attempts to complete one of several archives from any of their addresses.

    Attributes:
        errors: The last error of each address that failed.
    """

    def __init__(self, addresses: Sequence[Address]) -> None:
        """Prepare the attempts on the addresses of all archives."""
        self.errors: dict[str, AddressError] = {}
        self._addresses = list(addresses)  # that may still succeed
        self._max_bytes = {address.part: file_size(address.part) for address in addresses}
        self._has_grown = False  # whether any bytes have arrived
        self._n_failures = 0  # attempts since bytes arrived last

    def run(self, name: str) -> Address | None:
        """Attempt until an archive is complete.

        Args:
            name: Name of the file, for messages.

        Returns:
            The address that completed its archive; None if all addresses failed.
        """
        while self._addresses and self._n_failures < MAX_ATTEMPTS:
            if self._n_failures:
                pause = FIRST_PAUSE_S * 2**self._n_failures
                progress.log(
                    f"download {name}: attempt {self._n_failures + 1} of {MAX_ATTEMPTS} in "
                    f"{pause:.0f} s"
                )
                sleep(pause)
            self._n_failures += 1
            completed = self._try_addresses()
            if completed is not None:
                return completed
            # Without a network, waiting for all attempts would only delay the message.
            if not self._has_grown:
                errors = [self.errors[address.url] for address in self._addresses]
                if all(isinstance(error, NoConnectionError) for error in errors):
                    return None
        return None

    def _try_addresses(self) -> Address | None:
        """Try the addresses in turn, until bytes arrive from one of them.

        Returns:
            The address if it completed its archive, else None.
        """
        # The archive with the most bytes on disk is completed first.
        for address in sorted(self._addresses, key=lambda address: -file_size(address.part)):
            address.task.advance(file_size(address.part))
            try:
                address.complete()
            except AddressError as error:
                address.task.advance(-file_size(address.part))
                progress.warn(f"download {address.url}: {error}")
                self.errors[address.url] = error
                # It is tried last in the next attempt, if at all.
                self._addresses.remove(address)
                if isinstance(error, TransientError):
                    self._addresses.append(address)
            else:
                return address
            # An attempt in which bytes arrived does not count: slow lines need many of them.
            n_bytes = file_size(address.part)
            if n_bytes > self._max_bytes[address.part]:
                self._max_bytes[address.part] = n_bytes
                self._has_grown = True
                self._n_failures = 0
                return None
        return None


def _opener() -> OpenerDirector:
    """Return an opener of http and https addresses only, with the user's proxies.

    It does not follow redirects: that of urllib reads their bodies to the end, if there is one.
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
        location: The value of the header. It may be relative.

    Raises:
        AddressError: It is not an http or https address.
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
        raise AddressError(f"redirected to {shorten(location, 200)}, which is not http or https")
    return new


def _blocks(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """Yield the body of a response.

    Raises:
        TransientError: The connection broke. An error of the disk is not one of these.
    """
    try:
        while block := response.read1(BLOCK):
            yield block
    except (OSError, http.client.HTTPException) as error:
        raise TransientError(_reason(error)) from None


def _reason(error: Exception) -> str:
    """Return the message of a server or the network on one line that fits into a sentence."""
    reason = getattr(error, "reason", error)
    message = " ".join(str(getattr(reason, "strerror", None) or reason).split())
    return shorten(message, 200) or type(error).__name__


def difference(path: Path, file: RemoteFile) -> str | None:
    """Return the difference between a file and its published length and hash, or None.

    Without a hash, the file is an archive, which has checksums.
    """
    # A download that was cut off is found by its length, without reading gigabytes.
    n_bytes = path.stat().st_size
    if file.n_bytes not in (None, n_bytes):
        return f"{n_bytes:,} bytes instead of {file.n_bytes:,}"
    if not (file.sha256 or file.md5):
        is_whole = is_whole_archive(path, Path(file.url).name)
        return None if is_whole else f"{n_bytes:,} bytes, not a complete archive"
    name = "md5" if file.sha256 is None else "sha256"
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, name).hexdigest()
    return None if digest == file.digest else f"{name} {digest} instead of {file.digest}"


def file_size(path: Path) -> int:
    """Return the size of a file, 0 if it does not exist."""
    return path.stat().st_size if path.exists() else 0
