"""nmtkit runs."""

from typing import Any

from nmtkit.cli import options as opt
from nmtkit.config.settings import RUNS
from nmtkit.evaluation.scores import SCORE_NAMES, score_methods
from nmtkit.rendering.show import Form, show
from nmtkit.runs.listing import (
    PUBLISHED,
    ListedArtifact,
    artifacts_grid,
    list_artifacts,
    published_artifacts,
)
from nmtkit.store.code_version import warn_of_other_code

SCORE_KINDS = ("sacrebleu", "bracket_f1")  # the main scores of a test set


def runs(runs_dir: opt.RunsDir = RUNS, as_json: opt.Json = False, table: opt.Table = None) -> None:
    """List all artifacts: run, stage, size, age, score.

    Example: nmtkit runs
    """
    form = Form(as_json, table)
    listed = list(list_artifacts(runs_dir))
    warn_of_other_code(published_artifacts(listed))
    if not listed:
        hint = f"{runs_dir} has no artifacts yet; run `nmtkit run demo` to build the first"
        show(form, [], [hint])
        return
    rows = []
    set_scores: list[dict[str, Any]] = []
    for artifact in listed:
        rows.append((artifact, _score_or_state(artifact)))
        set_scores += artifact.scores.values()
    grid = artifacts_grid("", rows, "score or state")
    # Below the table, one line explains each kind of score.
    show(form, listed, [grid, *score_methods(set_scores, SCORE_KINDS)])


def _score_or_state(artifact: ListedArtifact) -> str:
    """Return the main scores of an artifact, one per line, or its state if not published."""
    if artifact.state != PUBLISHED:
        return artifact.state
    lines = []
    for name, scores in artifact.scores.items():
        for kind in SCORE_KINDS:
            if kind in scores:
                lines.append(f"{name} {scores[kind]['score']:.2f} {SCORE_NAMES[kind]}")
    return "\n".join(lines)
