"""Histograms as inline SVG: no library, no script; colours and type come from the page's style."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 420, 200
LEFT, RIGHT, TOP, BOTTOM = 38, 6, 22, 24
PLOT_WIDTH, PLOT_HEIGHT = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
MAX_GRID_LINES = 4


@dataclass(frozen=True)
class Mark:
    """A value on the horizontal axis, counted in bins from the left end."""

    place: float
    text: str


def histogram(
    key: str,
    title: str,
    description: str,
    *,
    bars: Sequence[float],
    bar_names: Sequence[str],
    lines: Sequence[tuple[str, Sequence[float]]],
    ticks: Sequence[Mark],
    marks: Sequence[Mark],
) -> str:
    """Draw shares by bin: `bars` filled, each of `lines` (a class of the style, shares) as steps.

    Args:
        key: is unique on the page
        bar_names: what is shown when a bar is pointed at
        marks: values that are singled out
    """
    top = max(max(shares) for shares in (bars, *(shares for _, shares in lines)))
    step = _grid_step(top)
    n_bins = len(bars)

    def x(place: float) -> float:
        return round(LEFT + place / n_bins * PLOT_WIDTH, 1)

    def y(share: float) -> float:
        return round(TOP + (1 - share / top) * PLOT_HEIGHT, 1)

    def rule(share: float) -> str:
        text = f'<text class="y" x="{LEFT - 5}" y="{y(share) + 4}">{100 * share:g} %</text>'
        return f'<path class="rule" d="M{LEFT} {y(share)}H{WIDTH - RIGHT}"/>{text}'

    def bar(number: int) -> str:
        width = round(x(number + 1) - x(number) - 1, 1)
        height = round(TOP + PLOT_HEIGHT - y(bars[number]), 1)
        return (
            f'<rect class="bar" x="{x(number)}" y="{y(bars[number])}" width="{width}" '
            f'height="{height}"><title>{escape(bar_names[number])}</title></rect>'
        )

    def steps(kind: str, shares: Sequence[float]) -> str:
        path = "".join(f"V{y(share)}H{x(number + 1)}" for number, share in enumerate(shares))
        return f'<path class="{kind}" d="M{LEFT} {y(0)}{path}V{y(0)}"/>'

    def mark(one: Mark) -> str:
        side = "end" if one.place > n_bins * 0.7 else "start"
        shift = -4 if side == "end" else 4
        return (
            f'<path class="mark" d="M{x(one.place)} {TOP - 12}V{y(0)}"/><text class="{side}" '
            f'x="{x(one.place) + shift}" y="{TOP - 5}">{escape(one.text)}</text>'
        )

    parts = [
        *(rule(step * i) for i in range(1, int(top / step) + 1)),
        *(bar(number) for number in range(n_bins) if bars[number] > 0),
        *(steps(kind, shares) for kind, shares in lines),
        f'<path class="axis" d="M{LEFT} {y(0)}H{WIDTH - RIGHT}"/>',
        *(
            f'<text class="x" x="{x(tick.place)}" y="{HEIGHT - 8}">{escape(tick.text)}</text>'
            for tick in ticks
        ),
        *(mark(one) for one in marks),
    ]
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="{key}-t {key}-d">'
        f'<title id="{key}-t">{escape(title)}</title><desc id="{key}-d">{escape(description)}'
        f"</desc>{''.join(parts)}</svg>"
    )


def _grid_step(top: float) -> float:
    """The smallest round share that cuts `top` into few parts."""
    rounds = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
    return next((step for step in rounds if top / step <= MAX_GRID_LINES), rounds[-1])
