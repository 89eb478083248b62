"""Text that could inject HTML or terminal codes, and documents that consist of it."""

import numpy as np
import pytest

from nmtkit.analysis.attention import SentenceAttention
from nmtkit.analysis.attention_heads import View, find_heads
from nmtkit.rendering.chart import Axis, Chart, Series
from nmtkit.rendering.document import Part
from nmtkit.rendering.grid import Grid

HOSTILE = "<script>alert(1)</script> \"'&amp; \u202egnol\u2028 \x1b[31m]]> <img src=http://x/y.png>"
ATTACK = "\" onload='1'<script>console.error(1)</script><img src=/a.png onerror=console.error(2)>"


def document_of(text: str) -> Part:
    """A document with all elements of a page, all with the same text."""
    rows = [(text, text, "1,234"), (text, text, "7")]
    grouped = Grid(text, ("of", "", "n"), 2, [rows, rows])
    plain = Grid.of("", ("", ""), [("in", text)], 2)
    points = [(1.0, 2.0), (2.0, 4.0)]
    series = [Series(text, points, "dots"), Series("c", points)]
    parts = [
        Part("open", text, text, table=plain, charts=[Chart("one", text, series, Axis(text))]),
        Part("code", text, code=text, notes=[text, text], parts=[Part("deep", text, text)]),
        Part("folded", text, table=grouped, is_folded=True),
    ]
    return Part("whole", text, text, table=grouped, notes=[text], parts=parts)


@pytest.fixture
def attention() -> SentenceAttention:
    """Random weights of 2 layers and 3 heads, of words that no page should take for markup."""
    source = ["The", "</script>", "<img src=/a.png onerror=console.error(3)>", "it", "</s>"]
    target = ["Das", "ist", "<b>es</b>", "&amp;", "\u202eso", ".", "</s>"]
    words = {
        "encoder": (source, source),
        "decoder": (["<s>", *target[:-1]], ["<s>", *target[:-1]]),
        "cross": (target, source),
    }
    generator = np.random.default_rng(3)
    weights = {}
    for kind, (queries, keys) in words.items():
        weights[kind] = generator.dirichlet(np.ones(len(keys)), size=(2, 3, len(queries)))
    return SentenceAttention(
        bundle="runs/average/0123",
        source=ATTACK,
        target=ATTACK,
        is_given=True,
        words=words,
        weights={kind: layers.tolist() for kind, layers in weights.items()},
        alignment=View("cross", 2, 1),
        findings=find_heads(weights["encoder"], weights["cross"], source, "en"),
    )
