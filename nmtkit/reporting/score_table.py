"""The tables that `score` and `run` print, and scores as data with one value per cell."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nmtkit.reporting.grid import Grid, Row
from nmtkit.reporting.scores import (
    SCORE_NAMES,
    format_score,
    score_kind,
    score_methods,
    score_value,
    unscored_sentences,
)

DATA_COLUMNS = ("test set", "lines", "metric", "score", "low", "high", "method", "signature")


def score_table(scores: Mapping[str, Any]) -> list[Grid | str]:
    """Return a table of scores, followed by the methods and signatures of the scores.

    Args:
        scores: The scores of test sets or of systems, by name, in the format of `scores.json`.
    """
    columns = ["score"]
    for name, name_scores in scores.items():
        test_set = name_scores["test_set"]
        # A file of translations is not called like its test set.
        prefix = "" if name == test_set["name"] else f"{test_set['name']}, "
        columns.append(f"{name}\n{prefix}{test_set['lines']:,} lines")
    rows: list[Row] = []
    # A score that only some systems have gets a row, with empty cells.
    for key, title in SCORE_NAMES.items():
        if any(score_kind(key) in name_scores for name_scores in scores.values()):
            cells = []
            for name_scores in scores.values():
                cells.append(format_score(name_scores, key, with_interval=True))
            rows.append((title, *cells))
    data: list[Row] = []
    for name, name_scores in scores.items():
        for row in score_data(name_scores):
            data.append((name, *row))
    data_grid = Grid.of("", ("system", *DATA_COLUMNS), data, 1 + len(DATA_COLUMNS))
    grid = replace(Grid.of("", columns, rows, 1), data=data_grid)
    notes = score_methods(scores.values())
    for name, name_scores in scores.items():
        unscored = unscored_sentences(name_scores)
        if unscored:
            notes.append(f"{name}: {unscored}")
    return [grid, *notes]


def score_data(scores: Mapping[str, Any]) -> list[Row]:
    """Return a row of DATA_COLUMNS for every score of a set of scores.

    Args:
        scores: The scores of a test set, in the format of `scores.json`. `low` and `high` are the
            ends of the confidence interval.
    """
    test_set = scores["test_set"]
    rows: list[Row] = []
    for key in SCORE_NAMES:
        value = score_value(scores, key)
        if value is None:
            continue
        kind = scores[score_kind(key)]
        # Other values of a kind, such as those with quotes replaced, have no interval.
        low, high = scores.get(key, {}).get("confidence_interval") or (None, None)
        row = (
            test_set["name"],
            str(test_set["lines"]),
            key,
            data_cell(value),
            data_cell(low),
            data_cell(high),
            kind.get("how", ""),
            kind.get("signature", ""),
        )
        rows.append(row)
    return rows


def data_cell(value: object) -> str:
    """Return a value for CSV: numbers with up to 6 digits, nothing for None."""
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def run_summary(results: Mapping[str, Any]) -> list[Grid | str]:
    """Return the tables of a run: some translations, the artifacts, and the scores.

    Args:
        results: The results of `stages.run_all.run_all`.
    """
    samples: list[list[Row]] = []
    for sample in results["samples"]:
        group: list[Row] = [("source", sample["src"])]
        # A test set without references can be translated too.
        if sample["reference"] is not None:
            group.append(("reference", sample["reference"]))
        group.append(("nmtkit", sample["hypothesis"]))
        samples.append(group)
    artifacts: list[Row] = []
    for stage in results["stages"]:
        artifacts.append((stage["name"], stage["summary"], stage["path"]))
    return [
        Grid("some translations of the test set", ("", ""), 2, samples),
        Grid.of("artifacts", ("stage", "", "path"), artifacts, 3),
        *score_table(results["scores"]),
    ]
