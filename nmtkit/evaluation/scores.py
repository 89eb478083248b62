"""Names, formats and tables of scores.

A set of scores is a value of `scores.json`: the scores of one test set, by kind. A score is named
by its kind ("sacrebleu"), or by its kind and a key ("compound_split_bleu.score_quotes_replaced")
where a kind has several values.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from typing import Any

from nmtkit.rendering.grid import Grid, Row, data_cell
from nmtkit.utils.text import counted

NOT_AVAILABLE = "not available"
METHOD_KEYS = ("how", "signature")  # keys of a score that describe its computation
# The kinds of score that are always shown. Others are those of the paper and its time.
MAIN_KINDS = ("sacrebleu", "bracket_f1", "chrf", "ter")
# By target language: the score of a run that is comparable with Table 2.
TABLE_2_SCORES = {"de": "compound_split_bleu.score_quotes_replaced", "fr": "tokenized_bleu"}

# Names of scores, in the order of tables.
SCORE_NAMES = {
    "sacrebleu": "sacreBLEU",
    "bracket_f1": "bracket F1",
    "chrf": "chrF2",
    "ter": "TER",
    "tokenized_bleu": "tokenized BLEU",
    "compound_split_bleu": "compound-split BLEU",
    "compound_split_bleu.score_both_normalized": "compound-split BLEU, both normalized",
    "compound_split_bleu.score_quotes_replaced": "compound-split BLEU, quotes replaced",
}

# Explains the score of TABLE_2_SCORES for German, next to published ones.
GERMAN_NOTE = (
    "English-German: the paper does not state its kind of BLEU; compound-split BLEU with quotes "
    'replaced is inferred from tensor2tensor#317: the reference must have " instead of all '
    "other quotation marks"
)
# The columns of `score_data`.
DATA_COLUMNS = ("test set", "lines", "metric", "score", "low", "high", "method", "signature")


def score_kind(name: str) -> str:
    """Return the kind of a score, such as "compound_split_bleu"."""
    kind, _, _ = name.partition(".")
    return kind


def score_value(scores: Mapping[str, Any], name: str) -> float | None:
    """Return a score from a set of scores; None if it was not computed."""
    kind, _, key = name.partition(".")
    value: float | None = scores.get(kind, {}).get(key or "score")
    return value


def format_score(scores: Mapping[str, Any], name: str, *, with_interval: bool = False) -> str:
    """Return a score as text.

    Args:
        with_interval: Add the confidence interval, if there is one.

    Returns:
        The score; "not available" if its kind was computed by a version that lacked this score;
        "" if its kind was not computed.
    """
    value = score_value(scores, name)
    if value is None:
        return NOT_AVAILABLE if score_kind(name) in scores else ""
    text = f"{value:.2f}"
    interval = scores.get(name, {}).get("confidence_interval")
    if with_interval and interval:
        low, high = interval
        text += f" [{low:z.2f}, {high:.2f}]"  # not -0.00
    return text


def unscored_sentences(scores: Mapping[str, Any]) -> str | None:
    """Return how many sentences bracket F1 leaves out, as text, or None if there are none."""
    score = scores.get("bracket_f1", {})
    n_errors = score.get("errors", 0)
    n_blank = score.get("skipped", 0)
    if not n_errors and not n_blank:
        return None
    return (
        f"bracket F1 leaves out {n_errors + n_blank:,} of {counted(score['sentences'], 'sentence')}"
        f": {counted(n_errors, 'error')}, {n_blank:,} blank"
    )


def score_methods(
    score_sets: Iterable[Mapping[str, Any]], kinds: Iterable[str] = SCORE_NAMES
) -> list[str]:
    """Return one line per method of computing a score, with sacreBLEU's signature.

    Args:
        kinds: Kinds of scores to describe.
    """
    kinds = list(kinds)
    lines = []
    for scores in score_sets:
        for kind in kinds:
            if kind in scores:
                # Scores of earlier versions may lack a key.
                methods = [scores[kind][key] for key in METHOD_KEYS if key in scores[kind]]
                lines.append(f"{SCORE_NAMES[kind]}: {'; '.join(methods)}")
    # Runs that were scored alike have the same line.
    return list(dict.fromkeys(lines))


def score_signatures(score_sets: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return one line with the signatures of the kinds of score that are always shown."""
    signatures = []
    for scores in score_sets:
        for kind in MAIN_KINDS:
            if kind in scores:
                # Bracket F1 has no signature, and a score of an earlier version may lack one.
                signature = scores[kind].get("signature") or scores[kind].get("how", "")
                signatures.append(f"{SCORE_NAMES[kind]} {signature}")
    return [f"signature: {'; '.join(dict.fromkeys(signatures))}"] if signatures else []


