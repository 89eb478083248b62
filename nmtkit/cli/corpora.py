"""nmtkit corpora."""

from rich.filesize import decimal

from nmtkit.cli import options as opt
from nmtkit.config.settings import RUNS, Settings
from nmtkit.rendering.grid import Grid, Row
from nmtkit.rendering.show import Form, show
from nmtkit.sources.catalog import load_catalog
from nmtkit.sources.parallel import Facts, corpus_facts

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
    downloads = Settings(runs_dir, mirror).downloads()
    facts = []
    for name in load_catalog().corpora:
        facts.append(corpus_facts(name, downloads))
    rows_by_licence: dict[str, list[Row]] = {}
    for corpus in facts:
        rows_by_licence.setdefault(str(corpus["licence"]), []).append(_row(corpus))
    # A table for each licence, or, as CSV is one table, a column of licences.
    grids = []
    if table == "csv":
        columns = ("licence", *COLUMNS)
        lines = []
        for licence, rows in rows_by_licence.items():
            for row in rows:
                lines.append((licence, *row))
        grids.append(Grid.of("", columns, lines, len(columns)))
    else:
        for licence, rows in rows_by_licence.items():
            grids.append(Grid.of(licence, COLUMNS, rows, len(COLUMNS)))
    show(Form(as_json, table), {"corpora": facts}, grids)


def _row(corpus: Facts) -> Row:
    """Return the row of a corpus, whose cells have one line per language pair or file."""
    pairs = []
    for langs, n_pairs in corpus["n_pairs"].items():
        count = "?" if n_pairs is None else f"{n_pairs:,}"
        pairs.append(f"{langs} {count}")
    # A file may be known without its size: servers need not send it.
    sizes = []
    hosts = []
    states = []
    for file in corpus["files"]:
        sizes.append("?" if file["n_bytes"] is None else decimal(file["n_bytes"]))
        hosts.append(str(file["hosts"]))
        states.append(file["state"])
    return (
        corpus["name"],
        "\n".join(pairs),
        "\n".join(sizes),
        "\n".join(hosts),
        "\n".join(states),
    )
