"""Archives in memory."""

import io
import tarfile
import zipfile
from collections.abc import Mapping


def tarred(
    members: Mapping[str, bytes], kind: str = "", tar_format: int = tarfile.GNU_FORMAT
) -> bytes:
    """Return a tar archive; `kind` is "", "gz", "bz2" or "xz"."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=f"w:{kind}", format=tar_format) as tar:  # type: ignore[call-overload]
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return stream.getvalue()


def zipped(members: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return a zip archive."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()
