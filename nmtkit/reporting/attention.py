"""What a model attends to, as the paper's Figures 3 to 5 show it: a picture and a page."""

import base64
import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from markupsafe import Markup

from nmtkit.reporting.page import TEMPLATES
from nmtkit.visible import visible

NAMES = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "encoder-decoder attention",
}
DIGITS = 5  # of a weight on the page
SCRIPT = Path(__file__).with_name("attention.js")


@dataclass(frozen=True)
class View:
    """What a picture shows: some of the heads of a layer. Layers and heads count from 1."""

    kind: str  # of NAMES
    layer: int
    head: int | None = None  # None: all
    query: int | None = None  # number of the word whose lines are drawn, from 1; None: all


@dataclass(frozen=True)
class Finding:
    """A head that a measure finds."""

    name: str
    measure: str  # what was compared
    value: float
    view: View


@dataclass(frozen=True)
class AttentionPicture:
    """The attention of a model in a sentence and its translation."""

    bundle: str
    source: str
    target: str
    is_given: bool  # the translation; else the model's own
    src: list[str]  # tokens, with the EOS
    tgt_in: list[str]  # what the decoder reads, with the BOS
    tgt_out: list[str]  # what it writes at the same places, with the EOS
    weights: dict[str, list[list[list[list[float]]]]]  # by layer, head, query and key
    findings: list[Finding]

    def words(self, kind: str) -> tuple[list[str], list[str]]:
        """Return the tokens of queries and of keys."""
        if kind == "encoder":
            return self.src, self.src
        return (self.tgt_in, self.tgt_in) if kind == "decoder" else (self.tgt_out, self.src)

    def place(self, view: View) -> str:
        """Say what a view shows."""
        heads = "all heads" if view.head is None else f"head {view.head}"
        word = "" if view.query is None else f", {self.words(view.kind)[0][view.query - 1]}"
        return f"{NAMES[view.kind]}, layer {view.layer}, {heads}{word}"


def render_page(picture: AttentionPicture) -> str:
    """Return a page on which layers, heads and words are chosen."""
    script = SCRIPT.read_text(encoding="utf-8")
    content = {
        "views": [asdict(finding.view) for finding in picture.findings],
        "words": {
            kind: [list(map(visible, each)) for each in picture.words(kind)] for kind in NAMES
        },
        "weights": {kind: np.round(of, DIGITS).tolist() for kind, of in picture.weights.items()},
    }
    data = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return TEMPLATES.get_template("attention.html.j2").render(
        picture=picture,
        names=NAMES,
        hues=_hues(picture),
        # Inside <script>, only "<" could end the data.
        data=Markup(data.replace("<", "\\u003c")),  # noqa: S704
        script=Markup(script),  # noqa: S704
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def render_svg(picture: AttentionPicture, view: View) -> str:
    """Return SVG by itself: lines between two copies of the sentence, in the colours of heads."""
    heads = [*zip(_hues(picture), picture.weights[view.kind][view.layer - 1], strict=True)]
    queries, keys = picture.words(view.kind)
    return TEMPLATES.get_template("attention.svg.j2").render(
        view=view,
        title=picture.place(view),
        queries=queries,
        keys=keys,
        heads=heads if view.head is None else [heads[view.head - 1]],
    )


def _hues(picture: AttentionPicture) -> list[int]:
    """Return an angle on the circle of colours for each head."""
    n_heads = len(picture.weights["encoder"][0])
    return [25 + round(360 * head / n_heads) for head in range(n_heads)]
