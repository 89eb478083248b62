"""Test sets by sacreBLEU's names, read by its own code to get the same lines.

Only its readers are used. Its downloader trusts the files in its cache and unpacks whole archives;
here, the readers find the files that they need, from downloads that nmtkit has verified.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import Any

from nmtkit.sources.catalog import RemoteFile
from nmtkit.sources.sides import Variants
from nmtkit.sources.source import Row, Source
from nmtkit.sources.text_file import PackedError, TextFile, read_blocks, read_lines
from nmtkit.store.files import temporary_folder
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language


class SacrebleuSet(Source):
    """A test set in one direction, with the references that sacreBLEU scores against."""

    key = "sacrebleu"
    title = "a test set of sacreBLEU"

    sacrebleu: str  # such as "wmt14/full"
    pair: str  # such as "en-de", as sacreBLEU writes it

    def downloads(self) -> list[RemoteFile]:
        """Return the files of the test set, with the hashes that sacreBLEU publishes."""
        dataset = _datasets()[self.sacrebleu]
        files = []
        for url, md5 in zip(dataset.data, dataset.md5, strict=True):
            files.append(RemoteFile(urls=(url,), md5=md5))
        return files

    def identity(self, hashes: Sequence[str]) -> list[str]:
        """Return the values that determine the text."""
        return [self.key, self.sacrebleu, self.pair, *hashes]

    def rows(self, texts: Sequence[TextFile], _: Variants) -> Iterator[Row]:
        """Yield the lines of source and references; see `Source.rows`."""
        dataset = copy(_datasets()[self.sacrebleu])
        description = dataset.langpairs[self.pair]
        names = [description["path"]] if isinstance(description, dict) else description
        # The readers of sacreBLEU take paths, not streams.
        with temporary_folder() as folder:
            # The reader looks for files in these folders, and converts them there.
            dataset._outdir = str(folder)
            dataset._rawdir = str(folder)
            dataset.maybe_download = lambda: None
            for name in names:
                file = name.rpartition(":")[2]  # the number of a column may precede the file
                place = folder / file
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(_read(file, dataset, texts))
            paths = [dataset.get_source_file(self.pair)]
            paths += dataset.get_reference_files(self.pair)
            lines = [list(read_lines(TextFile(Path(path)))) for path in paths]
        yield from zip(*lines, strict=True)


def find_set(name: str, src: Language, tgt: Language) -> SacrebleuSet | None:
    """Return a test set of sacreBLEU, or None if it has none of this name.

    Args:
        name: The name of the test set.

    Raises:
        UserError: The test set does not have these languages.
    """
    if name not in _datasets():
        return None
    # A recipe may have another tag of the same language, such as zho for zh.
    pairs = {Language.parse_pair(pair): pair for pair in _datasets()[name].langpairs}
    if (src, tgt) not in pairs:
        available = ", ".join(pairs.values())
        raise UserError(f"sacreBLEU's {name} has no {src}-{tgt}; it has {available}")
    return SacrebleuSet(sacrebleu=name, pair=pairs[src, tgt])


def is_set(name: str) -> bool:
    """Return whether sacreBLEU has a test set of that name."""
    return name in _datasets()


def set_names(src: Language, tgt: Language) -> list[str]:
    """Return the names of sacreBLEU's test sets in one direction."""
    names = []
    for name, dataset in _datasets().items():
        pairs = [Language.parse_pair(pair) for pair in dataset.langpairs]
        if (src, tgt) in pairs:
            names.append(name)
    return sorted(names)


def _datasets() -> dict[str, Any]:
    from sacrebleu.dataset import DATASETS  # slow to import

    return DATASETS


def _read(name: str, dataset: Any, texts: Sequence[TextFile]) -> bytes:
    """Return the bytes of a file that sacreBLEU reads: a download itself, or a member of one.

    Args:
        dataset: The test set.
    """
    for url, text in zip(dataset.data, texts, strict=True):
        if name == dataset._get_tarball_filename(url):
            return text.path.read_bytes()
        with suppress(PackedError):
            return b"".join(read_blocks(text.path, name))
    raise UserError(f"no download of {dataset.name} has {name}, which sacreBLEU reads")
