"""Pages of HTML: what they have in common, and that of an inspection (inspection.html.j2)."""

from collections.abc import Sequence
from itertools import pairwise
from math import log2
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from nmtkit.files import whole_file
from nmtkit.reporting.chart import Chart
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

RATIO_TICKS = (("1/4", -2), ("1/2", -1), ("1", 0), ("2", 1), ("4", 2))  # names, octaves
MAX_TICKS = 6


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
    limit, median = inspection.max_positions, round(train.lengths.median)
    starts = [round(start) for start in train.histogram.starts]
    width = starts[1] - starts[0] if len(starts) > 1 else 1
    names = [_span(start, start + width - 1) for start in starts[:-1]] + [f"{starts[-1]:,} or more"]
    marks = [((median - 0.5) / width, f"median {median:,}")]
    if limit < starts[-1]:
        marks.append((limit / width, f"max_positions {limit:,}"))
    return Chart(
        f"length-{number}",
        f"Lengths of the {train.lang} sentences",
        f"Of train, half of the sentences have at most {median:,} tokens, 95 % at most "
        f"{train.lengths.p95:,.0f}, 99 % at most {train.lengths.p99:,.0f}; the longest has "
        f"{train.lengths.max:,.0f}.",
        bars=_bars(train.histogram, [f"{name} tokens" for name in names], "sentences"),
        lines=[
            (split.name, _shares(split.sides[number].histogram)) for split in inspection.splits[1:]
        ],
        ticks=[((value - 0.5) / width, f"{value:,}") for value in _ticks(starts[-1])],
        marks=marks,
    )


def _ratio_chart(inspection: Inspection) -> Chart:
    train, *held_out = inspection.splits
    starts = train.ratio_histogram.starts
    middle, per_octave = len(starts) / 2, len(starts) // 4
    names = [
        f"less than {starts[1]:.2f}",
        *(f"{low:.2f} to {high:.2f}" for low, high in pairwise(starts[1:])),
        f"{starts[-1]:.2f} or more",
    ]
    ratios = train.ratios
    return Chart(
        "ratio",
        f"Target length / source length ({ratio_name(train)})",
        f"Of train, half of the pairs have a ratio of at most {ratios.median:.2f}, 95 % at most "
        f"{ratios.p95:.2f}, 99 % at most {ratios.p99:.2f}.",
        bars=_bars(train.ratio_histogram, names, "pairs"),
        lines=[(split.name, _shares(split.ratio_histogram)) for split in held_out],
        ticks=[(middle + octaves * per_octave, name) for name, octaves in RATIO_TICKS],
        marks=[(middle + log2(ratios.median) * per_octave, f"median {ratios.median:.2f}")],
    )


def _shares(one: Histogram) -> list[float]:
    return [count / max(1, sum(one.counts)) for count in one.counts]


def _bars(one: Histogram, names: Sequence[str], what: str) -> list[tuple[float, str]]:
    total = sum(one.counts)
    return [
        (portion, f"{name}: {count:,} {what}, {share(count, total)}")
        for portion, name, count in zip(_shares(one), names, one.counts, strict=True)
    ]


def _span(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _ticks(last: int) -> range:
    """Few round values up to `last`."""
    steps = (digit * 10**power for power in range(9) for digit in (1, 2, 5))
    every = next(step for step in steps if last // step <= MAX_TICKS)
    return range(every, last + 1, every)
