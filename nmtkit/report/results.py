"""The table of results: published ones, and those that were measured with nmtkit."""

import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from nmtkit.config.loading import read_toml, recipes_dir
from nmtkit.evaluation.scores import GERMAN_NOTE
from nmtkit.rendering.grid import Grid, Row
from nmtkit.rendering.show import Form, show
from nmtkit.utils.errors import UserError

_PUBLISHED_FILE = Path(__file__).with_name("published.toml")
# The published tables, by name.
TABLES: dict[str, Any] = tomllib.loads(_PUBLISHED_FILE.read_text(encoding="utf-8"))
# Notes on Table 2.
NOTES: list[str] = [GERMAN_NOTE, *TABLES.pop("notes")]
PUBLISHED = TABLES["results"]
COLUMNS: Row = tuple(PUBLISHED["columns"])
RATE = "target tokens/s"  # `counted_as` of a speed


class Result(NamedTuple):
    """A row of the table, by the columns of published.toml."""

    recipe: str
    figure: str | int  # as it is printed; a speed is a number
    counted_as: str
    hardware: str
    time: str
    by: str
    source: str

    def cells(self) -> Row:
        """Return the row as it is printed."""
        figure = self.figure if isinstance(self.figure, str) else f"{self.figure:,}"
        return (
            self.recipe,
            figure,
            self.counted_as,
            self.hardware,
            self.time,
            self.by,
            self.source,
        )


def show_results(form: Form) -> None:
    """Print published and measured results, recipe by recipe."""
    rows: list[Row] = list(map(tuple, PUBLISHED["rows"]))
    for result in measured_results():
        rows.append(result.cells())
    # Of a recipe, published rows come first.
    rows_by_recipe: dict[str, list[Row]] = {}
    for row in rows:
        rows_by_recipe.setdefault(row[0], []).append(row)
    groups = []
    records = []
    for _, recipe_rows in sorted(rows_by_recipe.items()):
        groups.append(recipe_rows)
        for row in recipe_rows:
            records.append(dict(zip(COLUMNS, row, strict=True)))
    show(form, records, [Grid(PUBLISHED["title"], COLUMNS, len(COLUMNS), groups)])


def measured_results() -> list[Result]:
    """Return the rows of pipelines/results/results.toml."""
    return read_results(recipes_dir() / "results" / "results.toml")


def read_results(path: Path) -> list[Result]:
    """Read a file of measured results.

    Raises:
        UserError: The file is not a list of such rows.
    """
    rows = read_toml(path).get("rows")
    if not isinstance(rows, list):
        raise UserError(f"{path} has no list of rows; restore it from a backup")
    results = []
    for number, row in enumerate(rows, start=1):
        try:
            result = TypeAdapter(Result).validate_python(row, strict=True)
        except ValidationError:
            raise UserError(
                f"{path}: row {number} does not have {len(COLUMNS)} strings "
                f"({', '.join(COLUMNS)}); fix it"
            ) from None
        # Estimates of other commands compute with speeds: these must be numbers.
        is_speed = isinstance(result.figure, int) and result.figure > 0
        if is_speed != (result.counted_as == RATE):
            raise UserError(
                f"{path}: row {number} has the figure {result.figure!r}, counted as "
                f"{result.counted_as!r}; write {RATE!r} as a whole number, such as 394_301, and "
                "all other figures as strings"
            )
        results.append(result)
    return results
