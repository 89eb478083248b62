"""What a model attends to, as the paper's Figures 3 to 5 show it: a picture and a page."""

import base64
import hashlib
import json
from pathlib import Path
from typing import Literal

import numpy as np
from markupsafe import Markup

from nmtkit.files import Record
from nmtkit.reporting.page import TEMPLATES
from nmtkit.visible import visible

Kind = Literal["encoder", "decoder", "cross"]
NAMES: dict[Kind, str] = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "encoder-decoder attention",
}
DIGITS = 5  # of a weight on the page
SCRIPT = Path(__file__).with_name("attention.js")


class View(Record):
    """What a picture shows: some of the heads of a layer. Layers and heads count from 1."""

    kind: Kind
    layer: int
    head: int | None = None  # None: all
    query: int | None = None  # number of the word whose lines are drawn, from 1; None: all

    @property
    def title(self) -> str:
        """Say what is shown."""
        heads = "all heads" if self.head is None else f"head {self.head}"
        return f"{NAMES[self.kind]}, layer {self.layer}, {heads}"


class Finding(Record):
    """A head that a measure finds."""

    name: str
    measure: str  # what was compared
    value: float
    view: View


class AttentionPicture(Record):
    """The attention of a model in a sentence and its translation."""

    bundle: str
    source: str
    target: str
    is_given: bool  # the translation; else the model's own
    src: list[str]  # tokens, with the EOS
    tgt_in: list[str]  # what the decoder reads, with the BOS
    tgt_out: list[str]  # what it writes at the same places, with the EOS
    weights: dict[Kind, list[list[list[list[float]]]]]  # by layer, head, query and key
    findings: list[Finding]

    def words(self, kind: Kind) -> tuple[list[str], list[str]]:
        """Return the tokens of queries and of keys."""
        if kind == "encoder":
            return self.src, self.src
        if kind == "decoder":
            return self.tgt_in, self.tgt_in
        return self.tgt_out, self.src

    def place(self, view: View) -> str:
        """Say what a view shows, and of which word."""
        queries, _ = self.words(view.kind)
        return view.title if view.query is None else f"{view.title}, {queries[view.query - 1]}"


def render_page(picture: AttentionPicture) -> str:
    """Return a page on which layers, heads and words are chosen."""
    script = SCRIPT.read_text(encoding="utf-8")
    views = [finding.view.model_dump() for finding in picture.findings]
    words = {kind: [list(map(visible, each)) for each in picture.words(kind)] for kind in NAMES}
    weights = {kind: np.round(of, DIGITS).tolist() for kind, of in picture.weights.items()}
    data = json.dumps(
        {"views": views, "words": words, "weights": weights},
        ensure_ascii=False,
        separators=(",", ":"),
    )
    return TEMPLATES.get_template("attention.html.j2").render(
        picture=picture,
        names=NAMES,
        n_layers=len(picture.weights["encoder"]),
        hues=_hues(picture),
        drawing=Markup(render_svg(picture, picture.findings[0].view)),  # noqa: S704
        # Inside <script>, only "<" could end the data.
        data=Markup(data.replace("<", "\\u003c")),  # noqa: S704
        script=Markup(script),  # noqa: S704
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def render_svg(picture: AttentionPicture, view: View) -> str:
    """Return SVG by itself: lines between two copies of the sentence, in the colours of heads."""
    heads = picture.weights[view.kind][view.layer - 1]
    queries, keys = picture.words(view.kind)
    chosen = range(len(heads)) if view.head is None else [view.head - 1]
    return TEMPLATES.get_template("attention.svg.j2").render(
        view=view,
        queries=queries,
        keys=keys,
        heads=[(_hues(picture)[number], heads[number]) for number in chosen],
    )


def _hues(picture: AttentionPicture) -> list[int]:
    """Return an angle on the circle of colours for each head."""
    n_heads = len(picture.weights["encoder"][0])
    return [25 + round(360 * head / n_heads) for head in range(n_heads)]
