"""nmtkit runs, and the artifacts of a folder."""

from nmtkit.cli.options import command
from nmtkit.config.settings import Settings
from nmtkit.reporting.artifacts import artifacts_grid
from nmtkit.reporting.scores import SCORE_NAMES, hows
from nmtkit.reporting.show import Form, show
from nmtkit.stages.listing import (
    PUBLISHED,
    ListedArtifact,
    list_artifacts,
    published_artifacts,
)
from nmtkit.stages.pipeline import warn_of_other_code

SET_SCORES = ("sacrebleu", "bracket_f1")  # the scores that sum up a test set


@command("nmtkit runs")
def runs(settings: Settings, form: Form) -> None:
    listed = list(list_artifacts(settings.runs_dir))
    warn_of_other_code(published_artifacts(listed))
    if not listed:
        missing = (
            f"there is nothing in {settings.runs_dir} yet; `nmtkit run demo` makes a first run"
        )
        show(form, listed, [missing])
        return
    set_scores = [scores for artifact in listed for scores in artifact.scores.values()]
    remarks = [(artifact, _score_or_state(artifact)) for artifact in listed]
    table = artifacts_grid("", remarks, "score or state")
    show(form, listed, [table, *hows(set_scores, SET_SCORES)])


def _score_or_state(artifact: ListedArtifact) -> str:
    if artifact.state != PUBLISHED:
        return artifact.state
    lines: list[str] = []
    for name, scores in artifact.scores.items():
        kinds = [kind for kind in SET_SCORES if kind in scores]
        lines += [f"{name} {scores[kind]['score']:.2f} {SCORE_NAMES[kind]}" for kind in kinds]
    return "\n".join(lines)
