"""The command that shows what a model attends to, and the heads that it finds."""

import json
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from bundles import publish_bundle
from models import tiny

import nmtkit
from nmtkit import cli
from nmtkit.cli.attention import findings
from nmtkit.machine import EngineName

SENTENCE = "The well-known cat sat."


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish_bundle(tmp_path_factory.mktemp("bundle"), tiny(max_positions=24), seed=3)


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int | str | None:
    monkeypatch.setattr(sys, "argv", ["nmtkit", "attention", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    return end.value.code


def test_command_writes_all_weights_and_pictures(
    bundle: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    html, svg = tmp_path / "a.html", tmp_path / "a.svg"
    options = ["--bundle", bundle, "--html", html, "--svg", svg, "--view", "cross.2.3", "--json"]
    assert run(monkeypatch, SENTENCE, *options) == 0
    told = json.loads(capsys.readouterr().out)
    translator = nmtkit.Translator(bundle, device="cpu", engine=EngineName.TORCH)
    (translation,) = translator.translate([SENTENCE])
    assert told["target"] == translation.text
    assert not told["is_given"]
    kinds = ("encoder", "decoder", "cross")
    (src, _), (read, _), (written, _) = (told["words"][kind] for kind in kinds)
    assert src[-1] == written[-1] == "</s>"
    assert read == ["<s>", *written[:-1]]
    shapes = {kind: torch.tensor(layers).shape for kind, layers in told["weights"].items()}
    n_src, n_tgt = len(src), len(written)
    assert shapes == {
        "encoder": (2, 3, n_src, n_src),
        "decoder": (2, 3, n_tgt, n_tgt),
        "cross": (2, 3, n_tgt, n_src),
    }
    title = ElementTree.parse(svg).getroot().findtext("{http://www.w3.org/2000/svg}title")
    assert title == "encoder-decoder attention, layer 2, head 3"
    assert SENTENCE in html.read_text(encoding="utf-8")
    assert {each.name for each in tmp_path.iterdir()} == {"a.html", "a.svg"}


def test_a_translation_can_be_given(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["A dog looked.", "--target", "Who sat?", "--bundle", bundle]
    assert run(monkeypatch, *options, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["source"], told["target"], told["is_given"]) == ("A dog looked.", "Who sat?", True)
    assert run(monkeypatch, *options) == 0
    assert "alignment" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([" \t"], "SENTENCE is blank"),
        (["cat\udcff"], r"'cat\udcff' is not valid UTF-8"),  # as Python has the byte 0xff
        (["cat", "--target", "\udcff"], "is not valid UTF-8"),
        (["cat " * 30], "at most 24 can be shown"),
        (["cat", "--target", "cat " * 30], "at most 24 can be shown"),
        (["cat", "--view", "encoder.1"], "add --svg FILE"),
        (["cat", "--svg", "{}/x.svg", "--view", "encode.1"], "is not understood; write KIND.LAYER"),
        (["cat", "--svg", "{}/x.svg", "--view", "encoder.all"], "is not understood"),
        (["cat", "--svg", "{}/x.svg", "--view", "encoder.3"], "name one of layers 1 to 2"),
        (["cat", "--svg", "{}/x.svg", "--view", "cross.1.4"], "name one of heads 1 to 3"),
        (["cat", "--svg", "{}/x.svg", "--view", "cross.1.all.99"], "name one of words 1 to"),
        (["cat", "--html", "{}/no/x.html"], "/no, which is not a folder"),
    ],
)
def test_mistakes_get_one_sentence(
    bundle: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    given = [each.replace("{}", str(tmp_path)) for each in arguments]
    code = run(monkeypatch, *given, "--bundle", bundle)
    assert message in str(code)
    assert str(code).count("\n") == 0
    assert not list(tmp_path.iterdir())


# Heads that are found


def test_heads_are_found_by_what_they_do() -> None:
    src = ["the", "dog", "bites", "a", "man", "because", "it", "is", "bad", "</s>"]
    n, n_tgt = len(src), 5
    encoder = np.full((2, 4, n, n), 1 / n)
    encoder[0, 1] = 0.0
    encoder[0, 1, :, -1] = 1.0  # all look at the end
    encoder[1, 0] = np.roll(np.eye(n), -1, 1)  # each at the one before
    encoder[1, 2, 6] = 0.0
    encoder[1, 2, 6, 1] = 1.0  # "it" at "dog"
    encoder[1, 3] = 0.0
    for query, key in enumerate([1, 0, 0, 4, 2, 2, 4, 6, 1, 0]):
        encoder[1, 3, query, key] = 0.9
    cross = np.full((2, 4, n_tgt, n), 1 / n)
    cross[1, 2] = np.eye(n)[1 : n_tgt + 1]
    found = {each.name: each.view for each in findings(encoder, cross, src, "en")}
    named = {name: (view.kind, view.layer, view.head, view.query) for name, view in found.items()}
    assert named == {
        "alignment": ("cross", 2, 3, None),
        "long distance": ("encoder", 2, None, 7),
        "anaphora": ("encoder", 2, 3, 7),
        "structure": ("encoder", 2, 4, None),
    }
    others = findings(encoder, cross, src, "xx")
    assert "anaphora" not in [each.name for each in others]


@pytest.mark.parametrize(("n_src", "n_tgt"), [(1, 1), (2, 1), (1, 3), (2, 2), (3, 2)])
def test_short_sentences_are_no_trouble(n_src: int, n_tgt: int) -> None:
    generator = np.random.default_rng(1)
    encoder, cross = (generator.dirichlet(np.ones(n_src), size=(1, 2, n)) for n in (n_src, n_tgt))
    for finding in findings(encoder, cross, ["a", "b", "</s>"][-n_src:], "en"):
        assert -1 <= finding.value <= 1 + 1e-6
