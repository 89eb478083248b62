"""Pictures of attention: what they show, and the page in a browser."""

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

from nmtkit.reporting.attention import (
    AttentionPicture,
    Finding,
    View,
    render_page,
    render_svg,
    write_page,
)
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
        src=SRC,
        tgt_in=["<s>", *TGT],
        tgt_out=[*TGT, "</s>"],
        weights={"encoder": weights(5, 5), "decoder": weights(5, 5), "cross": weights(5, 5)},
        findings=[
            Finding(name=f"finding {i}", measure=HOSTILE, value=0.5, view=view)
            for i, view in enumerate(views)
        ],
    )


def test_lines_join_the_words_of_each_weight(picture: AttentionPicture) -> None:
    root = ElementTree.fromstring(
        render_svg(picture, View(kind="encoder", layer=2, head=1, query=2), heat=False)
    )
    row = picture.weights["encoder"][1][0][1]
    lines = list(root.iter(f"{SVG}line"))
    assert [float(line.attrib["opacity"]) for line in lines] == [
        round(weight, 2) for weight in row if weight >= 0.02
    ]
    assert len({line.attrib["x1"] for line in lines}) == 1
    words = [text.text for text in root.iter(f"{SVG}text")]
    assert len(words) == 2 * len(SRC)
    assert words[:3] == SRC[:3]


def test_all_heads_have_colours_of_their_own(picture: AttentionPicture) -> None:
    text = render_svg(picture, View(kind="cross", layer=1), heat=True)
    root = ElementTree.fromstring(text)
    classes = {rect.attrib.get("class") for rect in root.iter(f"{SVG}rect")} - {None}
    assert classes == {"h0", "h1", "h2"}
    assert len(set(re.findall(r"oklch\([^)]*\) \.17 (\d+)", text))) == N_HEADS
    cells = [rect for rect in root.iter(f"{SVG}rect") if rect.attrib.get("class") == "h1"]
    shown = [w for row in picture.weights["cross"][0][1] for w in row if w >= 0.005]
    assert [float(cell.attrib["opacity"]) for cell in cells] == [round(w, 2) for w in shown]


def test_page_runs_its_own_script_alone_and_holds_all_weights(picture: AttentionPicture) -> None:
    page = render_page(picture)
    root = parse(page)
    data, script = list(root.all("script"))
    digest = base64.b64encode(hashlib.sha256(script.text.encode()).digest()).decode()
    policy = next(meta for meta in root.all("meta") if "http-equiv" in meta.attributes)
    assert policy.attributes["content"].startswith("default-src 'none';")
    assert f"script-src 'sha256-{digest}'" in policy.attributes["content"]
    held = json.loads(data.text)
    assert held["src"] == list(map(visible, SRC))
    for kind in picture.weights:
        actual, expected = torch.tensor(held["weights"][kind]), torch.tensor(picture.weights[kind])
        torch.testing.assert_close(actual, expected, atol=1e-5, rtol=0.0)
    assert not list(root.all("img"))


# In a browser

KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "End": 35, "ArrowLeft": 37, "ArrowDown": 40}
KEYS["ArrowUp"] = 38


@pytest.fixture
def page(picture: AttentionPicture, tmp_path: Path) -> Iterator[Page]:
    """The page, which asks for nothing but itself and of which the browser complains never."""
    html = tmp_path / "page.html"
    write_page(picture, html)
    with browser(tmp_path / "profile") as page:
        page.open(html)
        yield page
        assert page.asked_for() == [html.as_uri()]
        assert page.complaints() == []


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.press(key, KEYS[key])


def n_lines(picture: AttentionPicture, kind: str, layer: int, heads: list[int]) -> list[int]:
    """The number of lines of each word."""
    of_heads = [picture.weights[kind][layer][head] for head in heads]  # type: ignore[index]
    return [
        sum(weight >= 0.02 for head in of_heads for weight in head[query])
        for query in range(len(of_heads[0]))
    ]


