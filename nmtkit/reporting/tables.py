"""Tables on standard output, or JSON for machines."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeVar

from rich.cells import cell_len
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from nmtkit.duration import duration
from nmtkit.reporting.code import OtherCode, all_of, code_note, marked
from nmtkit.reporting.facts import (
    Check,
    CorpusEntry,
    Garbage,
    Made,
    Plan,
    Results,
    State,
    TrainingSpeed,
    TranslationSpeed,
    Verified,
)
from nmtkit.reporting.grid import Grid
from nmtkit.reporting.layers import LAYERS_NOTES, LayerTable, costs_grid, steps_grid
from nmtkit.reporting.scores import SCORE_NAMES, how_counted, kind_of, shown
from nmtkit.visible import visible

Entry = TypeVar("Entry")

PIPE_WIDTH = 120  # of a table in a file or a pipe, at most


def print_json(value: object) -> None:
    """Print `value` as JSON."""
    print(json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True))


def print_recipes(recipes: Sequence[tuple[str, str, str, str]], *, as_json: bool) -> None:
    """Print each recipe and study: its name, what it is, and its file."""
    if as_json:
        keys = ("kind", "name", "description", "path")
        print_json([dict(zip(keys, recipe, strict=True)) for recipe in recipes])
        return
    for kind, group in groupby(recipes, key=itemgetter(0)):
        table = _table(None, kind, "what it is", "file")
        for _, *row in group:
            table.add_row(*row)
        _console().print(table)


def print_corpora(corpora: Sequence[CorpusEntry], *, as_json: bool) -> None:
    """Print each corpus with its pairs and its files, a table for each licence."""
    if as_json:
        print_json({"corpora": [asdict(corpus) for corpus in corpora]})
        return
    console = _console()
    for licence, group in groupby(corpora, key=lambda corpus: corpus.licence):
        table = _table(licence, "corpus", "pairs", "size", "state", "hash")
        for corpus in group:
            files = corpus.files
            columns = (
                [f"{langs} {_count(count)}" for langs, count in corpus.n_pairs.items()],
                ["?" if file.n_bytes is None else decimal(file.n_bytes) for file in files],
                [file.state for file in files],
                [file.hash for file in files],
            )
            table.add_row(corpus.name, *("\n".join(column) for column in columns))
        console.print(table)


def print_made(made: Sequence[Made], *, as_json: bool) -> None:
    """Print what there is of runs, and what it takes."""
    if as_json:
        print_json([asdict(each) for each in made])
        return
    console = _console()
    console.print(_made_table(None, made, _states))
    _print_code(*(each.other_code for each in made))
    hows = (
        f"{key}: {how_counted(score)}"
        for each in made
        for key, score in _first_scores(each).values()
    )
    for how in dict.fromkeys(hows):
        console.print(how, soft_wrap=not console.is_terminal)


def print_garbage(garbage: Garbage) -> None:
    """Print what is kept although no recipe may need it, then what is freed."""
    console = _console()
    kept = [each for each in garbage.kept if garbage.why[each.path] != "needed"]
    for title, made in (("kept", kept), ("to be freed", garbage.freed)):
        if made:
            console.print(_made_table(title, made, lambda each: garbage.why[each.path]))


def print_verified(verified: Sequence[Verified], *, as_json: bool) -> None:
    """Print what was hashed again, then every difference."""
    if as_json:
        print_json([asdict(each) for each in verified])
        return
    console = _console()
    table = _table(None, "what", "as published?", "where")
    for each in verified:
        n = len(each.differences)
        shown = marked(f"no: {n:,} differ" if n else "yes", each.other_code)
        table.add_row(each.what, shown, visible(each.path))
    console.print(table)
    _print_code(*(each.other_code for each in verified))
    for each in verified:
        for difference in each.differences:
            console.print(visible(difference), soft_wrap=True)


def print_checks(checks: Iterable[Check], *, as_json: bool) -> list[Check]:
    """Print each check as it is made, or all as JSON, and return them."""
    if as_json:
        made = list(checks)
        print_json([asdict(each) for each in made])
        return made
    made = []
    console = _console()
    for each in checks:
        made.append(each)
        line = f"{each.state:<8} {each.what:<16} {each.seen}"
        console.print(visible(line), soft_wrap=True, markup=False)
    return made


def _made_table(title: str | None, made: Sequence[Made], last: Callable[[Made], str]) -> Table:
    table = _table(title, "run", "stage", "fingerprint", "size", "age", "")
    for each in made:
        run = "?" if each.run is None else visible(each.run)
        age = duration(each.age_seconds)
        row = (run, each.stage, each.fingerprint, decimal(each.n_bytes), age)
        table.add_row(*row, "\n".join(map(visible, last(each).split("\n"))))
    return table


def _states(made: Made) -> str:
    """The scores of a finished run, or what is not as it should be."""
    if made.state != "published":
        return made.state
    scores = [
        f"{name} {score['score']:.2f} {key}" for name, (key, score) in _first_scores(made).items()
    ]
    return marked("\n".join(scores), made.other_code)


def _first_scores(made: Made) -> dict[str, tuple[str, Any]]:
    """Return the score that sums up each test set, with its name."""
    return {
        name: (SCORE_NAMES[key], each[key])
        for name, each in made.scores.items()
        for key in ("sacrebleu", "bracket_f1")
        if key in each
    }


def _print_code(*others: OtherCode) -> None:
    """Print the line that says which other code made what the table shows."""
    if note := code_note(all_of(*others)):
        _console().print(f"note: {visible(note)}", soft_wrap=True)


def _count(count: int | None) -> str:
    return "?" if count is None else f"{count:,}"


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
    _print_code(*(stage.other_code for stage in plan.stages))
    if plan.downloads:
        downloads = _table("downloads", "url", "bytes", "state")
        for download in plan.downloads:
            state = "there" if download.is_here else "to fetch"
            n_bytes = "unknown" if download.n_bytes is None else f"{download.n_bytes:,}"
            downloads.add_row(download.url, n_bytes, state)
        console.print(downloads)
    costs = _table("what it takes", "", "")
    for name, value in plan.rows():
        costs.add_row(name, value)
    console.print(costs)


def _grid_table(grid: Grid) -> Table:
    table = _table(grid.title, *grid.columns)
    for column in table.columns[grid.n_labels :]:
        column.justify = "right"
    for group in grid.groups:
        for number, row in enumerate(group):
            label = row[0] if number == 0 else ""
            table.add_row(visible(label), *map(visible, row[1:]))
        if len(group) > 1:
            table.add_section()
    return table


def _score(score: Mapping[str, Any]) -> str:
    shown = f"{score['score']:.2f}"
    if interval := score.get("confidence_interval"):
        shown += f" [{interval[0]:.2f}, {interval[1]:.2f}]"
    return shown


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
    """Return standard output, of constant width if it is not a terminal."""
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    return console


def print_training_speeds(speeds: Sequence[TrainingSpeed], *, as_json: bool) -> None:
    """Print how fast each recipe's model trains here, and where a step's time goes."""
    if as_json:
        print_json([asdict(speed) for speed in speeds])
        return
    for recipe, group in groupby(speeds, key=lambda speed: speed.recipe):
        _console().print(_speed_table(recipe, list(group)))


def print_translation_speeds(speeds: Sequence[TranslationSpeed], *, as_json: bool) -> None:
    """Print how fast a bundle translates here."""
    if as_json:
        print_json([asdict(speed) for speed in speeds])
        return
    (first, *_) = speeds
    on = first.device if first.device != "CPU" else f"CPU, {first.threads} threads"
    table = _table(
        f"{first.sentences:,} sentences on {on}",
        "engine",
        "precision",
        "beam",
        "batch",
        "sentences/s",
        "tokens/s",
        "useful GFLOP/s",
        "share of peak",
        "memory",
        "load, s",
    )
    for column in table.columns[1:]:
        column.justify = "right"
    for speed in speeds:
        table.add_row(
            speed.engine,
            speed.dtype,
            f"{speed.beam_size:,}",
            f"{speed.batch:,}",
            f"{speed.sentences_per_second:,.1f}",
            f"{speed.tokens_per_second:,.0f}",
            f"{speed.flops / 1e9:,.0f}",
            f"{speed.share_of_peak:.1%} {speed.peak_of}",
            decimal(speed.peak_bytes),
            f"{speed.load_seconds:.2f}",
        )
    _console().print(table)


def print_layers(table: LayerTable, *, as_json: bool) -> None:
    """Print Table 1 as it was measured."""
    if as_json:
        print_json(table.model_dump(mode="json"))
        return
    console = _console()
    console.print(_grid_table(costs_grid(table)))
    console.print(_grid_table(steps_grid(table)))
    for note in LAYERS_NOTES:
        console.print(f"- {note}", soft_wrap=True)


def _speed_table(recipe: str, speeds: Sequence[TrainingSpeed]) -> Table:
    """One column for each way to train the recipe's model."""
    table = _table(f"training speed of {visible(recipe)}", "", *(speed.way for speed in speeds))
    for column in table.columns[1:]:
        column.justify = "right"
    rows: list[tuple[str, Callable[[TrainingSpeed], str]]] = [
        ("target tokens/s", lambda s: f"{s.tgt_tokens_per_second:,.0f}"),
        ("target tokens an update", lambda s: f"{s.tgt_tokens_per_update:,.0f}"),
        ("updates timed", lambda s: f"{s.steps:,}"),
        ("parameters", lambda s: f"{s.n_parameters:,}"),
        ("useful TFLOP/s", lambda s: f"{s.flops / 1e12:.3g}"),
        ("MFU", lambda s: f"{s.mfu:.1%}"),
        ("of", lambda s: s.peak_of),
        ("peak memory", lambda s: decimal(s.peak_bytes)),
        ("seconds to start", lambda s: f"{s.start_seconds:.1f}"),
        ("fill of rows", lambda s: f"{s.fill:.1%}"),
        ("text", lambda s: s.text),
        ("on", lambda s: s.device if s.device != "CPU" else f"CPU, {s.threads} threads"),
    ]
    for name, value in rows:
        table.add_row(name, *map(value, speeds))
    table.add_section()
    for part in speeds[0].parts:
        table.add_row(f"time: {part}", *(f"{speed.parts[part]:.1%}" for speed in speeds))
    return table
