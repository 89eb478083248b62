"""Attention as drawings, a table of findings, and a page of all heads."""

import colorsys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nmtkit.analysis.attention import SentenceAttention
from nmtkit.analysis.attention_heads import KIND_NAMES, MIN_VALUES, View
from nmtkit.rendering.document import Part, render_page, templates
from nmtkit.rendering.grid import Grid
from nmtkit.utils.text import visible

FOLDER = Path(__file__).parent  # of the templates
FOOTER = (
    "The opacity of a line is the weight; the weights of a word on the left (in drawings: above) "
    "sum to 1 in every head. Weights below 0.02 are not drawn. A word of several subwords receives "
    "the sum of their weights, and pays the mean of their attention. Specific weight: the "
    "attention a word pays to a word, minus the average over all words. Decoder self-attention "
    "shows the words that the decoder has read; encoder-decoder attention shows the words that "
    "it writes. Written by nmtkit attention; its option --svg draws one view, --subwords shows "
    "the subwords."
)
# Relative luminance of the colours of heads, in turn: all of them have a contrast of 3:1 on white,
# on black and on a dark page, and neighbours differ for the colour-blind, too.
LUMINANCES = (0.15, 0.27)
SATURATION = 0.7

# Names of the words that attend, and of those that they attend to.
SIDE_NAMES = {
    "encoder": ("source word", "attends to"),
    "decoder": ("word read so far", "attends to"),
    "cross": ("word written", "source word"),
}


@dataclass(frozen=True)
class AttentionDrawing:
    """Lines between two copies of a sentence, one colour per head, as in Figures 3 to 5."""

    attention: SentenceAttention
    view: View

    @property
    def key(self) -> str:
        """Id of the drawing on a page."""
        view = self.view
        names = [view.kind, str(view.layer)]
        if view.head is not None:
            names.append(str(view.head))
        if view.query is not None:
            names.append(str(view.query))
        return "-".join(names)

    @property
    def title(self) -> str:
        """Caption of the drawing."""
        return self.attention.title(self.view)

    def svg(self, *, is_file: bool = False) -> str:
        """Return the drawing as SVG, for a page or as a file of its own."""
        layer = self.attention.weights[self.view.kind][self.view.layer - 1]
        heads = []
        for index, weights in enumerate(layer):
            heads.append((index + 1, head_colour(index, len(layer)), weights))
        # Filtered last: a head keeps the colour that it has among all heads.
        if self.view.head is not None:
            heads = [heads[self.view.head - 1]]
        return (
            templates(FOLDER)
            .get_template("attention.svg.j2")
            .render(
                drawing=self,
                is_file=is_file,
                words=self.attention.words[self.view.kind],
                heads=heads,
            )
        )


def head_colour(head: int, n_heads: int) -> str:
    """Return the colour of a head, counted from 0: heads share the circle of hues."""
    hue = (25 / 360 + head / n_heads) % 1
    # Of the lightnesses of a hue, that with the wanted luminance, by bisection.
    low = 0.0
    high = 1.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        if luminance(colorsys.hls_to_rgb(hue, middle, SATURATION)) < LUMINANCES[head % 2]:
            low = middle
        else:
            high = middle
    channels = colorsys.hls_to_rgb(hue, low, SATURATION)
    return "#" + "".join(f"{round(255 * channel):02x}" for channel in channels)


def luminance(channels: tuple[float, float, float]) -> float:
    """Return the relative luminance of a colour of sRGB, as WCAG 2 defines it."""
    linear = []
    for channel in channels:
        is_dark = channel <= 0.04045
        linear.append(channel / 12.92 if is_dark else ((channel + 0.055) / 1.055) ** 2.4)
    red, green, blue = linear
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def findings_grid(attention: SentenceAttention) -> Grid:
    """Return a table of the heads that were found, and of the kinds that were not."""
    rows = []
    for finding in attention.findings:
        title = f"none: below {MIN_VALUES[finding.name]}"
        if finding.view is not None:
            title = attention.title(finding.view)
        rows.append((finding.name, f"{finding.value:.3f}", title, finding.measure))
    return Grid.of(attention.target, ("found", "value", "where", "measure"), rows, 4)


def attention_page(attention: SentenceAttention) -> str:
    """Return a page of the findings, and of all heads of all layers.

    A browser that runs scripts shows an explorer, one that does not shows drawings of all layers.
    """
    # The reader must know whose translation the attention belongs to.
    origin = "given" if attention.is_given else f"translated by {attention.bundle}"
    drawings = []
    for finding in attention.findings:
        if finding.view is not None:
            drawings.append(AttentionDrawing(attention, finding.view))
    findings = Part(
        "found",
        "Found in this sentence",
        table=replace(findings_grid(attention), title=""),
        charts=drawings,
    )
    document = Part(
        "attention",
        "Attention",
        f"{attention.source}\n{attention.target} ({origin})",
        notes=[FOOTER],
        parts=[findings],
    )
    layers = []
    for kind, name in KIND_NAMES.items():
        layers.append(Part(kind, name, parts=_layer_parts(attention, kind)))
    return render_page(
        document,
        folder=FOLDER,
        template="attention.html.j2",
        script="attention.js",
        layers=layers,
        data=_explorer_data(attention),
    )


def _layer_parts(attention: SentenceAttention, kind: str) -> list[Part]:
    """Return a folded part per layer: all heads in one drawing, then one drawing per head."""
    parts = []
    for layer, heads in enumerate(attention.weights[kind], start=1):
        drawings = [AttentionDrawing(attention, View(kind, layer))]
        for head in range(1, len(heads) + 1):
            drawings.append(AttentionDrawing(attention, View(kind, layer, head)))
        parts.append(Part(f"{kind}-{layer}", f"layer {layer}", charts=drawings, is_folded=True))
    return parts


def _explorer_data(attention: SentenceAttention) -> dict[str, Any]:
    """Return the data of attention.js. Layers, heads and words count from 0."""
    kinds = {}
    for kind, name in KIND_NAMES.items():
        queries, keys = attention.words[kind]
        query_name, key_name = SIDE_NAMES[kind]
        # Integers keep the page small, and colours show no finer differences.
        thousandths = np.rint(1_000 * np.array(attention.weights[kind])).astype(int)
        kinds[kind] = {
            "name": name,
            "query_name": query_name,
            "key_name": key_name,
            "queries": [visible(word) for word in queries],
            "keys": [visible(word) for word in keys],
            "layers": thousandths.tolist(),
        }
    findings = []
    for finding in attention.findings:
        if finding.view is not None:
            findings.append({"name": finding.name, **_explorer_view(finding.view)})
    n_heads = len(attention.weights["encoder"][0])
    return {
        "kinds": kinds,
        "found": findings,
        "colours": [head_colour(head, n_heads) for head in range(n_heads)],
        "start": _explorer_view(attention.alignment),
    }


def _explorer_view(view: View) -> dict[str, Any]:
    """Return a view for attention.js; null stands for all heads, and for all words."""
    return {
        "kind": view.kind,
        "layer": view.layer - 1,
        "head": None if view.head is None else view.head - 1,
        "query": None if view.query is None else view.query - 1,
    }
