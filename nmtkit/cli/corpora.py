"""nmtkit corpora: the catalog, and what of it is here; downloads nothing and changes nothing."""

from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rich.filesize import decimal

from nmtkit.cli.options import command
from nmtkit.config.settings import Settings
from nmtkit.reporting.grid import Grid
from nmtkit.reporting.show import Form, show
from nmtkit.sources import download
from nmtkit.sources.catalog import RemoteFile, load_catalog

Facts = dict[str, Any]
COLUMNS = ("corpus", "pairs", "size", "hosts", "state")


@command("nmtkit corpora", "mirror")
def corpora(settings: Settings, form: Form) -> None:
    found = [entry(name, settings) for name in load_catalog().corpora]
    grids = [
        Grid.of(licence, COLUMNS, list(map(_row, group)), len(COLUMNS))
        for licence, group in groupby(found, key=lambda corpus: str(corpus["licence"]))
    ]
    show(form, {"corpora": found}, grids)


def _row(corpus: Facts) -> tuple[str, ...]:
    files = corpus["files"]
    columns = (
        [f"{langs} {'?' if n is None else f'{n:,}'}" for langs, n in corpus["n_pairs"].items()],
        ["?" if file["n_bytes"] is None else decimal(file["n_bytes"]) for file in files],
        *([str(file[key]) for file in files] for key in COLUMNS[3:]),
    )
    return (corpus["name"], *map("\n".join, columns))


def entry(name: str, settings: Settings) -> Facts:
    """Return a corpus of the catalog, and the state of its files on this machine."""
    catalog = load_catalog()
    found = {pair: catalog.corpus(name, *pair) for pair in catalog.pairs(name)}
    files = dict.fromkeys(file for corpus in found.values() for file, _ in corpus.sides)
    return {
        "name": name,
        "licence": next(iter(found.values())).licence,
        "n_pairs": {"-".join(map(str, pair)): corpus.n_pairs for pair, corpus in found.items()},
        "files": [_file(file, settings) for file in files],
    }


def _file(file: RemoteFile | Path, settings: Settings) -> Facts:
    if isinstance(file, Path):
        own = {"urls": [], "hosts": 0, "state": "part of nmtkit"}
        return {**own, "path": str(file), "n_bytes": file.stat().st_size}
    hosts = {urlsplit(url).netloc for archive in file.archives for url in archive.urls}
    path = download.find(file, settings.downloads_dir, settings.mirror)
    n_bytes = download.known_bytes(file, settings.downloads_dir)
    state = "to download"
    if path is not None:
        in_mirror = settings.mirror is not None and path.is_relative_to(settings.mirror)
        state = "in the mirror" if in_mirror else "here"
    elif arrived := download.part_bytes(file, settings.downloads_dir):
        share = f"{arrived * 100 // n_bytes} %" if n_bytes else f"{arrived:,} bytes"
        state = f"part: {share}"
    facts = {"n_bytes": n_bytes, "hosts": len(hosts), "path": path and str(path), "state": state}
    return {**file.model_dump(), **facts}
