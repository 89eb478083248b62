"""Text that could inject HTML or terminal codes, and a document that consists of it."""

from nmtkit.rendering.chart import Axis, Chart, Series
from nmtkit.rendering.document import Part
from nmtkit.rendering.grid import Grid

HOSTILE = "<script>alert(1)</script> \"'&amp; \u202egnol\u2028 \x1b[31m]]> <img src=http://x/y.png>"


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
