"""A comparison of systems as tables and a page."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nmtkit.analysis.ranked_lines import lines_grid
from nmtkit.evaluation.scores import (
    DATA_COLUMNS,
    SCORE_NAMES,
    format_score,
    score_data,
    score_kind,
    score_methods,
    score_signatures,
    shown_scores,
    unscored_sentences,
)
from nmtkit.evaluation.significance import N_SAMPLES, TESTS, TIES
from nmtkit.rendering.chart import short_labels
from nmtkit.rendering.document import Part
from nmtkit.rendering.grid import Grid, Row, data_cell
from nmtkit.utils.text import counted

Comparison = Mapping[str, Any]  # as `compare_systems` returns it

UNTESTED_KINDS = ("tokenized_bleu", "compound_split_bleu")  # the paired tests do not cover them
N_TERMINAL_LINES = 5  # differences on a terminal
SIGNIFICANCE_LEVEL = 0.05


def comparison_page(comparison: Comparison, *, all_kinds: bool) -> Part:
    """Return a comparison as a page.

    Args:
        all_kinds: Include the kinds of BLEU of the paper, and describe all kinds.
    """
    lines = comparison["differences"]
    metric = comparison["sentence_metric"]
    text = "None."
    if lines:
        text = f"The lines whose {metric} differs most. Colour marks the words that differ."
    return Part(
        "compare",
        "nmtkit compare",
        f"Systems on {comparison['test_set']['name']}",
        parts=[
            Part(
                "scores",
                "Scores",
                table=scores_grid(comparison, all_kinds=all_kinds),
                notes=comparison_notes(comparison, all_kinds=all_kinds),
            ),
            Part(
                "differences",
                "Differences",
                text,
                table=differences_grid(comparison, len(lines), "text"),
            ),
        ],
    )


def comparison_parts(comparison: Comparison, *, all_kinds: bool) -> list[Grid | str]:
    """Return a comparison for standard output, with the same kinds of scores as on the page."""
    parts: list[Grid | str] = [scores_grid(comparison, all_kinds=all_kinds)]
    parts += comparison_notes(comparison, all_kinds=all_kinds)
    head = "where they differ most, [in other words]"
    differences = differences_grid(comparison, N_TERMINAL_LINES, head)
    if differences is not None:
        parts.append(differences)
    return parts


def scores_grid(comparison: Comparison, *, all_kinds: bool) -> Grid:
    """Return the scores, the p-values of the paired tests, and the verdicts."""
    systems = comparison["systems"]
    baseline = systems[0]
    # The metrics are the same in both tests.
    tested_metrics = list(baseline["tests"]["paired_bootstrap"])
    rows: list[Row] = []
    for metric in tested_metrics:
        name = SCORE_NAMES[metric]
        cells = []
        for system in systems:
            results = system["tests"]["paired_bootstrap"]
            cells.append(format_score(results, metric, with_interval=True))
        rows.append((name, *cells))
        for test in baseline["tests"]:
            cells = []
            for system in systems:
                # The baseline, and systems identical to it, have no p-value.
                result = system["tests"][test][metric]
                cells.append("" if system["identical"] else f"{result['p_value']:.4f}")
            rows.append((f"{name}, p of {test.replace('_', ' ')}", *cells))
    for score in shown_scores(baseline["scores"], all_kinds=all_kinds):
        if score_kind(score) in UNTESTED_KINDS:
            cells = [format_score(system["scores"], score) for system in systems]
            rows.append((SCORE_NAMES[score], *cells))
    verdicts = [verdict(system, baseline) for system in systems[1:]]
    rows.append((f"{SCORE_NAMES[tested_metrics[0]]} against the first", "", *verdicts))
    test_set = comparison["test_set"]
    title = f"{test_set['name']}, {test_set['lines']:,} lines"
    columns = ("score", *system_labels(comparison))
    grid = Grid(title, columns, 1, [[row] for row in rows])
    return replace(grid, data=comparison_data(comparison))


def system_labels(comparison: Comparison) -> list[str]:
    """Return short names of the systems: the overrides of a recipe that others do not have."""
    labels = []
    for system in comparison["systems"]:
        words: list[str] = []
        for word in system["name"].split(" --set "):
            # Overrides have no section: beam_size=1. A file keeps its whole path.
            words.append(word.strip().partition(".")[2] if words else word)
        labels.append([" ".join(words)])
    return short_labels(labels)


def comparison_data(comparison: Comparison) -> Grid:
    """Return the scores and p-values of all systems as data: a row for every score."""
    tests = list(comparison["systems"][0]["tests"])
    columns = ("system", *DATA_COLUMNS, *(f"p of {test.replace('_', ' ')}" for test in tests))
    rows: list[Row] = []
    for system in comparison["systems"]:
        tested = system["tests"]["paired_bootstrap"]
        scores = {**system["scores"], "test_set": comparison["test_set"]}
        for metric, result in tested.items():  # with an interval
            scores[metric] = {**scores.get(metric, {}), **result}
        for row in score_data(scores):
            metric = row[DATA_COLUMNS.index("metric")]
            p_values = []
            for test in tests:
                # The baseline, and systems identical to it, have no p-value.
                result = system["tests"][test].get(metric, {})
                p_value = None if system["identical"] else result.get("p_value")
                p_values.append(data_cell(p_value))
            rows.append((system["name"], *row, *p_values))
    return Grid.of("", columns, rows, len(columns))


def comparison_notes(comparison: Comparison, *, all_kinds: bool) -> list[str]:
    """Return the signatures of the scores and of the tests, and the hash of the reference.

    Args:
        all_kinds: Describe every score and test on a line of its own.
    """
    baseline = comparison["systems"][0]
    notes = []
    for label, system in zip(system_labels(comparison), comparison["systems"], strict=True):
        if label != system["name"]:
            notes.append(f"{label}: {system['name']}")
        if unscored := unscored_sentences(system["scores"]):
            notes.append(f"{label}: {unscored}")
    test_notes = []
    has_ties = False
    for metric in baseline["tests"]["paired_bootstrap"]:
        for test, results in baseline["tests"].items():
            signature = results[metric]["signature"]
            test_notes.append(f"{SCORE_NAMES[metric]}, {test.replace('_', ' ')}: {signature}")
            has_ties |= ":".join(TIES) in signature
    notes += test_notes if all_kinds else score_signatures([baseline["tests"]["paired_bootstrap"]])
    if has_ties:
        notes.append(
            f"{':'.join(TIES)}: samples with exactly the difference of the systems count half; "
            "sacreBLEU does not count them, and its p-values are lower"
        )
    if all_kinds:
        # The signatures above are those of paired tests, and these do not cover all kinds of BLEU.
        notes += score_methods([baseline["scores"]], UNTESTED_KINDS)
    samples = []
    for test in baseline["tests"]:
        n_samples = N_SAMPLES[TESTS[test]]
        samples.append(f"{test.replace('_', ' ')}, {counted(n_samples, 'sample')}")
    notes.append(f"tests: {'; '.join(samples)}; seed {comparison['seed']} (SACREBLEU_SEED)")
    notes.append(f"sha256 of the reference: {comparison['test_set']['sha256']}")
    return notes


def verdict(system: Mapping[str, Any], baseline: Mapping[str, Any]) -> str:
    """Return the verdict of both paired tests on the first metric: sacreBLEU, or bracket F1.

    Args:
        baseline: Results of the first system.
    """
    if system["identical"]:
        return "identical"
    # A difference counts only if both tests find it significant.
    metric, baseline_result = next(iter(baseline["tests"]["paired_bootstrap"].items()))
    for results in system["tests"].values():
        if results[metric]["p_value"] >= SIGNIFICANCE_LEVEL:
            return "no significant difference"
    score = system["tests"]["paired_bootstrap"][metric]["score"]
    word = "better" if score > baseline_result["score"] else "worse"
    return f"{word} (both p < {SIGNIFICANCE_LEVEL})"


def differences_grid(comparison: Comparison, n: int, head: str) -> Grid | None:
    """Return the lines where the systems differ most; None if they do not differ.

    Args:
        n: Maximum number of lines.
        head: Head of the column of texts.
    """
    lines = comparison["differences"][:n]
    if not lines:
        return None
    return lines_grid(lines, system_labels(comparison), head, comparison["sentence_metric"])
