"""`nmtkit attention`: the command, its drawings and its page."""

import itertools
import json
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from rendering.test_page import assert_self_contained, parse

import nmtkit
from nmtkit.analysis.attention import SentenceAttention, compute_attention
from nmtkit.analysis.attention_heads import KIND_NAMES, Finding, View
from nmtkit.analysis.attention_page import AttentionDrawing, attention_page
from nmtkit.cli import app as cli
from nmtkit.utils.text import visible

SENTENCE = "The well-known cat sat."
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def picture(bundle: Path, translator: nmtkit.Translator) -> SentenceAttention:
    """The attention for words that look like markup."""
    picture = compute_attention(translator, bundle, "<b>a\u202e dog sat.", "Who <i>sat?")
    views = View("cross", 2, 3), View("encoder", 1, query=3)
    found = [Finding("anaphora", "<b>", 0.5, view) for view in views]
    found.append(Finding("structure", "<b>", 0.01, None))
    return replace(picture, findings=found)


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int | str | None:
    monkeypatch.setattr(sys, "argv", ["nmtkit", "attention", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return end.value.code


def test_attention_writes_weights(
    bundle: Path,
    translator: nmtkit.Translator,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    html = tmp_path / "a.html"
    svg = tmp_path / "a.svg"
    options = ["--bundle", bundle, "--html", html, "--svg", svg, "--view", "cross.2.3", "--json"]
    assert run(monkeypatch, SENTENCE, *options) == 0
    printed = json.loads(capsys.readouterr().out)
    (translation,) = translator.translate([SENTENCE])
    assert printed["target"] == translation.text
    assert not printed["is_given"]
    # The words that attend, on the left of each kind.
    src = printed["words"]["encoder"][0]
    tgt_in = printed["words"]["decoder"][0]
    tgt = printed["words"]["cross"][0]
    assert src[-1] == tgt[-1] == "</s>"
    assert tgt_in == ["<s>", *tgt[:-1]]
    shapes = {kind: torch.tensor(layers).shape for kind, layers in printed["weights"].items()}
    n_src = len(src)
    n_tgt = len(tgt)
    assert shapes == {
        "encoder": (2, 3, n_src, n_src),
        "decoder": (2, 3, n_tgt, n_tgt),
        "cross": (2, 3, n_tgt, n_src),
    }
    title = ElementTree.parse(svg).getroot().findtext(f"{SVG}title")
    assert title == "encoder-decoder attention, layer 2, head 3"
    assert SENTENCE in html.read_text(encoding="utf-8")
    assert {path.name for path in tmp_path.iterdir()} == {"a.html", "a.svg"}
    assert run(monkeypatch, SENTENCE, "Who sat?", "--bundle", bundle) == 0
    assert capsys.readouterr().out.startswith("Who sat?")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([" \t"], "SENTENCE is blank"),
        (["cat\udcff"], r"'cat\udcff' is not valid UTF-8"),  # the byte 0xff, as Python decodes it
        (["cat " * 30], "at most 24"),
        (["cat", "cat " * 30], "at most 24"),
        (["cat", "--view", "encoder.1"], "pass --svg FILE"),
        (["cat", "--svg", "{}/x.svg", "--view", "encode.1"], "is invalid; expected KIND.LAYER"),
        (["cat", "--svg", "{}/x.svg", "--view", "encoder.3"], "from 1 to 2"),
        (["cat", "--svg", "{}/x.svg", "--view", "cross.1.4"], "from 1 to 3"),
        (["cat", "--svg", "{}/x.svg", "--view", "cross.1.all.99"], "from 1 to"),
        (["cat", "--html", "{}/no/x.html"], "/no is not a folder"),
    ],
)
def test_attention_mistakes(
    bundle: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    passed = [argument.replace("{}", str(tmp_path)) for argument in arguments]
    code = run(monkeypatch, *passed, "--bundle", bundle)
    assert message in str(code)
    assert str(code).count("\n") == 0
    assert not list(tmp_path.iterdir())


# Words


def test_words_are_joined(bundle: Path, translator: nmtkit.Translator) -> None:
    sentence = "The cat sat, a dog."
    joined = compute_attention(translator, bundle, sentence, "Who sat?")
    split = compute_attention(translator, bundle, sentence, "Who sat?", subwords=True)
    pieces, _ = split.words["encoder"]
    words, _ = joined.words["encoder"]
    assert any(piece.endswith("@@") for piece in pieces)
    assert words == ["The", "cat", "sat", ",", "a", "dog", ".", "</s>"]
    assert words[-1] == "</s>"
    lengths = []
    n_subwords = 0
    for piece in pieces:
        n_subwords += 1
        if not piece.endswith("@@"):
            lengths.append(n_subwords)
            n_subwords = 0
    assert len(lengths) == len(words)
    # By loops: a word receives the sum and pays the mean of its subwords.
    ends = list(itertools.accumulate(lengths))
    spans = [range(end - length, end) for end, length in zip(ends, lengths, strict=True)]
    by_subword = np.array(split.weights["encoder"])[1, 2]
    for query, queries in enumerate(spans):
        row = joined.weights["encoder"][1][2][query]
        assert sum(row) == pytest.approx(1.0, abs=1e-5)
        for key, keys in enumerate(spans):
            total = sum(by_subword[q, k] for q in queries for k in keys)
            assert row[key] == pytest.approx(total / len(queries), abs=1e-6)


# The drawing and the page


def test_drawing_lines(picture: SentenceAttention) -> None:
    view = View(kind="encoder", layer=2, head=1, query=2)
    root = ElementTree.fromstring(AttentionDrawing(picture, view).svg(is_file=True))
    row = picture.weights["encoder"][1][0][1]
    lines = [line.attrib for line in root.iter(f"{SVG}line")]
    drawn = [(24.0 * i + 16, round(weight, 2)) for i, weight in enumerate(row) if weight >= 0.02]
    assert [(float(line["x2"]), float(line["opacity"])) for line in lines] == drawn
    assert {line["x1"] for line in lines} == {"40"}
    title, *words = [text.text for text in root.iter(f"{SVG}text")]
    assert title == visible(AttentionDrawing(picture, view).title)
    assert words == 2 * list(map(visible, picture.words["encoder"][0]))
    together = AttentionDrawing(picture, View(kind="cross", layer=1)).svg(is_file=True)
    all_heads = ElementTree.fromstring(together)
    assert len({group.attrib["stroke"] for group in all_heads.iter(f"{SVG}g")}) == 3
    legend = [text.text for text in all_heads.iter(f"{SVG}text")][-3:]
    assert legend == ["head 1", "head 2", "head 3"]


def test_drawing_cuts_long_words(picture: SentenceAttention) -> None:
    word = "Donaudampfschifffahrtsgesellschaft"
    queries, keys = picture.words["cross"]
    long_words = {**picture.words, "cross": ([word, *queries[1:]], [word, *keys[1:]])}
    drawing = AttentionDrawing(replace(picture, words=long_words), View("cross", 1, 1))
    root = ElementTree.fromstring(drawing.svg(is_file=True))
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert texts.count(f"{word[:22]}…") == 2


def test_page_draws_all_heads(picture: SentenceAttention) -> None:
    page = parse(attention_page(picture))
    assert_self_contained(page)
    found = [each.text for each in page.all("figcaption")]
    views = [finding.view for finding in picture.findings if finding.view]
    names = [AttentionDrawing(picture, view).title for view in views]
    assert "none: below 0.1" in [cell.text for cell in page.all("th")]
    assert found[: len(names)] == names
    heads = ("all heads", "head 1", "head 2", "head 3")
    places = itertools.product(KIND_NAMES.values(), (1, 2), heads)
    expected = [f"{name}, layer {layer}, {head}" for name, layer, head in places]
    assert found[len(names) :] == expected
    drawings = list(page.all("svg"))
    assert len(drawings) == len(found)
    n_lines = int((np.array(picture.weights["encoder"][0][0]) >= 0.02).sum())
    assert len(list(drawings[len(names) + 1].all("line"))) == n_lines
