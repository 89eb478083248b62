"""nmtkit runs."""

from typing import Any

from nmtkit.cli.known_runs import Made, made, made_grid
from nmtkit.cli.options import command
from nmtkit.machine import Machine
from nmtkit.reporting.code import all_of, code_note, marked
from nmtkit.reporting.scores import SCORE_NAMES, how_counted
from nmtkit.reporting.show import Form, show


@command("nmtkit runs")
def runs(machine: Machine, form: Form) -> None:
    """List all artifacts: run, stage, size, age, score."""
    found = list(made(machine.runs_dir))
    note = code_note(all_of(*(each.other_code for each in found)))
    hows = [
        f"{key}: {how_counted(score)}"
        for each in found
        for key, score in _first_scores(each).values()
    ]
    table = made_grid("", [(each, _told(each)) for each in found], "score or state")
    none = f"there is nothing in {machine.runs_dir} yet; `nmtkit run demo` makes a first run"
    notes = [f"note: {note}"] if note else []
    show(form, found, [table, *notes, *dict.fromkeys(hows)] if found else [none])


def _told(made: Made) -> str:
    """Return the scores of a finished run, or what is not as it should be."""
    if made.state != "published":
        return made.state
    scores = (
        f"{name} {score['score']:.2f} {key}" for name, (key, score) in _first_scores(made).items()
    )
    return marked("\n".join(scores), made.other_code)


def _first_scores(made: Made) -> dict[str, tuple[str, Any]]:
    """Return the score that sums up each test set, with its name."""
    return {
        name: (SCORE_NAMES[key], of_set[key])
        for name, of_set in made.scores.items()
        for key in ("sacrebleu", "bracket_f1")
        if key in of_set
    }
