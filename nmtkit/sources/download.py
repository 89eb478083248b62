"""Downloads: from any address that works, resumed, and never used before they are verified."""

import hashlib
import http.client
from collections.abc import Iterator
from pathlib import Path
from time import sleep
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from nmtkit.errors import Advance, Say, UserError, shortened
from nmtkit.files import check_room, locked, move, sha256_of, write_whole
from nmtkit.sources.archives import is_whole_zip
from nmtkit.sources.catalog import RemoteFile

BLOCK = 2**20
TIMEOUT_S = 10.0  # without a byte
MAX_ATTEMPTS = 5  # of all addresses, in a row that receive no byte
FIRST_PAUSE_S = 1.0  # doubled each time
TRANSIENT = {408, 416, 429, 500, 502, 503, 504}  # HTTP statuses that a retry may cure


class _AddressError(Exception):
    """What an address did, for which it is left for the next one."""


class _TransientError(_AddressError):
    """A failure that a retry may cure."""


def obtain(
    file: RemoteFile,
    downloads_dir: Path,
    mirror: Path | None = None,
    progress: Advance = lambda _: None,
    say: Say = lambda _: None,
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
        place = _place(file.url, downloads_dir)
        place.parent.mkdir(parents=True, exist_ok=True)
        lock = place.with_name(f"{place.name}.lock")
        with locked(lock, f"{file.url} is being downloaded", note={}, say=say):
            path = find(file, downloads_dir)
            if path is None:
                return _download(file, downloads_dir, progress, say)
    archive = archive_of(file, path)
    known = _as_first_read(archive, downloads_dir)
    if wrong := _difference(path, known):
        first_read = " had when it was first read" if known is not archive else " has"
        raise UserError(f"{path} has {wrong}, as {archive.url}{first_read}; remove it")
    _remember(known, path, downloads_dir)
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


def read_hash(file: RemoteFile, downloads_dir: Path, mirror: Path | None) -> dict[str, str]:
    """Return the address of the archive that was obtained, and the hash that was verified."""
    path = find(file, downloads_dir, mirror)
    if path is None:
        return {}
    archive = archive_of(file, path)
    known = _as_first_read(archive, downloads_dir)
    return {archive.url: f"sha256 {known.sha256}" if known.sha256 else f"md5 {known.md5}"}


def part_bytes(file: RemoteFile, downloads_dir: Path) -> int:
    """Return how many bytes of an unfinished download have arrived."""
    return max(_size(_part(archive, downloads_dir)) for archive in file.archives)


def known_bytes(file: RemoteFile, downloads_dir: Path) -> int | None:
    """Return the published length, or else that of the download, if it is here."""
    path = find(file, downloads_dir)
    return file.n_bytes or (_size(path) if path else None)


def _place(url: str, downloads_dir: Path) -> Path:
    folder = hashlib.sha256(url.encode("utf-8")).hexdigest()[:16]
    return downloads_dir / folder / _host_and_path(url)[-1]


def _part(archive: RemoteFile, downloads_dir: Path) -> Path:
    """Return where the bytes of an archive arrive, from whichever of its addresses."""
    place = _place(archive.url, downloads_dir)
    return place.with_name(f"{place.name}.part")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _host_and_path(address: str) -> list[str]:
    """Return the host and path of a URL as names of folders and of the file."""
    url = urlsplit(address)
    names = [url.netloc, *url.path.strip("/").split("/")]
    assert not {"", ".", ".."} & set(names), address
    return names


def _as_first_read(archive: RemoteFile, downloads_dir: Path) -> RemoteFile:
    """Return the archive with the hash that it had when it was first read, if none is published."""
    record = _record(archive, downloads_dir)
    if archive.sha256 or archive.md5 or not record.exists():
        return archive
    sha256 = record.read_text(encoding="utf-8").strip()
    return RemoteFile(urls=archive.urls, n_bytes=archive.n_bytes, sha256=sha256)


def _remember(known: RemoteFile, path: Path, downloads_dir: Path) -> None:
    """Record the hash of a file of which none is published, the first time that it is read."""
    if not (known.sha256 or known.md5):
        record = _record(known, downloads_dir)
        record.parent.mkdir(parents=True, exist_ok=True)
        write_whole(record, f"{sha256_of(path)}\n")


def _record(archive: RemoteFile, downloads_dir: Path) -> Path:
    place = _place(archive.url, downloads_dir)
    return place.with_name(f"{place.name}.sha256")


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


def _download(file: RemoteFile, downloads_dir: Path, progress: Advance, say: Say) -> Path:
    """Fetch one of the archives, verify it, and only then move it to its place."""
    name = _host_and_path(file.url)[-1]
    archives = [_as_first_read(archive, downloads_dir) for archive in file.archives]
    arriving = [_Arriving(each, _part(each, downloads_dir), progress, say) for each in archives]
    arriving.sort(key=lambda each: -each.furthest)  # what is here in part goes on first
    failures = 0
    while failures < MAX_ATTEMPTS and any(each.urls for each in arriving):
        if failures:
            pause = FIRST_PAUSE_S * 2**failures
            say(f"download {name}: attempt {failures + 1} of {MAX_ATTEMPTS} in {pause:.0f} s")
            sleep(pause)
        before = sum(each.furthest for each in arriving)
        for each in arriving:
            if each.is_whole():
                place = _place(each.file.url, downloads_dir)
                _remember(each.file, each.part, downloads_dir)
                move(each.part, place)
                for other in arriving:
                    other.part.unlink(missing_ok=True)
                return place
        failures = failures + 1 if sum(each.furthest for each in arriving) == before else 1
    said = {url: reason for each in arriving for url, reason in each.said.items()}
    raise UserError(
        f"cannot download {name}: {'; '.join(f'{url} ({said[url]})' for url in said)}; try again "
        f"later, or save it as DIR/{'/'.join(_host_and_path(file.url))} and give --mirror DIR"
    )


class _Arriving:
    """An archive that arrives in one place, from any of its addresses."""

    def __init__(self, file: RemoteFile, part: Path, progress: Advance, say: Say) -> None:
        self.file, self.part, self._progress, self._say = file, part, progress, say
        self.urls = list(file.urls)  # that may still have it
        self.said: dict[str, str] = {}  # by address, why it was left
        self.furthest = self._began = _size(part)  # bytes
        part.parent.mkdir(parents=True, exist_ok=True)

    def is_whole(self) -> bool:
        """Ask one address after the other, and all again while more arrives than ever before."""
        self._progress(_size(self.part))
        before = -1
        while before < self.furthest:
            if before >= 0:
                sleep(FIRST_PAUSE_S)
            before = self.furthest
            for url in list(self.urls):
                try:
                    self._complete(url)
                except _AddressError as error:
                    self.said[url] = str(error)
                    self._say(f"download {url}: {error}")
                    if not isinstance(error, _TransientError):
                        self.urls.remove(url)
                    self.furthest = max(self.furthest, _size(self.part))
                else:
                    if self.said:
                        self._say(f"download {url}: arrived")
                    return True
        self._progress(-_size(self.part))
        return False

    def discard(self) -> None:
        self._progress(-_size(self.part))
        self.part.unlink(missing_ok=True)

    def _complete(self, url: str) -> None:
        in_one = _size(self.part) != self.file.n_bytes and self._fetch(url)
        if wrong := _difference(self.part, self.file):
            self.discard()
            if in_one:
                raise _AddressError(f"sends other bytes than expected: {wrong}")
            self._complete(url)  # what another address or an earlier command left does not fit

    def _fetch(self, url: str) -> bool:
        """Request what is missing once, keep what arrives, and return whether it is all."""
        with self._ask(url) as response:
            resumed = response.status == http.HTTPStatus.PARTIAL_CONTENT
            n_total = self._announced(response)
            if n_total is None and not response.chunked:
                raise _AddressError(
                    "comes without its length, which was not published either, so that it may "
                    "never end"
                )
            if not resumed:
                self.discard()
            start = _size(self.part)
            check_room(self.part.parent, (n_total or 0) - start, url)
            with self.part.open("ab") as stream:
                for block in _blocks(response):
                    stream.write(block)
                    self._progress(len(block))
                    if n_total is not None and stream.tell() > n_total:
                        break
        if _size(self.part) < (n_total or 1):
            of_total = f" of {n_total:,}" if n_total else ""
            raise _TransientError(f"cut off after {_size(self.part):,}{of_total} bytes")
        return start == 0

    def _announced(self, response: http.client.HTTPResponse) -> int | None:
        """Return the length of the whole file, if it was published or the server tells it."""
        resumed = response.status == http.HTTPStatus.PARTIAL_CONTENT
        told = response.headers["Content-Range" if resumed else "Content-Length"] or ""
        start, _, n_bytes = told.rpartition("/")
        announced = int(n_bytes) if n_bytes.isdecimal() else self.file.n_bytes
        is_known = self.file.n_bytes in (None, announced)
        if announced == 0:
            raise _TransientError("an empty response")
        if is_known and (not resumed or start.startswith(f"bytes {_size(self.part)}-")):
            return announced
        if resumed:
            self.discard()
            raise _TransientError("sent another range than was requested")
        raise _AddressError(f"sends {announced:,} bytes, not the expected {self.file.n_bytes:,}")

    def _ask(self, url: str) -> http.client.HTTPResponse:
        """Request what is missing; only the hash tells whether it fits what is already here."""
        headers = {"User-Agent": "nmtkit", "Accept-Encoding": "identity"}
        if n_bytes := _size(self.part):
            headers["Range"] = f"bytes={n_bytes}-"
        request = Request(url, headers=headers)  # noqa: S310 - a catalog has only http and https
        try:
            response: http.client.HTTPResponse = urlopen(request, timeout=TIMEOUT_S)  # noqa: S310
        except HTTPError as error:
            error.close()
            if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                self.discard()  # the server has no such range: it has another file
            kind = _TransientError if error.code in TRANSIENT else _AddressError
            raise kind(f"HTTP {error.code} {_reason(error)}") from None
        except URLError as error:  # there is no connection: none at all if none ever was
            kind = _TransientError if self.furthest > self._began else _AddressError
            raise kind(_reason(error)) from None
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
