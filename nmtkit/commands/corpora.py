"""corpora: the catalog, and what of it is here; downloads nothing and changes nothing."""

from pathlib import Path

from nmtkit.errors import UserError
from nmtkit.machine import Machine
from nmtkit.reporting.facts import CorpusEntry, CorpusFile
from nmtkit.sources import download
from nmtkit.sources.catalog import Catalog, CatalogText, RemoteFile, load_catalog


def corpora(machine: Machine) -> list[CorpusEntry]:
    """Every corpus of the catalog, and the state of its files on this machine.

    Raises:
        UserError: the mirror is not a folder.
    """
    if machine.mirror is not None and not machine.mirror.is_dir():
        raise UserError(f"the mirror {machine.mirror} is not a folder; name another with --mirror")
    catalog = load_catalog()
    return [_entry(catalog, name, machine) for name in catalog.names]


def _entry(catalog: Catalog, name: str, machine: Machine) -> CorpusEntry:
    found = [catalog.corpus(name, *pair) for pair in catalog.pairs(name)]
    members: dict[RemoteFile | Path, list[str]] = {}
    for corpus in found:
        for text in (corpus.src, corpus.tgt):
            members.setdefault(text.file, []).extend(_member(text))
    return CorpusEntry(
        name,
        found[0].licence,
        {
            "-".join(map(str, pair)): corpus.n_pairs
            for pair, corpus in zip(catalog.pairs(name), found, strict=True)
        },
        [_file(file, sorted(set(names)), machine) for file, names in members.items()],
    )


def _member(text: CatalogText) -> list[str]:
    return [] if text.member is None else [text.member]


def _file(file: RemoteFile | Path, members: list[str], machine: Machine) -> CorpusFile:
    if isinstance(file, Path):
        size = file.stat().st_size
        return CorpusFile(None, str(file), size, None, None, "part of nmtkit", "here", members)
    downloads_dir = machine.downloads_dir
    path = download.find(file, downloads_dir, machine.mirror)
    n_bytes = download.known_bytes(file, downloads_dir)
    return CorpusFile(
        file.url,
        None if path is None else str(path),
        n_bytes,
        file.sha256,
        file.md5,
        "md5 published" if file.sha256 is None else "sha256 published",
        _state(file, path, n_bytes, machine, downloads_dir),
        members,
    )


def _state(
    file: RemoteFile,
    path: Path | None,
    n_bytes: int | None,
    machine: Machine,
    downloads_dir: Path,
) -> str:
    if path is not None:
        in_mirror = machine.mirror is not None and path.is_relative_to(machine.mirror)
        return "in the mirror" if in_mirror else "here"
    arrived = download.part_bytes(file, downloads_dir)
    if not arrived:
        return "to download"
    return f"part: {arrived:,} bytes" if n_bytes is None else f"part: {arrived * 100 // n_bytes} %"
