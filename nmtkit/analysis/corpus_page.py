"""The statistics of a corpus as tables, histograms and a page."""

from collections.abc import Sequence

from nmtkit.analysis.corpus import QUANTILES, Statistics
from nmtkit.corpus.prepared import SIDES, SPLITS
from nmtkit.rendering.chart import Axis, Chart, Series
from nmtkit.rendering.document import Part
from nmtkit.rendering.grid import Grid, Row

# The steps of preparation, by their names in tables: keys of a sample.
STEPS = {"raw": "raw", "words": "words", "subwords": "marked_subwords", "ids": "ids"}


def corpus_page(statistics: Statistics) -> Part:
    """Return all statistics as a page.

    Of the samples of a corpus, and of the pairs dropped for a reason, the first one is open and
    the others are folded.
    """
    dropped = _pair_parts(statistics, "dropped", "reason")
    vocabulary = _vocabulary_grid(statistics)
    # A corpus that would have to be downloaded has no first pairs here.
    first_pairs = []
    if statistics["first_pairs"]:
        code = "\n".join(statistics["first_pairs"])
        first_pairs.append(Part("first-pairs", "First pairs", code=code))
    return Part(
        "inspect",
        statistics["recipe"],
        f"{statistics['description']}\n{statistics['path']}",
        notes=[
            "Lengths are in subwords, end symbols counted. In samples, a dot is between the "
            "subwords of a word; --json prints tokens and subwords as the model reads them. "
            "Written by nmtkit inspect."
        ],
        parts=[
            Part(
                "corpora",
                "Training corpora",
                table=_corpora_grid(statistics),
                notes=corpus_notes(statistics),
            ),
            *first_pairs,
            Part(
                "lengths",
                "Lengths in subwords",
                table=_lengths_grid(statistics),
                charts=_histogram_charts(statistics),
            ),
            Part("vocabulary", vocabulary.title, table=vocabulary),
            Part("samples", "Samples", parts=_pair_parts(statistics, "samples", "corpus")),
            Part(
                "dropped",
                "Dropped pairs",
                "" if dropped else "Cleaning dropped no pair.",
                parts=dropped,
            ),
        ],
    )


def corpus_grids(statistics: Statistics) -> list[Grid]:
    """Return the tables of the page that are not folded, for a terminal."""
    # The page decides what is folded; a terminal has no folding.
    grids = []
    for section in corpus_page(statistics).parts:
        for part in (section, *section.parts):
            if part.table and not part.is_folded:
                grids.append(part.table)
    return grids


def corpus_notes(statistics: Statistics) -> list[str]:
    """Return the statistics that are sentences."""
    notes = [
        f"Kept pairs with a side longer than max_positions = {statistics['max_positions']:,} "
        f"tokens, which training skips: {statistics['n_too_long']:,}"
    ]
    if statistics["round_trip"] is not None:
        notes.append(
            f"Round trip: tokenized and detokenized by Moses, the {statistics['names']['tgt']} "
            f"text of dev scores {statistics['round_trip']:.2f} sacreBLEU against itself; a "
            "translation of it cannot be expected to score higher."
        )
    for side in statistics["words"]:
        # Unknown tokens of dev show what the vocabulary of the training text lacks.
        if side["unknown"]:
            words = ", ".join(side["unknown"])
            notes.append(f"Words of dev, {side['lang']}, with an unknown token: {words}")
    return notes


def _corpora_grid(statistics: Statistics) -> Grid:
    """Return the numbers of pairs that were read, kept and dropped, by corpus."""
    groups = []
    for corpus, weight in zip(statistics["corpora"], statistics["weights"], strict=True):
        numbers = {"read": corpus["pairs"], "kept": corpus["kept"]}
        for reason, number in corpus["dropped"].items():
            numbers[f"dropped: {reason.replace('_', ' ')}"] = number
        # A weighted corpus is sampled: an epoch has more or fewer of its pairs.
        if weight != 1:
            n_drawn = round(weight * corpus["kept"])
            numbers[f"sampled per epoch, about (weight {weight:g})"] = n_drawn
        group = []
        for name, number in numbers.items():
            share = _percentage(number, corpus["pairs"])
            group.append((corpus["corpus"], name, f"{number:,}", share))
        groups.append(group)
    return Grid("Training corpora", ("corpus", "", "pairs", "share"), 2, groups)


