"""Helpers that write texts and read corpora."""

from pathlib import Path

from nmtkit.sources.catalog import RemoteFile
from nmtkit.sources.download import Downloads
from nmtkit.sources.parallel import find_corpus
from nmtkit.sources.source import Row, Source
from nmtkit.utils.language import Language

EN, DE, FR = map(Language.of, ("en", "de", "fr"))


def write_file(path: Path, content: str | bytes) -> Path:
    """Write text or bytes to a file."""
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


class DownloadsTo(Downloads):
    """Downloads that all are the file `folder`."""

    def fetch(self, _: RemoteFile) -> Path:
        return self.folder


# For sources that must not download anything.
NO_DOWNLOADS = Downloads(Path("no folder"), mirror=Path("no mirror"))


def rows_of(source: Source, src: Language = EN, tgt: Language = DE) -> list[Row]:
    return list(find_corpus(source, src, tgt).rows(NO_DOWNLOADS))
