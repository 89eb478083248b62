"""The command that shows what a model attends to, and the heads that it finds."""

import json
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from bundles import publish_bundle
from models import tiny

import nmtkit
from nmtkit import cli
from nmtkit.commands.attention import findings
from nmtkit.decoding.forced import Attended
from nmtkit.machine import EngineName
from nmtkit.reporting.exhibit import read_exhibit

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
    options = ["--bundle", bundle, "--html", html, "--svg", svg, "--show", "cross.2.3", "--json"]
    options += ["--runs-dir", tmp_path / "runs"]
    assert run(monkeypatch, SENTENCE, *options) == 0
    told = json.loads(capsys.readouterr().out)
    translator = nmtkit.Translator(bundle, device="cpu", engine=EngineName.TORCH)
    (translation,) = translator.translate([SENTENCE])
    assert told["target"] == translation.text
    assert not told["is_given"]
    assert told["src"][-1] == told["tgt_out"][-1] == "</s>"
    assert told["tgt_in"] == ["<s>", *told["tgt_out"][:-1]]
    shapes = {kind: torch.tensor(layers).shape for kind, layers in told["weights"].items()}
    n_src, n_tgt = len(told["src"]), len(told["tgt_out"])
    assert shapes == {
        "encoder": (2, 3, n_src, n_src),
        "decoder": (2, 3, n_tgt, n_tgt),
        "cross": (2, 3, n_tgt, n_src),
    }
    assert ElementTree.parse(svg).getroot().findtext("{*}title") == (
        "encoder-decoder attention, layer 2, head 3"
    )
    assert SENTENCE in html.read_text(encoding="utf-8")
    assert {each.name for each in tmp_path.iterdir()} == {"a.html", "a.svg", "runs"}
    exhibit = read_exhibit(tmp_path / "runs", "figures-3-5")
    assert exhibit is not None
    assert len(exhibit.drawings) == len(exhibit.notes) == len(told["findings"])
    assert exhibit.command == f"nmtkit attention --bundle {bundle} '{SENTENCE}'"
    for drawing in exhibit.drawings:
        ElementTree.fromstring(drawing.svg)


def test_line_of_a_test_set_and_its_reference(
    bundle: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, lines in (("src", "cat\nA dog looked.\n"), ("ref", "x\nWho sat?\n")):
        (tmp_path / name).write_text(lines, encoding="utf-8", newline="\n")
    options = ["-i", tmp_path / "src", "--ref", tmp_path / "ref", "--line", 2, "--bundle", bundle]
    options += ["--runs-dir", tmp_path / "runs"]
    assert run(monkeypatch, *options, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["source"], told["target"], told["is_given"]) == ("A dog looked.", "Who sat?", True)
    assert run(monkeypatch, *options) == 0
    assert "the end symbol" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "takes either a SENTENCE or --input"),
        ([" \t"], "the sentence is blank"),
        (["cat\udcff"], r"'cat\udcff' is not valid UTF-8"),  # as Python has the byte 0xff
        (["cat", "--target", "\udcff"], "is not valid UTF-8"),
        (["cat " * 30], "at most 24 can be shown"),
        (["cat", "--target", "cat " * 30], "at most 24 can be shown"),
        (["cat", "--ref", "x"], "--ref is an option of --input"),
        (["cat", "--show", "encoder.1"], "--show is an option of --svg"),
        (["cat", "--svg", "{}/x.svg", "--show", "encode.1"], "is not understood; write KIND.LAYER"),
        (["cat", "--svg", "{}/x.svg", "--show", "encoder.all"], "is not understood"),
        (["cat", "--svg", "{}/x.svg", "--show", "encoder.3"], "there are layers 1 to 2 here"),
        (["cat", "--svg", "{}/x.svg", "--show", "cross.1.x"], "there are heads 1 to 3 here"),
        (["cat", "--svg", "{}/x.svg", "--show", "cross.1.all.99"], "there are words 1 to"),
        (["-i", "{}/src", "--line", "3"], "has no line 3; give another --line"),
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
    (tmp_path / "src").write_text("a\nb\n", encoding="utf-8", newline="\n")
    given = [each.replace("{}", str(tmp_path)) for each in arguments]
    code = run(monkeypatch, *given, "--bundle", bundle, "--runs-dir", tmp_path / "runs")
    assert message in str(code)
    assert str(code).count("\n") == 0
    assert {each.name for each in tmp_path.iterdir()} == {"src"}


# Heads that are found


def test_heads_are_found_by_what_they_do() -> None:
    src = ["the", "dog", "bites", "a", "man", "because", "it", "is", "bad", "</s>"]
    n, n_tgt = len(src), 5
    encoder = torch.full((2, 4, n, n), 1 / n)
    encoder[0, 1] = 0.0
    encoder[0, 1, :, -1] = 1.0  # all look at the end
    encoder[1, 0] = torch.eye(n).roll(-1, 1)  # each at the one before
    encoder[1, 2, 6] = 0.0
    encoder[1, 2, 6, 1] = 1.0  # "it" at "dog"
    encoder[1, 3] = 0.0
    for query, key in enumerate([1, 0, 0, 4, 2, 2, 4, 6, 1, 0]):
        encoder[1, 3, query, key] = 0.9
    cross = torch.full((2, 4, n_tgt, n), 1 / n)
    cross[0, 3] = torch.eye(n)[:n_tgt]
    cross[1, 2] = torch.eye(n)[1 : n_tgt + 1]
    decoder = torch.eye(n_tgt).expand(2, 4, -1, -1)
    found = {
        each.name: each.view for each in findings(Attended(encoder, decoder, cross), src, "en")
    }
    named = {name: (view.kind, view.layer, view.head, view.query) for name, view in found.items()}
    assert named == {
        "alignment": ("cross", 2, 3, None),
        "reading along": ("cross", 1, 4, None),
        "long distance": ("encoder", 2, None, 7),
        "anaphora": ("encoder", 2, 3, 7),
        "structure": ("encoder", 2, 4, None),
        "the word before": ("encoder", 2, 1, None),
        "the end symbol": ("encoder", 1, 2, None),
    }
    others = findings(Attended(encoder, decoder, cross), src, "xx")
    assert "anaphora" not in [each.name for each in others]


@pytest.mark.parametrize(("n_src", "n_tgt"), [(1, 1), (2, 1), (1, 3), (2, 2), (3, 2)])
def test_short_sentences_are_no_trouble(n_src: int, n_tgt: int) -> None:
    sizes = ((n_src, n_src), (n_tgt, n_tgt), (n_tgt, n_src))
    found = Attended(*(torch.randn(1, 2, *size).softmax(-1) for size in sizes))
    for finding in findings(found, ["a", "b", "</s>"][-n_src:], "en"):
        assert 0 <= finding.value <= 1 + 1e-6
