"""The tables that `score` and `run` print."""

from collections.abc import Mapping
from typing import Any

from nmtkit.reporting.grid import Grid, Row
from nmtkit.reporting.scores import SCORE_NAMES, format_score, score_kind, score_methods


def score_table(scores: Mapping[str, Any]) -> list[Grid | str]:
    """Return a table of scores, followed by the methods and signatures of the scores.

    Args:
        scores: The scores of test sets or of systems, by name, in the format of `scores.json`.
    """
    columns = ["score"]
    for name, name_scores in scores.items():
        test_set = name_scores["test_set"]
        prefix = "" if name == test_set["name"] else f"{test_set['name']}, "
        columns.append(f"{name}\n{prefix}{test_set['lines']:,} lines")
    rows: list[Row] = []
    for key, title in SCORE_NAMES.items():
        if any(score_kind(key) in name_scores for name_scores in scores.values()):
            cells = [
                format_score(name_scores, key, with_interval=True)
                for name_scores in scores.values()
            ]
            rows.append((title, *cells))
    return [Grid.of("", columns, rows, 1), *score_methods(scores.values())]


def run_summary(results: Mapping[str, Any]) -> list[Grid | str]:
    """Return the tables of a run: some translations, the artifacts, and the scores.

    Args:
        results: The results of `stages.run_all.run_all`.
    """
    samples: list[list[Row]] = []
    for sample in results["samples"]:
        group: list[Row] = [("source", sample["src"])]
        if sample["reference"] is not None:
            group.append(("reference", sample["reference"]))
        group.append(("nmtkit", sample["hypothesis"]))
        samples.append(group)
    artifacts = [(stage["name"], stage["summary"], stage["path"]) for stage in results["stages"]]
    return [
        Grid("some translations of the test set", ("", ""), 2, samples),
        Grid.of("artifacts", ("stage", "", "path"), artifacts, 3),
        *score_table(results["scores"]),
    ]
