"""nmtkit corpora: the catalog, and what of it is here; downloads nothing and changes nothing."""

from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from rich.filesize import decimal

from nmtkit.cli.options import command
from nmtkit.machine import Machine
from nmtkit.reporting.grid import Grid
from nmtkit.reporting.show import Form, show
from nmtkit.sources import download
from nmtkit.sources.catalog import Catalog, RemoteFile, load_catalog


@dataclass(frozen=True)
class CorpusFile:
    """A file that a corpus of the catalog is read from."""

    url: str | None  # None: it comes with nmtkit
    path: str | None  # where it is, if it is
    n_bytes: int | None
    sha256: str | None  # as published
    md5: str | None
    hash: str  # which one was published
    state: str
    members: list[str]  # of the archive


@dataclass(frozen=True)
class CorpusEntry:
    """A corpus of the catalog."""

    name: str
    licence: str
    n_pairs: dict[str, int | None]  # by languages; None: no count is known
    files: list[CorpusFile]


@command("nmtkit corpora", "mirror")
def corpora(machine: Machine, form: Form) -> None:
    """List the public corpora that a recipe can name."""
    found = entries(machine)
    grids = [
        Grid.of(licence, ("corpus", "pairs", "size", "state", "hash"), list(map(_row, corpora)), 5)
        for licence, corpora in groupby(found, key=lambda corpus: corpus.licence)
    ]
    show(form, {"corpora": found}, grids)


def entries(machine: Machine) -> list[CorpusEntry]:
    """Return every corpus of the catalog, and the state of its files on this machine."""
    catalog = load_catalog()
    return [_entry(catalog, name, machine) for name in catalog.names]


def _row(corpus: CorpusEntry) -> tuple[str, ...]:
    columns = (
        [f"{langs} {'?' if n is None else f'{n:,}'}" for langs, n in corpus.n_pairs.items()],
        ["?" if file.n_bytes is None else decimal(file.n_bytes) for file in corpus.files],
        [file.state for file in corpus.files],
        [file.hash for file in corpus.files],
    )
    return (corpus.name, *map("\n".join, columns))


def _entry(catalog: Catalog, name: str, machine: Machine) -> CorpusEntry:
    found = {pair: catalog.corpus(name, *pair) for pair in catalog.pairs(name)}
    members: dict[RemoteFile | Path, set[str]] = {}
    for corpus in found.values():
        for text in (corpus.src, corpus.tgt):
            members.setdefault(text.file, set()).update(filter(None, [text.member]))
    return CorpusEntry(
        name,
        next(iter(found.values())).licence,
        {"-".join(map(str, pair)): corpus.n_pairs for pair, corpus in found.items()},
        [_file(file, sorted(names), machine) for file, names in members.items()],
    )


def _file(file: RemoteFile | Path, members: list[str], machine: Machine) -> CorpusFile:
    if isinstance(file, Path):
        size = file.stat().st_size
        return CorpusFile(None, str(file), size, None, None, "part of nmtkit", "here", members)
    path = download.find(file, machine.downloads_dir, machine.mirror)
    n_bytes = download.known_bytes(file, machine.downloads_dir)
    return CorpusFile(
        file.url,
        None if path is None else str(path),
        n_bytes,
        file.sha256,
        file.md5,
        "md5 published" if file.sha256 is None else "sha256 published",
        _state(file, path, n_bytes, machine),
        members,
    )


def _state(file: RemoteFile, path: Path | None, n_bytes: int | None, machine: Machine) -> str:
    if path is not None:
        in_mirror = machine.mirror is not None and path.is_relative_to(machine.mirror)
        return "in the mirror" if in_mirror else "here"
    arrived = download.part_bytes(file, machine.downloads_dir)
    if not arrived:
        return "to download"
    return f"part: {arrived:,} bytes" if n_bytes is None else f"part: {arrived * 100 // n_bytes} %"
