"""nmtkit attention: what a bundle's model attends to in a sentence and its translation."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from nmtkit.cli.options import (
    Bundle,
    Device,
    Html,
    Svg,
    argument,
    check_output,
    command,
    option,
)
from nmtkit.config.settings import EngineName
from nmtkit.corpus.special_tokens import BOS_ID, EOS_ID
from nmtkit.reporting.document import TEMPLATES, Part, page_of, replace_page
from nmtkit.reporting.grid import Grid
from nmtkit.reporting.show import Form, show
from nmtkit.tables import read_tables
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language
from nmtkit.utils.text import quote

Weights = npt.NDArray[np.float64]

OF_STRUCTURE = "specific weight on another word, less that at the distance it prefers"
FAR = 4  # tokens between two words: a long distance
VIEW = "KIND.LAYER[.HEAD[.WORD]]"
TEXTS: dict[str, Any] = read_tables(__file__, "attention.toml")
NAMES: dict[str, str] = TEXTS["names"]


@dataclass(frozen=True)
class View:
    """What a picture shows: some of the heads of a layer. Layers and heads count from 1."""

    kind: str  # of NAMES
    layer: int
    head: int | None = None  # None: all
    query: int | None = None  # number of the word whose lines are drawn, from 1; None: all


@dataclass(frozen=True)
class Finding:
    name: str
    measure: str  # what was compared
    value: float
    view: View


@dataclass(frozen=True)
class AttentionPicture:
    bundle: str
    source: str
    target: str
    is_given: bool  # the translation; else the model's own
    words: dict[str, tuple[list[str], list[str]]]  # by kind, tokens of queries and of keys
    weights: dict[str, list[list[list[list[float]]]]]  # by kind, layer, head, query and key
    findings: list[Finding]

    def place(self, view: View) -> str:
        heads = "all heads" if view.head is None else f"head {view.head}"
        word = "" if view.query is None else f", {self.words[view.kind][0][view.query - 1]}"
        return f"{NAMES[view.kind]}, layer {view.layer}, {heads}{word}"


def _utf8(text: str | None) -> str | None:
    try:
        (text or "").encode("utf-8")
    except UnicodeEncodeError:
        raise UserError(f"{quote(text)} is not valid UTF-8; set the terminal to UTF-8") from None
    return text


@command("nmtkit attention 'It is late.' --bundle DIR --html page.html")
def attention(
    sentence: Annotated[str, argument("SENTENCE", "What is translated.", callback=_utf8)],
    translation: Annotated[
        str | None, argument("[TRANSLATION]", "By default, the bundle's own.", callback=_utf8)
    ] = None,
    *,
    bundle: Bundle,
    form: Form,
    html: Html = None,
    svg: Svg = None,
    view: Annotated[
        str | None,
        option(
            VIEW,
            "What --svg draws, such as encoder.5 or cross.2.3; by default the first that is found.",
        ),
    ] = None,
    device: Device = "auto",
) -> None:
    from nmtkit.stages.pipeline import warn_of_other_code
    from nmtkit.store.artifacts import open_directory
    from nmtkit.translator import Translator

    if view and svg is None:
        raise UserError("--view names what --svg draws; add --svg FILE")
    check_output("--html", html)
    check_output("--svg", svg)
    if html is not None and svg is not None and os.path.realpath(html) == os.path.realpath(svg):
        raise UserError(f"--html and --svg are both {html}; write to two files")
    translator = Translator(bundle, device=device, engine=EngineName.TORCH, split_sentences=False)
    warn_of_other_code([open_directory(bundle)])
    picture = picture_of(translator, bundle, sentence, translation)
    if svg is not None:
        drawn = view_of(picture, view) if view else picture.findings[0].view
        replace_page(svg, Drawing(picture, drawn).svg(is_file=True))
        progress.log(f"attention: drew {picture.place(drawn)} in {svg}")
    if html is not None:
        replace_page(html, page_of(document(picture)))
        progress.log(f"attention: wrote {html}")
    show(form, picture, [findings_grid(picture)])


def picture_of(translator: Any, bundle: Path, source: str, target: str | None) -> AttentionPicture:
    """Translate a sentence, unless its translation is given, and look at all attention."""
    from nmtkit.decoding.forced import attended

    text = translator.text
    src = text.encode(source)
    if not src:
        raise UserError("SENTENCE is blank; give one with a word")
    is_given = target is not None
    if target is None:
        (translation,) = translator.translate([source])
        target, tgt = translation.text, [id_ for ids in translation.tgt for id_ in ids]
    else:
        tgt = text.encode_target(target)
    if max(len(src), len(tgt) + 1) > translator.max_subwords:
        raise UserError(
            f"SENTENCE has {len(src):,} subwords and its translation {len(tgt):,}; at most "
            f"{translator.max_subwords:,} can be shown"
        )
    found = attended(translator.engine.models[0], src, tgt)
    weights = {kind: of_layers.cpu().numpy() for kind, of_layers in found.items()}
    words, read, written = map(text.subword.pieces, (src, [BOS_ID, *tgt], [*tgt, EOS_ID]))
    return AttentionPicture(
        bundle=str(bundle),
        source=source,
        target=target,
        is_given=is_given,
        words={"encoder": (words, words), "decoder": (read, read), "cross": (written, words)},
        weights={kind: of_layers.tolist() for kind, of_layers in weights.items()},
        findings=findings(weights["encoder"], weights["cross"], words, text.src.lang),
    )


def view_of(picture: AttentionPicture, name: str) -> View:
    """Read `KIND.LAYER[.HEAD[.WORD]]`, such as encoder.5.all.7."""
    match = re.fullmatch(rf"({'|'.join(NAMES)})\.(\d+)(?:\.(\d+|all)(?:\.(\d+))?)?", name)
    if match is None:
        raise UserError(
            f"--view {quote(name)} is not understood; write {VIEW}, such as cross.2.3 or "
            "encoder.5.all.7"
        )
    kind, *rest = match.groups()
    numbers = [int(each) if each and each != "all" else None for each in rest]
    layers = picture.weights[kind]
    most = len(layers), len(layers[0]), len(picture.words[kind][0])
    for what, number, highest in zip(("layer", "head", "word"), numbers, most, strict=True):
        if number is not None and not 1 <= number <= highest:
            raise UserError(f"--view {quote(name)}: name one of {what}s 1 to {highest:,}")
    layer, head, query = numbers
    assert layer is not None
    return View(kind, layer, head, query)


# What is drawn


@dataclass(frozen=True)
class Drawing:
    """Lines between two copies of the sentence, in the colours of heads."""

    picture: AttentionPicture
    view: View

    @property
    def key(self) -> str:
        shown = (self.view.kind, self.view.layer, self.view.head, self.view.query)
        return "-".join(str(each) for each in shown if each)

    @property
    def title(self) -> str:
        return self.picture.place(self.view)

    def svg(self, *, is_file: bool = False) -> str:
        of_layer, head = self.picture.weights[self.view.kind][self.view.layer - 1], self.view.head
        # Each head has an angle on the circle of colours.
        heads = [(25 + round(360 * n / len(of_layer)), each) for n, each in enumerate(of_layer)]
        return TEMPLATES.get_template("attention.svg.j2").render(
            drawing=self,
            is_file=is_file,
            words=self.picture.words[self.view.kind],
            heads=heads if head is None else [heads[head - 1]],
        )


def findings_grid(picture: AttentionPicture) -> Grid:
    rows = [
        (each.name, f"{each.value:.3f}", picture.place(each.view), each.measure)
        for each in picture.findings
    ]
    return Grid.of(picture.target, ("found", "value", "where", "measure"), rows, 4)


def document(picture: AttentionPicture) -> Part:
    """Return a page of the findings, and of the heads of each layer, together and one by one."""
    by = "given" if picture.is_given else f"translated by {picture.bundle}"
    found = [Drawing(picture, each.view) for each in picture.findings]
    return Part(
        "attention",
        "Attention",
        f"{picture.source}\n{picture.target} ({by})",
        table=findings_grid(picture),
        notes=[TEXTS["footer"]],
        parts=[
            Part("found", "Found in this sentence", charts=found),
            *(Part(kind, name, parts=_layers(picture, kind)) for kind, name in NAMES.items()),
        ],
    )


def _layers(picture: AttentionPicture, kind: str) -> list[Part]:
    parts = []
    for layer, of_heads in enumerate(picture.weights[kind], 1):
        views = (View(kind, layer, head or None) for head in range(len(of_heads) + 1))
        drawings = [Drawing(picture, view) for view in views]
        parts.append(Part(f"{kind}-{layer}", f"layer {layer}", charts=drawings, is_folded=True))
    return parts


# Heads that show something


def findings(encoder: Weights, cross: Weights, src: Sequence[str], lang: str) -> list[Finding]:
    """Find an alignment and the heads that the paper shows, each by a measure.

    The weights of N layers and H heads are `encoder`, (N, H, Ls, Ls), and `cross`, (N, H, Lt, Ls);
    `src` has Ls tokens, the last of which is the EOS.
    """
    n = len(src) - 1  # without the EOS
    # Of a weight, what is more than its key gets from all words on average: a head in which all
    # words look at the same one tells nothing about the sentence.
    specific = np.maximum(encoder - encoder.mean(-2, keepdims=True), 0.0)
    is_word = np.array([any(map(str.isalnum, token)) for token in src[:n]] + [False])
    distance = np.arange(n + 1)[:, None] - np.arange(n + 1)
    language = Language.named(lang)
    known = TEXTS["pronouns"].get(language.code if language else "", "").split()
    is_pronoun = np.array([token.removeprefix("▁").lower() in known for token in src])
    far = specific * (is_word & is_word[:, None] & (abs(distance) > FAR))
    back = specific * (is_word & (is_word & is_pronoun)[:, None] & (distance > 1))
    sharp = cross[..., :-1, :n].max(-1, initial=0.0).sum(-1) / max(1, cross.shape[-2] - 1)
    others = specific[..., :n, :n] * (1 - np.eye(n))
    # Structure has words look at different places, not at the one before or after them.
    steady = [others.diagonal(k, -2, -1).sum(-1) for k in range(1 - n, n) if k]
    varied = others.max(-1, initial=0.0).sum(-1) - np.max([np.zeros_like(sharp), *steady], 0)
    of_heads = "mean over the words of the largest "
    of_pair = "the largest specific weight "
    found = [
        _best("long distance", f"{of_pair}over {FAR} or more tokens between", "encoder", far),
        _best("anaphora", f"{of_pair}of a pronoun on an earlier word", "encoder", back),
        _best("structure", f"{of_heads}{OF_STRUCTURE}", "encoder", varied / max(1, n)),
    ]
    alignment = _best("alignment", f"{of_heads}weight on a source word", "cross", sharp)
    return [alignment, *(each for each in found if each.value > 0)]


def _best(name: str, measure: str, kind: str, values: Weights) -> Finding:
    """Return the head, and the query if there are some, of the largest of (N, H[, L, L])."""
    layer, head, *rest = map(int, np.unravel_index(values.argmax(), values.shape))
    query = rest[0] + 1 if rest else None
    view = View(kind, layer + 1, None if name == "long distance" else head + 1, query)
    return Finding(name, measure, float(values.max()), view)
