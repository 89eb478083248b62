"""A comparison of systems as tables and a page."""

from collections.abc import Mapping
from typing import Any

from nmtkit.analysis.lines import lines_grid
from nmtkit.reporting.document import Part
from nmtkit.reporting.grid import Grid, Row
from nmtkit.reporting.scores import SCORE_NAMES, format_score, score_kind, score_methods

Comparison = Mapping[str, Any]  # as `compare_systems` returns it

UNTESTED_KINDS = ("tokenized_bleu", "compound_split_bleu")  # the paired tests do not cover them
N_TERMINAL_LINES = 5  # differences on a terminal
SIGNIFICANCE_LEVEL = 0.05


def comparison_page(comparison: Comparison) -> Part:
    """Return a comparison as a page."""
    differences = differences_grid(comparison, len(comparison["differences"]))
    return Part(
        "compare",
        "nmtkit compare",
        f"Systems on {comparison['test_set']['name']}",
        parts=[
            Part(
                "scores",
                "Scores",
                table=scores_grid(comparison),
                notes=comparison_notes(comparison),
            ),
            Part(
                "differences",
                "Differences",
                "" if differences else "None.",
                table=differences,
            ),
        ],
    )


def comparison_parts(comparison: Comparison) -> list[Grid | str]:
    """Return a comparison for standard output."""
    parts: list[Grid | str] = [scores_grid(comparison)]
    parts += comparison_notes(comparison)
    differences = differences_grid(comparison, N_TERMINAL_LINES)
    if differences is not None:
        parts.append(differences)
    return parts


def scores_grid(comparison: Comparison) -> Grid:
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
    for score, name in SCORE_NAMES.items():
        kind = score_kind(score)
        if kind in UNTESTED_KINDS and kind in baseline["scores"]:
            cells = [format_score(system["scores"], score) for system in systems]
            rows.append((name, *cells))
    verdicts = [verdict(system, baseline) for system in systems[1:]]
    rows.append((f"{SCORE_NAMES[tested_metrics[0]]} against the first", "", *verdicts))
    test_set = comparison["test_set"]
    title = f"{test_set['name']}, {test_set['lines']:,} lines"
    head = ["score"]
    head += [system["name"] for system in systems]
    return Grid.of(title, head, rows, 1)


def comparison_notes(comparison: Comparison) -> list[str]:
    """Return the signatures of all scores and tests, and the hash of the reference."""
    baseline = comparison["systems"][0]
    notes = []
    for metric in baseline["tests"]["paired_bootstrap"]:
        for test, results in baseline["tests"].items():
            signature = results[metric]["signature"]
            notes.append(f"{SCORE_NAMES[metric]}, {test.replace('_', ' ')}: {signature}")
    notes += score_methods([baseline["scores"]], UNTESTED_KINDS)
    notes.append(f"sha256 of the reference: {comparison['test_set']['sha256']}")
    notes.append(f"seed of the tests: {comparison['seed']} (SACREBLEU_SEED)")
    return notes


def verdict(system: Mapping[str, Any], baseline: Mapping[str, Any]) -> str:
    """Return the verdict of both paired tests on the first metric: sacreBLEU, or bracket F1.

    Args:
        system: Results of a system.
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


def differences_grid(comparison: Comparison, n: int) -> Grid | None:
    """Return the first `n` lines where the systems differ most; None if they do not differ."""
    lines = comparison["differences"][:n]
    if not lines:
        return None
    names = [system["name"] for system in comparison["systems"]]
    head = "where they differ most, [in other words]"
    return lines_grid(lines, names, head, comparison["sentence_metric"])
