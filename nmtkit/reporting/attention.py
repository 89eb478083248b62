"""Pictures of attention, as the paper's Figures 3 to 5: lines, heat maps and a page."""

import base64
import hashlib
import json
import shlex
from pathlib import Path
from typing import Literal

from markupsafe import Markup

from nmtkit.files import Record
from nmtkit.reporting.exhibit import Drawing, Exhibit
from nmtkit.reporting.page import TEMPLATES, replace_page
from nmtkit.rooms import hashes
from nmtkit.store import versions
from nmtkit.visible import visible

Kind = Literal["encoder", "decoder", "cross"]
NAMES: dict[Kind, str] = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "encoder-decoder attention",
}
DIGITS = 5  # of a weight on the page
MAX_DRAWING = 200_000  # characters of a picture in the report; those of long sentences are left out
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


def write_page(picture: AttentionPicture, path: Path) -> None:
    """Write a page on which layers, heads and words are chosen, whole or not at all."""
    replace_page(path, render_page(picture))


def render_page(picture: AttentionPicture) -> str:
    """Return the page as text."""
    script = SCRIPT.read_text(encoding="utf-8")
    data = picture.model_dump(mode="json", include={"findings"})
    data |= {
        name: list(map(visible, getattr(picture, name))) for name in ("src", "tgt_in", "tgt_out")
    }
    data["weights"] = {kind: _rounded(layers) for kind, layers in picture.weights.items()}
    shown = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return TEMPLATES.get_template("attention.html.j2").render(
        picture=picture,
        names=NAMES,
        n_layers=len(picture.weights["encoder"]),
        n_heads=len(picture.weights["encoder"][0]),
        # Inside <script>, only "<" could end the data.
        data=Markup(shown.replace("<", "\\u003c")),  # noqa: S704
        script=Markup(script),  # noqa: S704
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def write_svg(picture: AttentionPicture, view: View, path: Path, *, heat: bool) -> None:
    """Write a picture of one view, whole or not at all."""
    replace_page(path, render_svg(picture, view, heat=heat))


def render_svg(picture: AttentionPicture, view: View, *, heat: bool) -> str:
    """Return SVG of lines between two copies of the sentence, or of one heat map for each head."""
    heads = picture.weights[view.kind][view.layer - 1]
    numbers = range(len(heads)) if view.head is None else [view.head - 1]
    queries, keys = picture.words(view.kind)
    return TEMPLATES.get_template("attention.svg.j2").render(
        view=view,
        heat=heat,
        queries=queries,
        keys=keys,
        heads=[(number, _hue(number, len(heads)), heads[number]) for number in numbers],
    )


def attention_exhibit(picture: AttentionPicture) -> Exhibit:
    """Return what was found in a sentence for the report, as Figures 3 to 5 show it."""
    found = [(each, render_svg(picture, each.view, heat=False)) for each in picture.findings]
    command = ["nmtkit", "attention", "--bundle", picture.bundle, picture.source]
    if picture.is_given:
        command += ["--target", picture.target]
    return Exhibit(
        command=shlex.join(command),
        made_by={**versions(), **hashes(["model/", "decoding/", "reporting/"])},
        notes=[
            f"{each.name}, {each.view.title}: {each.measure}, {each.value:.2f}" for each, _ in found
        ],
        panels=[],
        drawings=[
            Drawing(title=f"{each.name}: {each.view.title}", svg=svg)
            for each, svg in found
            if len(svg) <= MAX_DRAWING
        ],
    )


def _hue(head: int, n_heads: int) -> int:
    """Return an angle on the circle of colours, each head its own."""
    return 25 + round(360 * head / n_heads)


def _rounded(weights: list[list[list[list[float]]]]) -> list[list[list[list[float]]]]:
    return [
        [[[round(weight, DIGITS) for weight in row] for row in head] for head in layer]
        for layer in weights
    ]
