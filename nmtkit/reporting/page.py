"""Pages of HTML: what they have in common, and that of an inspection (inspection.html.j2)."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from nmtkit.files import whole_file
from nmtkit.reporting.chart import Axis, Chart, Kind, Series
from nmtkit.reporting.code import code_note
from nmtkit.reporting.facts import Histogram, Inspection
from nmtkit.reporting.inspection import (
    corpora_grid,
    left_out,
    lengths_grid,
    pieces_a_word,
    ratio_name,
    share,
    sizes_grid,
    splitting_grid,
    spoken,
    unknown_grid,
    vocabulary_grid,
)
from nmtkit.visible import visible

RATIO_TICKS = ((0.25, "1/4"), (0.5, "1/2"), (1, "1"), (2, "2"), (4, "4"))


def write_page(inspection: Inspection, path: Path) -> None:
    """Write the page to `path`, whole or not at all."""
    replace_page(path, render_page(inspection))


def replace_page(path: Path, page: str) -> None:
    """Write a page to `path`, whole or not at all, as `whole_file` does."""
    with whole_file(path) as draft:
        draft.write_text(page, encoding="utf-8", newline="\n")


def render_page(inspection: Inspection) -> str:
    """The page as text: a function of `inspection` alone."""
    return TEMPLATES.get_template("inspection.html.j2").render(
        inspection=inspection,
        left_out=left_out(inspection),
        code_note=code_note(inspection.other_code),
        grids={
            "corpora": corpora_grid(inspection),
            "sizes": sizes_grid(inspection),
            "lengths": lengths_grid(inspection),
            "vocabulary": vocabulary_grid(inspection),
            "splitting": splitting_grid(inspection),
            "unknown": unknown_grid(inspection),
        },
        charts={
            "src": _length_chart(inspection, 0),
            "tgt": _length_chart(inspection, 1),
            "both": _ratio_chart(inspection),
        },
    )


# Templates


def _shown(value: Any) -> Any:
    """Name what is unseen in a value that a template prints; only its macros return markup."""
    return value if hasattr(value, "__html__") else visible(str(value))


def _millions(n: int) -> str:
    return f"{n / 1e6:,.1f} M" if n >= 1e7 else f"{n:,}"


def _tick(value: float) -> str:
    """Return a round value of an axis, short: 0.0005, 20, 1k, 2M."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:g}{name}"
    return f"{value:.10f}".rstrip("0").rstrip(".")


TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    finalize=_shown,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
TEMPLATES.globals["share"] = share
TEMPLATES.filters |= {
    "millions": _millions,
    "pieces_a_word": pieces_a_word,
    "spoken": spoken,
    "thousands": "{:,}".format,
    "tick": _tick,
}


# Charts


def _length_chart(inspection: Inspection, number: int) -> Chart:
    train = inspection.splits[0].sides[number]
    limit, lengths = inspection.max_positions, train.lengths
    marks = [(lengths.median, f"median {lengths.median:,.0f}")]
    if limit < train.histogram.starts[-1]:
        marks.append((limit + 0.5, f"max_positions {limit:,}"))
    return Chart(
        f"length-{number}",
        f"{train.lang} tokens a sentence, share of sentences",
        _histograms([(split.name, split.sides[number].histogram) for split in inspection.splits]),
        y=Axis(low=0, unit=" %"),
        marks=marks,
        description=f"Of train, half of the sentences have at most {lengths.median:,.0f} tokens, "
        f"95 % at most {lengths.p95:,.0f}, 99 % at most {lengths.p99:,.0f}; the longest has "
        f"{lengths.max:,.0f}.",
    )


def _ratio_chart(inspection: Inspection) -> Chart:
    ratios = inspection.splits[0].ratios
    return Chart(
        "ratio",
        f"{ratio_name(inspection.splits[0])} ratio of lengths, share of pairs",
        _histograms([(split.name, split.ratio_histogram) for split in inspection.splits]),
        x=Axis(is_log=True, ticks=RATIO_TICKS),
        y=Axis(low=0, unit=" %"),
        marks=[(ratios.median, f"median {ratios.median:.2f}")],
        description=f"Of train, half of the pairs have a ratio of at most {ratios.median:.2f}, "
        f"95 % at most {ratios.p95:.2f}, 99 % at most {ratios.p99:.2f}.",
    )


def _histograms(splits: Sequence[tuple[str, Histogram]]) -> list[Series]:
    """Return train as bars and the others as steps, each in percent."""
    found = []
    for number, (name, one) in enumerate(splits):
        total = sum(one.counts)
        shares = [100 * count / max(1, total) for count in one.counts]
        starts = one.starts
        end = starts[-1] * starts[-1] / starts[-2] if starts[0] < 1 else 2 * starts[-1] - starts[-2]
        notes = [
            f"{start:,.4g} to {stop:,.4g}: {count:,}, {share(count, total)}"
            for (start, stop), count in zip(pairwise([*starts, end]), one.counts, strict=True)
        ]
        points = [*zip(starts, shares, strict=True), (end, 0.0)]
        kind: Kind = "steps" if number else "bars"
        found.append(Series(name, points, kind, 7 if number else 0, notes=notes))
    return found
