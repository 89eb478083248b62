"""Tables on standard output, or JSON for machines."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from nmtkit.reporting.facts import Plan, Results, State

SCORE_NAMES = {
    "sacrebleu": "sacreBLEU",
    "tokenized_bleu": "tokenized BLEU",
    "compound_split_bleu": "compound-split BLEU",
}

PIPE_WIDTH = 100_000  # characters; a table takes what it needs of them


def print_json(value: object) -> None:
    """Print `value` as JSON."""
    print(json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True))


def print_scores(scores: Mapping[str, Any], *, as_json: bool) -> None:
    """Print each BLEU with its kind, how it was counted, and the test set."""
    if as_json:
        print_json(scores)
        return
    _console().print(_score_table(scores))


def print_status(recipe: str, states: Sequence[State], *, as_json: bool) -> None:
    """Print the state of each stage."""
    if as_json:
        print_json({"recipe": recipe, "stages": {state.stage: asdict(state) for state in states}})
        return
    table = _table(f"nmtkit status {recipe}", "stage", "state", "fingerprint", "where or why")
    for state in states:
        where = state.path if state.state == "fresh" else state.why
        table.add_row(state.stage, state.state, state.fingerprint or "", where or "")
    _console().print(table)


def print_recipes(recipes: Sequence[tuple[str, str, str]]) -> None:
    """Print the name of each recipe, what it is, and its file."""
    table = _table(None, "recipe", "what it is", "file")
    for row in recipes:
        table.add_row(*row)
    _console().print(table)


def print_plan(plan: Plan, *, as_json: bool) -> None:
    """Print what would run and what it costs."""
    if as_json:
        print_json(asdict(plan))
        return
    console = _console()
    stages = _table(f"nmtkit plan {plan.recipe}", "stage", "would it run?", "why")
    for stage in plan.stages:
        stages.add_row(stage.stage, "no" if stage.state == "fresh" else "yes", stage.why)
    console.print(stages)
    if plan.downloads:
        downloads = _table("downloads", "url", "bytes", "state")
        for download in plan.downloads:
            state = "there" if download.is_here else "to fetch"
            downloads.add_row(download.url, f"{download.n_bytes:,}", state)
        console.print(downloads)
    costs = _table("what it takes", "", "")
    for name, value in plan.rows():
        costs.add_row(name, value)
    console.print(costs)


def print_results(results: Results) -> None:
    """Print what a run ends with: some translations, what it took, where it lies, and scores."""
    console = _console()
    samples = _table("some translations of the test set", "", "")
    for sample in results.samples:
        samples.add_row("source", sample.src)
        samples.add_row("reference", sample.reference)
        samples.add_row("nmtkit", sample.hypothesis, end_section=True)
    console.print(samples)
    places = _table("what was made", "stage", "", "where")
    for stage in results.stages:
        places.add_row(stage.name, stage.summary, stage.path)
    console.print(places)
    console.print(_score_table(results.scores))


def _score_table(scores: Mapping[str, Any]) -> Table:
    test_set = scores["test_set"]
    title = f"{test_set['name']}, {test_set['lines']:,} lines"
    table = _table(title, "score", "", "how it was counted")
    for key, name in SCORE_NAMES.items():
        score = scores[key]
        shown = f"{score['score']:.2f}"
        if interval := score.get("confidence_interval"):
            shown += f" [{interval[0]:.2f}, {interval[1]:.2f}]"
        how = score["how"] + (f"; {score['signature']}" if "signature" in score else "")
        table.add_row(name, shown, how)
    return table


def _table(title: str | None, *columns: str) -> Table:
    table = Table(
        title=title,
        title_justify="left",
        show_header=any(columns),
        min_width=cell_len(title or "") + 1,  # or else a long title is folded
    )
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _console() -> Console:
    """Standard output; where it is no terminal, so wide that nothing is folded."""
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    return console
