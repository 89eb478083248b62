"""nmtkit inspect: its output, its page, and that the prepared corpus is not touched."""

import json
from pathlib import Path

from system.command import RECIPE, artifact, done, nmtkit, traces
from system.conftest import N_TRAIN


def test_inspect_prints_and_writes_page(prepared: Path) -> None:
    before = traces(prepared / "runs")
    page = prepared / "page.html"
    ended = done(nmtkit(prepared, "inspect", RECIPE, "--html", page.name))
    assert "wrote page.html" in ended.err
    assert f"runs/prepare/{artifact(prepared, 'prepare').name}" in ended.out
    for title in ("Training corpora", "Lengths in subwords", "train.en-de, line 1"):
        assert title in ended.out
    first = [line for line in ended.out.split("\n") if line.startswith(("  en: ", "  de: "))]
    assert len(first) == 6
    for lang, printed in (("en", first[::2]), ("de", first[1::2])):
        text = (prepared / f"train.{lang}").read_text(encoding="utf-8").split("\n")
        assert [line[6:80] for line in printed] == [line[:74] for line in text[:3]]
    html = page.read_text(encoding="utf-8")
    assert html.startswith("<!doctype html>")
    assert html.endswith("</html>\n")
    # A value of [model] changes the statistics and not the prepared corpus.
    options = ("--json", "--set", "model.max_positions=5")
    statistics = json.loads(done(nmtkit(prepared, "inspect", RECIPE, *options)).out)
    assert statistics["corpora"][0]["pairs"] == N_TRAIN
    assert 0 < statistics["n_too_long"] < N_TRAIN
    assert traces(prepared / "runs") == before
