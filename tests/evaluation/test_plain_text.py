"""Warnings about text that is not plain; the first one is compared with sacreBLEU's command."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from nmtkit.evaluation.plain_text import warnings

PLAIN = [
    "A cat & a dog.",
    "It is 5 &; R&B; AT&T; &notes; &#; so.",
    "mail@@home.org",
    "_ __",
    "a . b",
    ".",
]


def sacrebleu_warns(hyps: Sequence[str], folder: Path) -> bool:
    for name in ("hyp", "ref"):
        (folder / name).write_text("".join(f"{hyp}\n" for hyp in hyps), encoding="utf-8")
    command = [sys.executable, "-m", "sacrebleu", "ref", "-i", "hyp"]
    ended = subprocess.run(command, cwd=folder, capture_output=True, check=True)
    return b"forgot to detokenize" in ended.stderr


@pytest.mark.parametrize(
    ("end", "count"), [("A dog .", 99), ("A dog . ", 100), (".", 100), ("a\u00a0.", 100)]
)
def test_tokenized_text_equals_sacrebleu(end: str, count: int, tmp_path: Path) -> None:
    hyps = ["A cat.", *count * [end], "A cow."]
    found = list(warnings(hyps, [hyps]))
    assert bool(found) == sacrebleu_warns(hyps, tmp_path)
    if found:
        assert "100 of 102 lines" in found[0]
        assert "line 2" in found[0]


@pytest.mark.parametrize(
    ("text", "mark"),
    [
        ("Hun@@ de und Kat@@ zen", "@@"),
        ("Hunde und Kat@@", "@@"),
        ("\u2581Hunde \u2581und", "\u2581"),
        ("&quot;Ja&quot;", "&quot;"),
        ("Tom &amp; Jerry", "&amp;"),
        ("it &#39;s &apos;s", "&#39;"),
        ("&#x27;", "&#x27;"),
        ("a &lt; b", "&lt;"),
        ("a &#124; b", "&#124;"),
    ],
)
def test_subwords_and_entities_are_named(text: str, mark: str) -> None:
    (found,) = warnings([*PLAIN, text, text], [[*PLAIN, "x", "x"]])
    assert mark in found
    assert f"2 of {len(PLAIN) + 2} lines" in found
    assert f"line {len(PLAIN) + 1}" in found
