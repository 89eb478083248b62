"""Downloads: from any address that works, resumed, and used only after they are verified.

Bytes arrive in a file with the suffix `PART`, which all addresses of an archive share. It gets its
final name when its hash is verified.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

from nmtkit.sources.address import Address, difference, file_size
from nmtkit.sources.attempts import Attempts
from nmtkit.sources.catalog import RemoteFile
from nmtkit.store.files import move, write_whole
from nmtkit.store.links import check_own
from nmtkit.store.locks import locked
from nmtkit.store.records import file_sha256, read_utf8
from nmtkit.utils.errors import Advance, Log, UserError

PART = ".part"  # suffix of an archive that is not complete


def ensure_downloaded(
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
        UserError: The file is not in the mirror, cannot be downloaded, or has another hash; or a
            link is in the folder of the download.
    """
    path = find(file, downloads_dir, mirror)
    if path is None and mirror is not None:
        raise UserError(
            f"the mirror has no {Path(mirror, *_host_and_path(file.url))}; save {file.url} there, "
            "or omit --mirror to download it"
        )
    if path is None:
        lock = _place(file.url, downloads_dir, ".lock")
        check_own(lock.parent)
        lock.parent.mkdir(parents=True, exist_ok=True)
        with locked(lock, f"{file.url} is being downloaded", note={}, log=log):
            path = find(file, downloads_dir)  # another process may have downloaded it meanwhile
            if path is None:
                return _download(file, downloads_dir, progress, log, warn)
    # A file that is here is verified at every use: it may have been changed or exchanged.
    archive = archive_at(file, path)
    expected = _with_hash(archive, downloads_dir)
    problem = difference(path, expected)
    if problem is not None:
        reason = f", as published for {archive.url}; remove it"
        if expected is not archive:  # no hash is published
            record = _place(archive.url, downloads_dir, ".sha256")
            reason = f", as recorded when {archive.url} was first read; remove both it and {record}"
        raise UserError(f"{path} has {problem}{reason}")
    _record_hash(archive, downloads_dir, path)
    progress(file_size(path))
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


def archive_at(file: RemoteFile, path: Path) -> RemoteFile:
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
            path = ensure_downloaded(file, downloads_dir, mirror)
            archive = _with_hash(archive_at(file, path), downloads_dir)
            hashes[archive.url] = f"{'sha256' if archive.sha256 else 'md5'} {archive.digest}"
    return hashes


def part_bytes(file: RemoteFile, downloads_dir: Path) -> int:
    """Return the number of bytes of an unfinished download that have arrived."""
    return max(file_size(_place(archive.url, downloads_dir, PART)) for archive in file.archives)


def known_bytes(file: RemoteFile, downloads_dir: Path) -> int | None:
    """Return the published length, or that of the download if it is here."""
    path = find(file, downloads_dir)
    return file.n_bytes or (file_size(path) if path else None)


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
    write_whole(record, file_sha256(path))


def _download(
    file: RemoteFile, downloads_dir: Path, progress: Advance, log: Log, warn: Log
) -> Path:
    """Download one of the archives of a file, verify it, and move it to its place.

    Args:
        file: The file.
        downloads_dir: The folder of downloads.
        progress: See `ensure_downloaded`.
        log: See `ensure_downloaded`.
        warn: See `ensure_downloaded`.

    Raises:
        UserError: All addresses failed.
    """
    addresses: list[Address] = []
    for archive in file.archives:
        # All addresses of an archive serve the same bytes, so that one can continue another's.
        part = _place(archive.url, downloads_dir, PART)
        expected = _with_hash(archive, downloads_dir)
        for url in archive.urls:
            addresses.append(Address(url, expected, part, progress))
    name = _host_and_path(file.url)[-1]
    attempts = Attempts(addresses, warn)
    completed = attempts.run(name, log)
    if completed is None:
        reasons = []
        for url, error in attempts.errors.items():
            host = "://".join(urlsplit(url)[:2])
            reasons.append(f"{host} ({error})")
        raise UserError(
            f"cannot download {name}: {'; '.join(reasons)}; retry later, or save {file.url} as "
            f"DIR/{'/'.join(_host_and_path(file.url))} and pass --mirror DIR"
        )
    _record_hash(completed.file, downloads_dir, completed.part)
    path = completed.part.with_suffix("")
    move(completed.part, path)
    # The other archives of the file are not needed any more.
    for address in addresses:
        address.part.unlink(missing_ok=True)
    return path