def shown_scores(kinds: Container[str], *, all_kinds: bool) -> list[str]:
    """Return the names of the scores that are shown.

    Args:
        kinds: The kinds that were computed.
        all_kinds: Include the kinds of the paper; else only those of today, if there are any.
    """
    names = [name for name in SCORE_NAMES if score_kind(name) in kinds]
    main_names = [name for name in names if score_kind(name) in MAIN_KINDS]
    return names if all_kinds or not main_names else main_names


def score_table(
    scores: Mapping[str, Any], *, all_kinds: bool = False, run: str | None = None
) -> list[Grid | str]:
    """Return a table of scores, followed by a line with their signatures.

    Args:
        scores: The scores of test sets or of systems, by name, in the format of `scores.json`.
        all_kinds: Include the kinds of BLEU of the paper, and describe all kinds.
        run: The system, if these are the test sets of a run.
    """
    columns = ["score"]
    for name, name_scores in scores.items():
        test_set = name_scores["test_set"]
        # A file of translations is not called like its test set.
        prefix = "" if name == test_set["name"] else f"{test_set['name']}, "
        columns.append(f"{name}\n{prefix}{test_set['lines']:,} lines")
    rows: list[Row] = []
    # A score that only some systems have gets a row, with empty cells.
    kinds: set[str] = set()
    for name_scores in scores.values():
        kinds.update(name_scores)
    for key in shown_scores(kinds, all_kinds=all_kinds):
        cells = []
        for name_scores in scores.values():
            cells.append(format_score(name_scores, key, with_interval=True))
        rows.append((SCORE_NAMES[key], *cells))
    data: list[Row] = []
    for name, name_scores in scores.items():
        for row in score_data(name_scores):
            data.append((run or name, *row))
    data_grid = Grid.of("", ("system", *DATA_COLUMNS), data, 1 + len(DATA_COLUMNS))
    grid = replace(Grid.of("", columns, rows, 1), data=data_grid)
    notes = score_methods(scores.values()) if all_kinds else score_signatures(scores.values())
    for name, name_scores in scores.items():
        unscored = unscored_sentences(name_scores)
        if unscored:
            notes.append(f"{name}: {unscored}")
    return [grid, *notes]


def score_data(scores: Mapping[str, Any]) -> list[Row]:
    """Return a row of DATA_COLUMNS for every score of a set of scores.

    Args:
        scores: The scores of a test set, in the format of `scores.json`. `low` and `high` are the
            ends of the confidence interval.
    """
    test_set = scores["test_set"]
    rows: list[Row] = []
    for key in SCORE_NAMES:
        value = score_value(scores, key)
        if value is None:
            continue
        kind = scores[score_kind(key)]
        # Other values of a kind, such as those with quotes replaced, have no interval.
        low, high = scores.get(key, {}).get("confidence_interval") or (None, None)
        row = (
            test_set["name"],
            str(test_set["lines"]),
            key,
            data_cell(value),
            data_cell(low),
            data_cell(high),
            kind.get("how", ""),
            kind.get("signature", ""),
        )
        rows.append(row)
    return rows
