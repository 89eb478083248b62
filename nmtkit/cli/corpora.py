"""nmtkit corpora."""

from itertools import groupby

from rich.filesize import decimal

from nmtkit.cli import options as opt
from nmtkit.config.settings import RUNS, Settings
from nmtkit.reporting.grid import Grid
from nmtkit.reporting.show import Form, show
from nmtkit.sources.availability import Facts, corpus_facts
from nmtkit.sources.catalog import load_catalog

COLUMNS = ("corpus", "pairs", "size", "hosts", "state")


def corpora(
    runs_dir: opt.RunsDir = RUNS,
    mirror: opt.Mirror = None,
    as_json: opt.Json = False,
    table: opt.Table = None,
) -> None:
    """List the public corpora that a recipe can name.

    Example: nmtkit corpora
    """
    settings = Settings(runs_dir, mirror)
    facts = []
    for name in load_catalog().corpora:
        facts.append(corpus_facts(name, settings.downloads_dir, mirror))
    # One table for each licence; the catalog has corpora of a licence together.
    grids = []
    for licence, group in groupby(facts, key=lambda corpus: str(corpus["licence"])):
        rows = [_row(corpus) for corpus in group]
        grids.append(Grid.of(licence, COLUMNS, rows, len(COLUMNS)))
    if table == "csv":  # one table, with a column of licences
        rows = [(str(corpus["licence"]), *_row(corpus)) for corpus in facts]
        columns = ("licence", *COLUMNS)
        grids = [Grid.of("", columns, rows, len(columns))]
    show(Form(as_json, table), {"corpora": facts}, grids)


def _row(corpus: Facts) -> tuple[str, ...]:
    """Return the row of a corpus, whose cells have one line per language pair or file."""
    pairs = []
    for langs, n_pairs in corpus["n_pairs"].items():
        pairs.append(f"{langs} {'?' if n_pairs is None else f'{n_pairs:,}'}")
    # A file may be known without its size, which servers need not send.
    sizes = []
    hosts = []
    states = []
    for file in corpus["files"]:
        sizes.append("?" if file["n_bytes"] is None else decimal(file["n_bytes"]))
        hosts.append(str(file["hosts"]))
        states.append(file["state"])
    cells = [corpus["name"]]
    for lines in (pairs, sizes, hosts, states):
        cells.append("\n".join(lines))
    return tuple(cells)
