"""The table of results: what is published, what we reached, and what users sent.

In pipelines/results/, results.toml has what we reached. THEME_HARDWARE_DATE.json is as it was sent:
what `nmtkit selftest --gpu --json` prints, or the scores.json of the recipe THEME.
"""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from pydantic import BaseModel, ConfigDict, RootModel

from nmtkit import progress
from nmtkit.cli.selftest import Check
from nmtkit.files import DamagedError, read_record
from nmtkit.recipe_file import read_toml, recipes_dir
from nmtkit.reporting.grid import Grid, Row
from nmtkit.reporting.scores import SCORE_NAMES, TABLES, figure
from nmtkit.reporting.show import Form, show

PUBLISHED = TABLES["results"]
SPEED = "tgt_tokens_per_second"  # of the figures of a check
RATE = "target tokens/s"  # as the table has it


class _Score(BaseModel):
    model_config = ConfigDict(allow_inf_nan=False)

    score: float | None = None
    score_quotes_replaced: float | None = None
    score_both_normalized: float | None = None


class _Sent(RootModel[list[Check] | dict[str, dict[str, _Score]]]):
    """Checks of a machine, or scores by test set and kind."""

    model_config = ConfigDict(allow_inf_nan=False)


def show_results(form: Form) -> None:
    rows = [*map(tuple, PUBLISHED["rows"]), *reached()]
    rows.sort(key=lambda row: row[0])  # of a recipe, those that are published come first
    groups = [[*group] for _, group in groupby(rows, key=lambda row: row[0])]
    columns = tuple(PUBLISHED["columns"])
    found = [dict(zip(columns, row, strict=True)) for row in rows]
    show(form, found, [Grid(PUBLISHED["title"], columns, len(columns), groups)])


def reached() -> Iterator[Row]:
    """Yield the rows of what we and users reached; a damaged file is left out, and this is said."""
    folder = recipes_dir() / "results"
    yield from map(tuple, read_toml(folder / "results.toml")["rows"])
    for path in sorted(folder.glob("*.json")):
        try:
            yield from _sent(path)
        except DamagedError as error:
            progress.say(f"a file of results is left out: {error.reason}")


def _sent(path: Path) -> Iterator[Row]:
    if path.stem.count("_") != 2:
        raise DamagedError(f"{path} is not named THEME_HARDWARE_DATE.json", "rename it")
    theme, hardware, date = path.stem.split("_")
    sent, where = read_record(path, _Sent).root, (hardware, "", date, path.name)
    if isinstance(sent, list):
        for check in sent:
            if (rate := check.figures.get(SPEED, 0.0)) >= 1:
                recipe, _, devices = check.what.partition(", ")
                yield recipe, f"{rate:,.0f}", f"{RATE}, {devices}", *where
        return
    for name, kinds in sent.items():
        of_set = {kind: each.model_dump() for kind, each in kinds.items()}
        for key, label in SCORE_NAMES.items():
            if (score := figure(of_set, key)) is not None:
                yield theme, f"{score:.2f}", f"{label}, {name}", *where