def _lengths_grid(statistics: Statistics) -> Grid:
    """Return the distributions of lengths, by split."""
    # Ratios of lengths have no tokens; their cells stay empty.
    keys = (*QUANTILES, "mean", "tokens", "unknown")
    groups: dict[str, list[Row]] = {split: [] for split in SPLITS}
    for row in statistics["lengths"]:
        split = f"{row['split']}, {row['pairs']:,} pairs"
        cells = [_number(row[key]) if key in row else "" for key in keys]
        groups[row["split"]].append((split, statistics["names"][row["of"]], *cells))
    return Grid("Lengths in subwords", ("split", "", *keys), 2, list(groups.values()))


def _vocabulary_grid(statistics: Statistics) -> Grid:
    """Return the size and the use of the vocabulary."""
    vocabulary = statistics["vocabulary"]
    rows = [
        ("tokens, special symbols counted", f"{vocabulary['tokens']:,}", ""),
        ("rows of the embedding matrix", f"{vocabulary['rows']:,}", ""),
    ]
    for frequency, number in vocabulary["rare"].items():
        share = _percentage(number, vocabulary["subwords"])
        rows.append((f"subwords, {frequency} in train", f"{number:,}", share))
    for side in statistics["words"]:
        name = f"{side['lang']} words of dev that are one subword"
        rows.append((name, f"{side['whole']:,}", _percentage(side["whole"], side["words"])))
        # A text without words has no ratio, but must not fail.
        subwords_per_word = side["subwords"] / max(1, side["words"])
        rows.append((f"subwords per {side['lang']} word of dev", f"{subwords_per_word:.2f}", ""))
    title = f"Vocabulary ({vocabulary['method']})"
    return Grid.of(title, ("", "number", "share"), rows, 1)


def _number(value: float) -> str:
    """Return a count, or a number with two digits behind the point."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def _percentage(part: int, whole: int) -> str:
    """Return a part in percent."""
    return f"{100 * part / max(1, whole):.2f} %"


def _pair_parts(statistics: Statistics, kind: str, group_key: str) -> Sequence[Part]:
    """Return sample pairs, folded except for the first one of a group.

    Args:
        kind: "samples" or "dropped".
        group_key: The key of a pair that names its group: "corpus" or "reason".
    """
    names = statistics["names"]
    parts: list[Part] = []
    seen: set[str] = set()
    for number, pair in enumerate(statistics[kind]):
        groups = []
        for name, key in STEPS.items():
            if key in pair["src"]:  # a dropped pair has no ids
                groups.append([(name, names[side], pair[side][key]) for side in SIDES])
        line = f"line {pair['line']:,}"
        table_title = f"{pair['corpus']}, {line}"
        if "reason" in pair:
            table_title += f", dropped: {pair['reason'].replace('_', ' ')}"
        part = Part(
            f"{kind}-{number}",
            f"{line}: {pair['src']['raw']}",
            table=Grid(table_title, ("", "", ""), 3, groups, has_texts=True),
            is_folded=pair[group_key] in seen,
        )
        parts.append(part)
        seen.add(pair[group_key])  # the next pairs of this group are folded
    return parts


def _histogram_charts(statistics: Statistics) -> list[Chart]:
    """Return the histograms of lengths and of their ratio, one line per split."""
    charts = []
    for side, name in statistics["names"].items():
        series = []
        for split, points in statistics["histograms"][side].items():
            series.append(Series(split, points))
        title = f"Lengths, {name}"
        unit = "subwords"
        if side == "ratio":
            title = f"Ratios of lengths, {name}"
            unit = "ratio"
        y = Axis("percent of the pairs", low=0)
        charts.append(Chart(f"histogram-{side}", title, series, Axis(unit), y))
    return charts
