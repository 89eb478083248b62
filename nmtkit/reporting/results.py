"""The table of results: what is published, and what was measured with nmtkit."""

from itertools import groupby

from nmtkit.config.loading import read_toml, recipes_dir
from nmtkit.reporting.grid import Grid, Row
from nmtkit.reporting.scores import TABLES
from nmtkit.reporting.show import Form, show
from nmtkit.utils.errors import UserError

PUBLISHED = TABLES["results"]
COLUMNS: Row = tuple(PUBLISHED["columns"])
RATE = "target tokens/s"  # in the column "counted as"


def show_results(form: Form) -> None:
    rows = [tuple(row) for row in PUBLISHED["rows"]]
    rows += measured_rows()
    rows.sort(key=lambda row: row[0])  # the sort is stable: of a recipe, published rows come first
    groups = [list(group) for _, group in groupby(rows, key=lambda row: row[0])]
    records = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
    show(form, records, [Grid(PUBLISHED["title"], COLUMNS, len(COLUMNS), groups)])


def measured_rows() -> list[Row]:
    """Return the rows of pipelines/results/results.toml.

    Raises:
        UserError: The file is not a list of such rows.
    """
    path = recipes_dir() / "results" / "results.toml"
    rows = read_toml(path).get("rows")
    if not isinstance(rows, list):
        raise UserError(f"{path} has no list of rows; restore it")
    for number, row in enumerate(rows, start=1):
        is_list = isinstance(row, list)
        if (
            not is_list
            or len(row) != len(COLUMNS)
            or not all(isinstance(cell, str) for cell in row)
        ):
            raise UserError(
                f"{path}: row {number} does not have {len(COLUMNS)} strings "
                f"({', '.join(COLUMNS)}); fix it"
            )
    return [tuple(row) for row in rows]
