"""The corpora of the catalog, and the state of their files on this machine."""

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from nmtkit.sources.catalog import RemoteFile, load_catalog
from nmtkit.sources.download import Downloads

Facts = dict[str, Any]


def corpus_facts(name: str, downloads: Downloads) -> Facts:
    """Return a corpus of the catalog, and the state of its files; nothing is downloaded."""
    catalog = load_catalog()
    n_pairs: dict[str, int | None] = {}
    # The language pairs of a corpus can have files in common.
    files: dict[RemoteFile | Path, None] = {}
    for src, tgt in catalog.pairs(name):
        text = catalog.text(name, src, tgt)
        n_pairs[f"{src}-{tgt}"] = text.n_pairs
        for path in text.source.paths():
            file, _ = catalog.file(path)
            files[file] = None
    return {
        "name": name,
        "licence": catalog.corpora[name].licence,
        "n_pairs": n_pairs,
        "files": [_file_facts(file, downloads) for file in files],
    }


def _file_facts(file: RemoteFile | Path, downloads: Downloads) -> Facts:
    if isinstance(file, Path):
        return {
            "urls": [],
            "hosts": 0,
            "state": "part of nmtkit",
            "path": str(file),
            "n_bytes": file.stat().st_size,
        }
    hosts = set()
    for archive in file.archives:
        for url in archive.urls:
            hosts.add(urlsplit(url).netloc)
    # A file that is in the mirror counts as here, also if a download of it is incomplete.
    path = downloads.find(file)
    n_bytes = downloads.known_bytes(file)
    n_arrived = downloads.part_bytes(file)
    if path is not None:
        mirror = downloads.mirror
        in_mirror = mirror is not None and path.is_relative_to(mirror)
        state = "in the mirror" if in_mirror else "downloaded"
    elif n_arrived and n_bytes:
        state = f"part: {n_arrived * 100 // n_bytes} %"
    elif n_arrived:
        state = f"part: {n_arrived:,} bytes"
    else:
        state = "not downloaded"
    return {
        **file.model_dump(),
        "n_bytes": n_bytes,
        "hosts": len(hosts),
        "path": str(path) if path else None,
        "state": state,
    }
