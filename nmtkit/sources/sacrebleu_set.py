"""Test sets by sacreBLEU's names, read by its own code so that they are the same lines.

sacreBLEU's downloader uses what it finds in its cache without looking at the hash, and unpacks
archives whole. Here, its addresses and hashes are used, and it gets only the files that it reads.
"""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from copy import copy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from nmtkit.errors import UserError
from nmtkit.languages import TREE, Language
from nmtkit.sources.archives import PackedError, read_blocks
from nmtkit.sources.catalog import RemoteFile
from nmtkit.sources.source import Row, Source
from nmtkit.sources.text import TextFile, read_lines
from nmtkit.sources.variants import Variants


class SacrebleuSet(Source):
    """A test set in one direction, with all references that sacreBLEU scores against."""

    key = "sacrebleu"
    path_keys = ()
    title = "a test set of sacreBLEU"

    sacrebleu: str  # such as "wmt14/full"
    pair: str  # such as "en-de", as sacreBLEU writes it

    def downloads(self) -> tuple[RemoteFile, ...]:
        known = _known()[self.sacrebleu]
        both = zip(known.data, known.md5, strict=True)
        return tuple(RemoteFile(urls=(url,), md5=md5) for url, md5 in both)

    def identity(self, hashes: Sequence[str]) -> list[str]:
        return [self.key, self.sacrebleu, self.pair, *hashes]

    def rows(self, texts: Sequence[TextFile], _: Variants) -> Iterator[Row]:
        dataset = copy(_known()[self.sacrebleu])
        with TemporaryDirectory() as folder:
            dataset._outdir, dataset._rawdir = folder, f"{folder}/raw"
            dataset.maybe_download = lambda: None
            names = map(dataset._get_tarball_filename, dataset.data)
            stored = dict(zip(names, (text.path for text in texts), strict=True))
            for name in _members(dataset.langpairs[self.pair]):
                _provide(name, stored, Path(dataset._rawdir, name))
            paths = [dataset.get_source_file(self.pair), *dataset.get_reference_files(self.pair)]
            lines = [list(read_lines(TextFile(Path(path)))) for path in paths]
        yield from zip(*lines, strict=True)


def find_set(name: str, src: Language, tgt: Language) -> SacrebleuSet | None:
    """Return sacreBLEU's test set of that name, if there is one."""
    if name not in _known():
        return None
    pairs = list(_known()[name].langpairs)
    for pair in pairs:
        if tgt != TREE and Language.pair_of(pair) == (src, tgt):
            return SacrebleuSet(sacrebleu=name, pair=pair)
    raise UserError(f"sacreBLEU's {name} has no {src}-{tgt}; it has {', '.join(pairs)}")


def _known() -> dict[str, Any]:
    from sacrebleu.dataset import DATASETS  # slow to import

    return DATASETS


def _members(described: Any) -> list[str]:
    """Return the names of files in what sacreBLEU's table has of a direction."""
    names = [described["path"]] if isinstance(described, dict) else described
    return [name.rpartition(":")[2] for name in names]  # of a table, after the number of a column


def _provide(name: str, stored: dict[str, Path], place: Path) -> None:
    """Write a file that sacreBLEU reads: a download itself, or a member of one."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if name in stored:
        shutil.copyfile(stored[name], place)
        return
    for path in stored.values():
        with suppress(PackedError), place.open("wb") as file:
            file.writelines(read_blocks(path, name))
            return
    raise UserError(f"{', '.join(map(str, stored.values()))}: no {name}, which sacreBLEU reads")
