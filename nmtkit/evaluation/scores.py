"""Scores of the test sets: the file that `score` publishes. No other module knows its name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nmtkit.files import read_json, write_json
from nmtkit.store import Artifact, verify

SCORES = "scores.json"


def write_scores(folder: Path, scores: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the scores of each test set, by its name."""
    write_json(folder / SCORES, scores)


def read_scores(artifact: Artifact) -> dict[str, Any]:
    """Read what `write_scores` wrote."""
    scores: dict[str, Any] = read_json(verify(artifact, SCORES).file(SCORES))
    return scores
