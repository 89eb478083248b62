"""Downloads with mirrors and resume. No file is used before its hash is verified.

Bytes arrive in a file with the suffix `PART`. All addresses of an archive share it. It gets its
final name when its hash is verified.
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf
from pathlib import Path
from urllib.parse import urlsplit

from nmtkit.sources.catalog import RemoteFile
from nmtkit.sources.transfer import Address, Attempts, NoSuchFileError, difference, file_size
from nmtkit.store.files import move, write_whole
from nmtkit.store.links import check_own
from nmtkit.store.locks import locked
from nmtkit.store.records import file_sha256, read_utf8
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError

PART = ".part"  # suffix of an archive that is not complete


class MissingDownloadError(UserError):
    """No address has the file."""


def no_files() -> list[RemoteFile]:
    """Return no files: the default of `Downloads.needed`."""
    return []


@dataclass(frozen=True)
class Downloads:
    """The folder of downloaded archives, and the network or the mirror that they come from.

    Attributes:
        folder: The folder of downloads.
        mirror: A folder to read instead of the network. It has files as HOST/PATH of their URLs.
        needed: Returns the other files that the command needs. The missing ones are listed if a
            file cannot be downloaded, because the user may have to bring them from elsewhere.
    """

    folder: Path
    mirror: Path | None = None
    needed: Callable[[], list[RemoteFile]] = no_files

    def find(self, file: RemoteFile) -> Path | None:
        """Return the path of any archive of a file, or None. Its hash is not verified."""
        urls: list[str] = []
        for archive in file.archives:
            urls += archive.urls
        if self.mirror is not None:
            for url in urls:
                path = Path(self.mirror, *_host_and_path(url))
                if path.is_file():
                    return path
        for url in urls:
            path = self._path(url)
            if path.is_file():
                return path
        return None

    def fetch(self, file: RemoteFile) -> Path:
        """Return the path of a verified file, or of another archive of its texts.

        The file is downloaded unless it is on disk.

        Raises:
            UserError: The file is not in the mirror, cannot be downloaded, or has another hash; or
                a link is in the folder of the download.
        """
        name = f"download {Path(file.url).name}"
        with (
            progress.prefix(""),  # the messages name the download
            progress.task(name, unit="bytes", total=file.n_bytes) as task,
        ):
            try:
                return self._fetch(file, task)
            except UserError as error:
                missing: list[str] = []  # the addresses of other needed files that are not on disk
                for other in self.needed():
                    if other.url not in (file.url, *missing) and self.find(other) is None:
                        missing.append(other.url)
                if not missing or self.find(file) is not None:
                    raise
                raise UserError(
                    f"{error}; these files are missing too: {', '.join(missing)}"
                ) from None

    def read_hashes(self, files: Iterable[RemoteFile]) -> dict[str, str]:
        """Verify the archives that are on disk, and return their hashes by address."""
        hashes = {}
        for file in files:
            path = self.find(file)
            if path is not None:
                self._verify(file, path)
                archive = self._with_hash(archive_at(file, path))
                hashes[archive.url] = f"{'sha256' if archive.sha256 else 'md5'} {archive.digest}"
        return hashes

    def part_bytes(self, file: RemoteFile) -> int:
        """Return the number of bytes of an unfinished download that have arrived."""
        return max(file_size(self._path(archive.url, PART)) for archive in file.archives)

    def known_bytes(self, file: RemoteFile) -> int | None:
        """Return the published length, or that of the download if it is on disk."""
        path = Downloads(self.folder).find(file)
        return file.n_bytes or (file_size(path) if path else None)

    def _fetch(self, file: RemoteFile, task: progress.Task) -> Path:
        """Find and verify a file, or download it; see `fetch`."""
        path = self.find(file)
        if path is None and self.mirror is not None:
            raise UserError(
                f"the mirror has no {Path(self.mirror, *_host_and_path(file.url))}; save "
                f"{file.url} there, or omit --mirror to download it"
            )
        if path is None:
            lock = self._path(file.url, ".lock")
            check_own(lock.parent)
            lock.parent.mkdir(parents=True, exist_ok=True)
            with locked(lock, f"{file.url} is being downloaded", note={}, wait_s=inf):
                path = self.find(file)  # another process may have downloaded it meanwhile
                if path is None:
                    return self._download(file, task)
        # A file on disk is verified at every use: it may have been changed or exchanged.
        self._verify(file, path)
        task.advance(file_size(path))
        return path

    def _verify(self, file: RemoteFile, path: Path) -> None:
        """Raise a UserError unless the archive at `path` has the published or recorded hash."""
        archive = archive_at(file, path)
        expected = self._with_hash(archive)
        problem = difference(path, expected)
        if problem is not None:
            reason = f", as published for {archive.url}; remove it"
            if expected is not archive:  # no hash is published
                record = self._path(archive.url, ".sha256")
                reason = (
                    f", as recorded when {archive.url} was first read; remove both it and {record}"
                )
            raise UserError(f"{path} has {problem}{reason}")
        self._record_hash(archive, path)

    def _download(self, file: RemoteFile, task: progress.Task) -> Path:
        """Download one of the archives of a file, verify it, and give it its final name.

        Raises:
            UserError: All addresses failed.
        """
        addresses: list[Address] = []
        for archive in file.archives:
            # All addresses of an archive serve the same bytes, so one can continue another's.
            part = self._path(archive.url, PART)
            expected = self._with_hash(archive)
            for url in archive.urls:
                addresses.append(Address(url, expected, part, task))
        name = _host_and_path(file.url)[-1]
        attempts = Attempts(addresses)
        completed = attempts.run(name)
        if completed is None:
            reasons = []
            for url, error in attempts.errors.items():
                host = "://".join(urlsplit(url)[:2])
                reasons.append(f"{host} ({error})")
            errors = attempts.errors.values()
            is_missing = all(isinstance(error, NoSuchFileError) for error in errors)
            # Several addresses may be of one host.
            raise (MissingDownloadError if is_missing else UserError)(
                f"cannot download {name}: {'; '.join(dict.fromkeys(reasons))}; retry later, or "
                f"save {file.url} as DIR/{'/'.join(_host_and_path(file.url))} and pass --mirror DIR"
            )
        self._record_hash(completed.file, completed.part)
        path = completed.part.with_suffix("")
        move(completed.part, path)
        # The other archives of the file are not needed any more.
        for address in addresses:
            address.part.unlink(missing_ok=True)
        return path

    def _path(self, url: str, suffix: str = "") -> Path:
        """Return the path of a download, in a folder that no other address has.

        Args:
            url: The first address of an archive.
            suffix: Suffix of a file next to the download.
        """
        # The names of files, such as v1.zip, are the same for many corpora.
        folder = hashlib.sha256(url.encode("utf-8")).hexdigest()[:16]
        return self.folder / folder / f"{_host_and_path(url)[-1]}{suffix}"

    def _with_hash(self, archive: RemoteFile) -> RemoteFile:
        """Return an archive with a hash: the published one, else that of its first use, if any."""
        record = self._path(archive.url, ".sha256")
        if archive.sha256 or archive.md5 or not record.exists():
            return archive
        return archive.model_copy(update={"sha256": read_utf8(record, 64) or "none"})

    def _record_hash(self, archive: RemoteFile, path: Path) -> None:
        """Record the hash of an archive at its first use, unless one is published."""
        record = self._path(archive.url, ".sha256")
        if archive.sha256 or archive.md5 or record.exists():
            return
        record.parent.mkdir(parents=True, exist_ok=True)
        write_whole(record, file_sha256(path))


def archive_at(file: RemoteFile, path: Path) -> RemoteFile:
    """Return the archive at a path that `Downloads.find` returned, by its name."""
    for archive in file.others:
        for url in archive.urls:
            if path.name == _host_and_path(url)[-1]:
                return archive
    return file


def _host_and_path(address: str) -> list[str]:
    """Return the host and the path of a URL as names of folders and of a file."""
    url = urlsplit(address)
    names = [url.netloc]
    names += url.path.strip("/").split("/")
    # The addresses are those of the catalog, and never lead out of a folder.
    assert not {"", ".", ".."} & set(names), address
    return names
