"""Pictures of attention: what they show, and the page in a browser."""

import base64
import hashlib
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from nmtkit.cli.attention import (
    AttentionPicture,
    Finding,
    View,
    render_page,
    render_svg,
)
from nmtkit.reporting.page import replace_page
from nmtkit.visible import visible
from reporting.browser import Page, browser
from reporting.conftest import HOSTILE
from reporting.test_page import parse

SVG = "{http://www.w3.org/2000/svg}"
SRC, TGT = ["a", "big", "dog", HOSTILE, "</s>"], ["ein", "gro@@", "ßer", "hund"]
N_LAYERS, N_HEADS = 2, 3


def weights(n_queries: int, n_keys: int) -> list[list[list[list[float]]]]:
    shape = N_LAYERS, N_HEADS, n_queries, n_keys
    found: list[list[list[list[float]]]] = (3 * torch.randn(shape)).softmax(-1).tolist()
    return found


@pytest.fixture
def picture() -> AttentionPicture:
    torch.manual_seed(2)
    views = [
        View(kind="cross", layer=2, head=3),
        View(kind="encoder", layer=1, query=3),
    ]
    return AttentionPicture(
        bundle="mine",
        source="A big dog" + HOSTILE,
        target="Ein großer Hund",
        is_given=False,
        words={
            "encoder": (SRC, SRC),
            "decoder": (["<s>", *TGT], ["<s>", *TGT]),
            "cross": ([*TGT, "</s>"], SRC),
        },
        weights={"encoder": weights(5, 5), "decoder": weights(5, 5), "cross": weights(5, 5)},
        findings=[
            Finding(name=f"finding {i}", measure=HOSTILE, value=0.5, view=view)
            for i, view in enumerate(views)
        ],
    )


def test_lines_join_the_words_of_each_weight(picture: AttentionPicture) -> None:
    view = View(kind="encoder", layer=2, head=1, query=2)
    root = ElementTree.fromstring(render_svg(picture, view))
    row = picture.weights["encoder"][1][0][1]
    lines = [line.attrib for line in root.iter(f"{SVG}line")]
    shown = [(24.0 * i + 16, round(weight, 2)) for i, weight in enumerate(row) if weight >= 0.02]
    assert [(float(line["x2"]), float(line["opacity"])) for line in lines] == shown
    assert {line["x1"] for line in lines} == {"40"}
    words = [text.text for text in root.iter(f"{SVG}text")]
    assert words == 2 * list(map(visible, SRC))
    all_heads = ElementTree.fromstring(render_svg(picture, View(kind="cross", layer=1)))
    assert len({group.attrib["stroke"] for group in all_heads.iter(f"{SVG}g")}) == N_HEADS


def test_page_runs_its_own_script_alone_and_holds_all_weights(picture: AttentionPicture) -> None:
    page = render_page(picture)
    root = parse(page)
    data, script = list(root.all("script"))
    digest = base64.b64encode(hashlib.sha256(script.text.encode()).digest()).decode()
    policy = next(meta for meta in root.all("meta") if "http-equiv" in meta.attributes)
    assert policy.attributes["content"].startswith("default-src 'none';")
    assert f"script-src 'sha256-{digest}'" in policy.attributes["content"]
    held = json.loads(data.text)
    assert held["words"]["cross"] == [[*TGT, "</s>"], list(map(visible, SRC))]
    for kind in picture.weights:
        actual, expected = torch.tensor(held["weights"][kind]), torch.tensor(picture.weights[kind])
        torch.testing.assert_close(actual, expected, atol=1e-5, rtol=0.0)
    assert not list(root.all("img"))


# In a browser


def n_lines(picture: AttentionPicture, kind: str, layer: int, heads: list[int]) -> list[int]:
    """The number of lines of each word."""
    of_heads = [picture.weights[kind][layer][head] for head in heads]
    return [
        sum(weight >= 0.02 for head in of_heads for weight in head[query])
        for query in range(len(of_heads[0]))
    ]


def drawn(page: Page) -> int:
    found: int = page.value("document.querySelectorAll('#links line').length")
    return found


@pytest.mark.slow
def test_layers_heads_and_words_are_chosen_by_clicks(
    picture: AttentionPicture, tmp_path: Path
) -> None:
    html = tmp_path / "page.html"
    replace_page(html, render_page(picture))
    with browser(tmp_path / "profile") as page:
        page.open(html)
        # The first finding is shown first.
        assert drawn(page) == sum(n_lines(picture, "cross", 1, [2]))
        page.click("[data-finding='1']")
        encoder = n_lines(picture, "encoder", 0, [0, 1, 2])
        assert drawn(page) == encoder[2]  # of one word
        assert page.value("document.getElementById('said').textContent").startswith("dog → ")
        page.click("#queries li:nth-child(2) button")
        assert drawn(page) == encoder[1]
        page.value("document.dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape'}))")
        page.click("input[name=layer][value='1']")
        assert drawn(page) == sum(n_lines(picture, "encoder", 1, [0, 1, 2]))
        page.click("input[name=head][value='1']")
        assert drawn(page) == sum(n_lines(picture, "encoder", 1, [0, 2]))
        for number in (sum(n_lines(picture, "encoder", 1, [0, 1, 2])), 0):
            page.click("#all")
            assert drawn(page) == number
        page.click("#all")
        page.click("input[name=kind][value=decoder]")
        assert drawn(page) == sum(n_lines(picture, "decoder", 1, [0, 1, 2]))
        words = page.value("[...document.querySelectorAll('#queries li')].map(x => x.innerText)")
        assert words == ["<s>", *TGT]
        assert page.asked_for() == [html.as_uri()]
        assert page.complaints() == []
        page.open(html, width=390)
        assert page.value("document.documentElement.scrollWidth") <= 390
        page.click("[data-finding='1']")
        place = page.value("document.getElementById('links').getBoundingClientRect().top")
        assert 0 < place < 900
        assert page.complaints() == []
