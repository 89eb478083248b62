"""The evaluations on dev of several runs: charts that compare them, and their methods."""

from collections.abc import Sequence

from nmtkit.reporting.chart import Axis, Chart, Point, Series
from nmtkit.reporting.curves import DEV_SCORES
from nmtkit.reporting.labels import short_labels
from nmtkit.reporting.run_facts import RunFacts

# Figures of the evaluations on dev, by their keys in metrics.jsonl.
DEV_FIGURES = {**DEV_SCORES, "dev_perplexity": "perplexity per subword"}


def dev_charts(runs: Sequence[RunFacts], prefix: str = "") -> list[Chart]:
    """Return the curves of dev figures.

    A chart compares only runs that were evaluated on the same text in the same way, and no more
    of them than there are colours.

    Args:
        runs: The runs.
        prefix: Prefix of the names of files.
    """
    charts: list[Chart] = []
    for key in DEV_FIGURES:
        # The first chart of a figure has its name, the others a number.
        n_charts = 0
        for languages, curves in _comparable_curves(runs, key):
            for begin in range(0, len(curves), Chart.n_colours):
                n_charts += 1
                name = f"{prefix}{key.replace('_', '-')}"
                if n_charts > 1:
                    name += f"-{n_charts}"
                series = curves[begin : begin + Chart.n_colours]
                charts.append(_dev_chart(name, key, languages, series))
    return charts


def _dev_chart(name: str, key: str, languages: str, series: Sequence[Series]) -> Chart:
    """Return one chart of curves.

    Args:
        name: Name of its file.
        key: The figure, a key of DEV_FIGURES.
        languages: The language pair, such as en-de.
        series: The curves.
    """
    title = f"{DEV_FIGURES[key]} of dev, {languages}"
    if len(series) == 1:
        title += f" ({series[0].name})"  # a chart with one curve has no legend
    # Perplexity falls by orders of magnitude; scores have a scale from 0 to 100.
    is_log = key == "dev_perplexity"
    return Chart(name, title, series, x=Axis("steps", low=0), y=Axis(is_log=is_log))


def _comparable_curves(runs: Sequence[RunFacts], key: str) -> list[tuple[str, list[Series]]]:
    """Group the curves of runs that were evaluated on the same text in the same way.

    Args:
        runs: The runs.
        key: The figure, a key of DEV_FIGURES.

    Returns:
        The language pairs and curves of the groups. Runs with the same points, such as those
        that share a training, share a curve.
    """
    groups: dict[tuple[str, str, str], dict[tuple[Point, ...], list[str]]] = {}
    for run in runs:
        points: list[Point] = []
        for line in run.dev:
            if line.get(key):
                points.append((line["step"], line[key]))
        if not points:
            continue
        # Two evaluations are comparable if language pair, prepared corpus and method agree.
        languages = "-".join(run.languages)
        corpus = ""
        for stage in run.stages:
            if stage["stage"] == "prepare":
                corpus = stage["fingerprint"]
        method = str(run.dev[-1].get(f"{key}_how"))
        labels_by_points = groups.setdefault((languages, corpus, method), {})
        labels_by_points.setdefault(tuple(points), []).append(run.label)
    curves = []
    for (languages, _, _), labels_by_points in groups.items():
        names = short_labels(list(labels_by_points.values()))
        series = []
        for name, run_points in zip(names, labels_by_points, strict=True):
            series.append(Series(name, run_points, "line and dots"))
        curves.append((languages, series))
    return curves


def dev_notes(runs: Sequence[RunFacts]) -> list[str]:
    """Return the methods by which the dev scores of runs were computed."""
    notes = []
    for run in runs:
        for line in run.dev:
            for key, name in DEV_FIGURES.items():
                method = line.get(f"{key}_how")
                if method:
                    notes.append(f"{name} of dev: {method}")
    return list(dict.fromkeys(notes))
