"""Tables on standard output, or JSON for machines."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, TypeVar

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from nmtkit.reporting.attention import AttentionPicture
from nmtkit.reporting.code import OtherCode, all_of, code_note, marked
from nmtkit.reporting.facts import (
    ComparedSystem,
    Comparison,
    Counted,
    Inspection,
    Results,
    SamplePair,
    State,
    Steps,
    StudyTable,
)
from nmtkit.reporting.inspection import (
    Grid,
    corpora_grid,
    held_out_sides,
    left_out,
    lengths_grid,
    round_trip,
    sizes_grid,
    splitting_grid,
    spoken,
    unknown_grid,
    vocabulary_grid,
)
from nmtkit.reporting.scores import SCORE_NAMES, how_counted, kind_of, shown
from nmtkit.reporting.study import cost_grid, study_grid, study_notes, without_changes
from nmtkit.visible import visible

Entry = TypeVar("Entry")

# What bracket F1 comes with.
DETAILS = ("recall", "precision", "complete_match", "average_crossing", "tagging_accuracy")

PIPE_WIDTH = 120  # of a table in a file or a pipe, at most

BLOCKS = " \u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588"  # of rising height
MAX_SPLIT_WORDS = 6  # of an inspection on a terminal; its page shows more


def print_json(value: object) -> None:
    """Print `value` as JSON."""
    print(json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True))


def print_scores(
    scores: Mapping[str, Any], *, as_json: bool, other: OtherCode | None = None
) -> None:
    """Print each score of each test set or system, by its name, and how it was counted.

    Args:
        other: the code that made what is scored, if it is a run's.
    """
    if as_json:
        print_json(scores)
        return
    _print_scores(_console(), scores, other or {})


def print_status(recipe: str, states: Sequence[State], *, as_json: bool) -> None:
    """Print the state of each stage."""
    if as_json:
        print_json({"recipe": recipe, "stages": {state.stage: asdict(state) for state in states}})
        return
    table = _table(
        f"nmtkit status {visible(recipe)}", "stage", "state", "fingerprint", "where or why"
    )
    for state in states:
        where = state.path if state.state == "fresh" else state.why
        shown = marked(state.state, state.other_code)
        table.add_row(state.stage, shown, state.fingerprint or "", visible(where or ""))
    _console().print(table)
    _print_code(*(state.other_code for state in states))


def print_comparison(comparison: Comparison, *, as_json: bool) -> None:
    """Print the scores of systems, what the paired tests say, and where they differ most."""
    if as_json:
        print_json(asdict(comparison))
        return
    console = _console()
    systems = comparison.systems
    table = _table(
        f"{visible(comparison.test_set['name'])}, {comparison.test_set['lines']:,} lines",
        *("score", *(marked(visible(system.name), system.other_code) for system in systems)),
    )
    hows = []
    for metric in systems[0].tests["paired_bootstrap"]:
        results = [system.tests["paired_bootstrap"][metric] for system in systems]
        table.add_row(SCORE_NAMES[metric], *map(_score, results))
        for test in systems[0].tests:
            values = [system.tests[test][metric] for system in systems]
            cells = [
                "" if system.identical else f"{each['p_value']:.4f}"
                for system, each in zip(systems, values, strict=True)
            ]
            table.add_row(f"p, {test.replace('_', ' ')}", *cells)
            hows.append(
                f"{SCORE_NAMES[metric]}, {test.replace('_', ' ')}: {values[0]['signature']}"
            )
        table.add_section()
    untested = [
        key for key in SCORE_NAMES if kind_of(key) in ("tokenized_bleu", "compound_split_bleu")
    ]
    for key in untested:
        if kind_of(key) in systems[0].scores:
            table.add_row(SCORE_NAMES[key], *(shown(system.scores, key) for system in systems))
        if key in systems[0].scores:
            hows.append(f"{SCORE_NAMES[key]}: {how_counted(systems[0].scores[key])}")
    name = SCORE_NAMES[next(iter(systems[0].tests["paired_bootstrap"]))]
    table.add_row(
        f"{name} against the first", "", *(_verdict(each, systems[0]) for each in systems[1:])
    )
    console.print(table)
    _print_code(*(system.other_code for system in systems))
    for how in [*hows, f"seed of the tests: {comparison.seed} (SACREBLEU_SEED)"]:
        console.print(how, soft_wrap=not console.is_terminal)
    if comparison.differences:
        console.print(_differences_table(comparison))


SIGNIFICANT = 0.05  # a p-value below it


def _verdict(system: ComparedSystem, baseline: ComparedSystem) -> str:
    """What both paired tests say of the first metric: sacreBLEU, or bracket F1."""
    if system.identical:
        return "identical"
    metric = next(iter(system.tests["paired_bootstrap"]))
    before = baseline.tests["paired_bootstrap"][metric]["score"]
    results = [test[metric] for test in system.tests.values()]
    if f"{results[0]['score']:.2f}" == f"{before:.2f}":
        return "no difference"
    if any(result["p_value"] >= SIGNIFICANT for result in results):
        return "no significant difference"
    better = "better" if results[0]["score"] > before else "worse"
    return f"{better} (both p < {SIGNIFICANT})"


def _differences_table(comparison: Comparison) -> Table:
    table = _table("where they differ most", "", comparison.sentence_metric, "")
    for each in comparison.differences:
        if each.src is not None:
            table.add_row("source", "", visible(each.src))
        for reference in each.references:
            table.add_row(f"line {each.line:,}", "", visible(reference))
        for system, hyp, score in zip(comparison.systems, each.hyps, each.scores, strict=True):
            table.add_row(visible(system.name), f"{score:.1f}", visible(hyp))
        table.add_section()
    return table


def print_study(table: StudyTable, *, as_json: bool) -> None:
    """Print what each row of a study reached, beside what is published."""
    if as_json:
        print_json(asdict(table))
        return
    console = _console()
    console.print(visible(table.description), soft_wrap=True)
    console.print(_grid_table(without_changes(study_grid(table))))
    if (costs := cost_grid(table)).groups:
        console.print(_grid_table(costs))
    for note in study_notes(table):
        console.print(visible(note), soft_wrap=True)


def _print_code(*others: OtherCode) -> None:
    """Print the line that says which other code made what the table shows."""
    if note := code_note(all_of(*others)):
        _console().print(f"note: {visible(note)}", soft_wrap=True)


def print_results(results: Results, *, as_json: bool) -> None:
    """Print what a run ends with: some translations, what it took, where it lies, and scores."""
    if as_json:
        print_json(asdict(results))
        return
    console = _console()
    samples = _table("some translations of the test set", "", "")
    for sample in results.samples:
        samples.add_row("source", visible(sample.src))
        if sample.reference is not None:
            samples.add_row("reference", visible(sample.reference))
        samples.add_row("nmtkit", visible(sample.hypothesis), end_section=True)
    console.print(samples)
    places = _table("what was made", "stage", "", "where")
    for stage in results.stages:
        places.add_row(stage.name, marked(stage.summary, stage.other_code), stage.path)
    console.print(places)
    other = all_of(*(stage.other_code for stage in results.stages))
    _print_scores(console, results.scores, other)
    _print_code(other)


def print_inspection(inspection: Inspection, *, as_json: bool) -> None:
    """Print what a prepared corpus holds; of samples, the first of each corpus and reason."""
    if as_json:
        print_json(asdict(inspection))
        return
    console = _console()
    where = marked(visible(inspection.path), inspection.other_code)
    console.print(f"nmtkit inspect {inspection.recipe}: {where}", soft_wrap=True)
    _print_code(inspection.other_code)
    console.print(_grid_table(corpora_grid(inspection)))
    console.print(_grid_table(sizes_grid(inspection)))
    console.print(left_out(inspection), soft_wrap=True)
    if ceiling := round_trip(inspection):
        console.print(ceiling, soft_wrap=True)
    console.print(_lengths_table(inspection))
    console.print(_grid_table(vocabulary_grid(inspection)))
    console.print(_grid_table(splitting_grid(inspection)))
    console.print(_grid_table(unknown_grid(inspection)))
    console.print(_words_table(inspection))
    for pair in _first_of_each(inspection.samples, lambda pair: pair.corpus):
        console.print(_sample_table(pair, inspection.normalizing))
    if inspection.dropped:
        console.print(_dropped_table(inspection))


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


def _lengths_table(inspection: Inspection) -> Table:
    """The quantiles, each with its histogram."""
    grid = lengths_grid(inspection)
    histograms = [
        [*(side.histogram for side in split.sides), split.ratio_histogram]
        for split in inspection.splits
    ]
    groups = [
        [(*row, _blocks(histogram.counts)) for row, histogram in zip(*both, strict=True)]
        for both in zip(grid.groups, histograms, strict=True)
    ]
    longest = histograms[0][0].starts[-1]
    shown = f"1 to {longest:,.0f} and more; ratios 1/4 to 4"
    table = _grid_table(replace(grid, columns=(*grid.columns, shown), groups=groups))
    table.columns[-1].justify = "left"
    return table


def _blocks(counts: Sequence[int]) -> str:
    """A histogram on one line; what is not empty is seen."""
    top = max(counts)
    return "".join(BLOCKS[-(-count * (len(BLOCKS) - 1) // top)] for count in counts)


def _words_table(inspection: Inspection) -> Table:
    vocabulary = inspection.vocabulary
    table = _table("subwords and words", "", "")
    table.add_row("most frequent subwords of train", _counted(vocabulary.most_frequent))
    table.add_row("rarest that occur in train", _counted(vocabulary.rarest), end_section=True)
    for side in inspection.splitting:
        split = [
            " ".join(word.pieces) + (" ..." if word.n_pieces > len(word.pieces) else "")
            for word in side.most_split[:MAX_SPLIT_WORDS]
        ]
        table.add_row(f"{side.lang}: frequent in dev and whole", _counted(side.whole))
        table.add_row(
            f"{side.lang}: of most pieces", "\n".join(map(visible, split)), end_section=True
        )
    for name, held_out in held_out_sides(inspection):
        if held_out.unknown_words:
            table.add_row(f"{name} {held_out.lang}: unknown in", _counted(held_out.unknown_words))
    return table


def _counted(words: Sequence[Counted]) -> str:
    return "  ".join(f"{visible(word.text)} {word.count:,}" for word in words)


def _sample_table(pair: SamplePair, normalizing: str) -> Table:
    table = _table(f"{visible(pair.corpus)}, line {pair.line:,}", "", "", "")
    for number, name in enumerate(("raw", normalizing, "tokens", "subwords", "ids")):
        if name:
            table.add_row(name, pair.src.lang, visible(_step_texts(pair.src)[number]))
            table.add_row("", pair.tgt.lang, visible(_step_texts(pair.tgt)[number]))
            table.add_section()
    return table


def _step_texts(steps: Steps) -> tuple[str, ...]:
    not_shown = f" (and {steps.n_left_out:,} more characters)" if steps.n_left_out else ""
    more = f" (and {steps.n_ids - len(steps.ids):,} more)" if steps.n_ids > len(steps.ids) else ""
    return (
        steps.raw + not_shown,
        steps.normalized,
        steps.tokens,
        " ".join(steps.pieces) + more,
        " ".join(map(str, steps.ids)) + more,
    )


def _first_of_each(entries: Sequence[Entry], key: Callable[[Entry], str]) -> list[Entry]:
    first: dict[str, Entry] = {}
    for entry in entries:
        first.setdefault(key(entry), entry)
    return list(first.values())


def _dropped_table(inspection: Inspection) -> Table:
    table = _table("a dropped pair of each reason", "reason", "where", "")
    for pair in _first_of_each(inspection.dropped, lambda pair: pair.reason):
        table.add_row(
            visible(spoken(pair.reason)),
            f"{visible(pair.corpus)}, line {pair.line:,}",
            f"{visible(pair.src)}\n{visible(pair.tgt)}",
            end_section=True,
        )
    return table


def _print_scores(console: Console, scores: Mapping[str, Any], other: OtherCode) -> None:
    """Print a table with one row a score, then how each was counted.

    There is one column a test set, or one a system if several were scored on one set.
    """
    columns = [marked(_score_column(name, each), other) for name, each in scores.items()]
    table = _table(None, "score", *columns)
    hows: list[str] = []
    for key, name in SCORE_NAMES.items():
        of_sets = [each[key] for each in scores.values() if key in each]
        if of_sets:
            table.add_row(name, *map(_score, of_sets))
            if key == "bracket_f1":
                _add_details(table, of_sets)
        elif any(kind_of(key) in each for each in scores.values()):
            table.add_row(name, *(shown(each, key) for each in scores.values()))
        hows += dict.fromkeys(f"{name}: {how_counted(each)}" for each in of_sets)
    console.print(table)
    for how in hows:
        console.print(how, soft_wrap=not console.is_terminal)


def _add_details(table: Table, of_sets: Sequence[Mapping[str, Any]]) -> None:
    """Add what EVALB prints besides F1, each of all sentences and of short ones."""
    [short] = [key for key in of_sets[0] if key.startswith("up_to_")]
    table.add_row(f"  {short.replace('_', ' ')}", *(f"{each[short]['f1']:.2f}" for each in of_sets))
    for key in DETAILS:
        pairs = [(each[key], each[short][key]) for each in of_sets]
        shown = [f"{of_all:.2f} ({of_short:.2f})" for of_all, of_short in pairs]
        table.add_row(f"  {key.replace('_', ' ')} ({short.replace('_', ' ')})", *shown)
    for key in ("errors", "skipped", "repaired"):
        if all(key in each for each in of_sets):
            table.add_row(f"  {key}", *(f"{each[key]:,}" for each in of_sets))


def _score_column(name: str, scores: Mapping[str, Any]) -> str:
    test_set = scores["test_set"]
    of_set = "" if name == test_set["name"] else f"{visible(test_set['name'])}, "
    return f"{visible(name)}\n{of_set}{test_set['lines']:,} lines"


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


def print_attention(picture: AttentionPicture, *, as_json: bool) -> None:
    """Print the heads that were found, or all weights as JSON."""
    if as_json:
        print_json(picture.model_dump(mode="json"))
        return
    table = _table(visible(picture.target), "found", "value", "where", "measure")
    for finding in picture.findings:
        where = finding.view.title
        if finding.view.query is not None:
            words, _ = picture.words(finding.view.kind)
            where += f", {visible(words[finding.view.query - 1])}"
        table.add_row(finding.name, f"{finding.value:.3f}", where, finding.measure)
    _console().print(table)