def drawn(page: Page) -> int:
    found: int = page.value("document.querySelectorAll('#links line').length")
    return found


@pytest.mark.slow
def test_layers_heads_and_words_are_chosen_by_pointing(
    page: Page, picture: AttentionPicture
) -> None:
    # The first finding is shown first.
    assert drawn(page) == sum(n_lines(picture, "cross", 1, [2]))
    page.click("[data-finding='1']")
    encoder = n_lines(picture, "encoder", 0, [0, 1, 2])
    assert drawn(page) == encoder[2]  # of one word
    page.click("#queries li:nth-child(3)")  # let go; it is still pointed at
    page.click("input[name=layer][value='1']")
    assert drawn(page) == sum(n_lines(picture, "encoder", 1, [0, 1, 2]))
    page.click("input[name=head][value='1']")
    assert drawn(page) == sum(n_lines(picture, "encoder", 1, [0, 2]))
    page.point("#queries li:nth-child(2)")
    assert drawn(page) == n_lines(picture, "encoder", 1, [0, 2])[1]
    assert page.value("document.getElementById('said').textContent").startswith("big → ")
    page.point("h1")
    assert drawn(page) == sum(n_lines(picture, "encoder", 1, [0, 2]))
    page.click("#none")
    assert drawn(page) == 0
    page.click("#all")
    page.click("input[name=kind][value=decoder]")
    assert drawn(page) == sum(n_lines(picture, "decoder", 1, [0, 1, 2]))
    words = page.value("[...document.querySelectorAll('#queries li')].map(x => x.innerText)")
    assert words == ["<s>", *TGT]
    page.click("input[name=as][value=heat]")
    assert page.value("document.querySelectorAll('#heat canvas').length") == N_HEADS
    page.point("canvas[data-head='2']")
    weight = picture.weights["decoder"][1][2][2][2]
    said = page.value("document.getElementById('said').textContent")
    assert said == f"Head 3: gro@@ → gro@@ {weight:.3f}"


@pytest.mark.slow
def test_it_is_used_with_a_keyboard_alone(page: Page, picture: AttentionPicture) -> None:
    order = []
    for _ in range(12):
        press(page, "Tab")
        order.append(
            page.value(
                "document.activeElement.name || document.activeElement.id"
                " || document.activeElement.tagName"
            )
        )
    head = ["head"] * N_HEADS
    assert order[:10] == ["BUTTON", "BUTTON", "kind", "layer", *head, "all", "none", "as"]
    assert order[10] == "LI"
    page.value("document.querySelector('input[name=layer]:checked').focus()")
    press(page, "ArrowLeft")
    assert drawn(page) == sum(n_lines(picture, "cross", 0, [2]))
    press(page, "Tab", " ")  # to the first head
    assert drawn(page) == sum(n_lines(picture, "cross", 0, [0, 2]))
    page.value("document.querySelector('#queries li').focus()")
    press(page, "ArrowDown", "ArrowDown")
    lines = n_lines(picture, "cross", 0, [0, 2])
    assert drawn(page) == lines[2]
    press(page, "Enter", "End")  # keep it, and go on
    assert drawn(page) == lines[2]
    press(page, "Escape", "ArrowUp")
    assert drawn(page) == lines[3]


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone(picture: AttentionPicture, tmp_path: Path, scheme: str) -> None:
    write_page(picture, tmp_path / "page.html")
    with browser(tmp_path / "profile") as page:
        page.open(tmp_path / "page.html", width=390, dark=scheme == "dark")
        assert page.value("document.documentElement.scrollWidth") <= 390
        page.click("[data-finding='1']")
        place = page.value("document.getElementById('links').getBoundingClientRect().top")
        assert 0 < place < 900
        paper = page.value("getComputedStyle(document.body).backgroundColor")
        assert paper == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(21, 22, 24)")
        assert page.complaints() == []
