"""Attention as drawings, a table of findings, and a page of all heads."""

from dataclasses import dataclass

from nmtkit.analysis.attention import KIND_NAMES, SentenceAttention, View
from nmtkit.reporting.document import TEMPLATES, Part
from nmtkit.reporting.grid import Grid

FOOTER = (
    "The opacity of a line is the weight; the weights of a word above sum to 1 in every head. A "
    "weight is specific as far as it exceeds the average weight of all words on the same word. "
    "Decoder self-attention shows the words that the decoder has read; encoder-decoder attention "
    "shows, above, the words that it writes. Written by nmtkit attention, whose --svg also draws "
    "the lines of one word."
)


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
        for number, weights in enumerate(layer):
            # Every head has its own hue, which it keeps in drawings of one head.
            hue = 25 + round(360 * number / len(layer))  # heads share the circle of colours
            heads.append((hue, weights))
        if self.view.head is not None:
            heads = [heads[self.view.head - 1]]
        return TEMPLATES.get_template("attention.svg.j2").render(
            drawing=self,
            is_file=is_file,
            words=self.attention.words[self.view.kind],
            heads=heads,
        )


def findings_grid(attention: SentenceAttention) -> Grid:
    """Return a table of the heads that were found."""
    rows = []
    for finding in attention.findings:
        title = attention.title(finding.view)
        rows.append((finding.name, f"{finding.value:.3f}", title, finding.measure))
    return Grid.of(attention.target, ("found", "value", "where", "measure"), rows, 4)


def attention_page(attention: SentenceAttention) -> Part:
    """Return a page of the findings, and of all heads of all layers."""
    # The reader must know whose translation the attention belongs to.
    origin = "given" if attention.is_given else f"translated by {attention.bundle}"
    drawings = [AttentionDrawing(attention, finding.view) for finding in attention.findings]
    parts = [Part("found", "Found in this sentence", charts=drawings)]
    for kind, name in KIND_NAMES.items():
        parts.append(Part(kind, name, parts=_layer_parts(attention, kind)))
    return Part(
        "attention",
        "Attention",
        f"{attention.source}\n{attention.target} ({origin})",
        table=findings_grid(attention),
        notes=[FOOTER],
        parts=parts,
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
