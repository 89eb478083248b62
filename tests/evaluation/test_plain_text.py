"""Warnings about text that is not plain; the first one is compared with sacreBLEU's command."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from nmtkit.evaluation.plain_text import training_warnings, warnings

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
    ("end", "count"),
    [("A dog .", 99), ("A dog . ", 100), ("A dog .\u00a0", 100), (".", 100), ("a\u00a0.", 100)],
)
def test_tokenized_text_equals_sacrebleu(end: str, count: int, tmp_path: Path) -> None:
    # In fewer lines, a space before punctuation is enough.
    hyps = ["A cat."] + count * [end] + 400 * ["A cow."]
    found = list(warnings(hyps, [["A cat."]]))
    assert bool(found) == sacrebleu_warns(hyps, tmp_path)
    if found:
        assert "100 of 501 lines" in found[0]
        assert "line 2" in found[0]


@pytest.mark.parametrize(
    ("text", "mark"),
    [
        ("Hun@@ de und Kat@@ zen", "@@"),
        ("Hunde und Kat@@", "@@"),
        ("\u2581Hunde \u2581und", "\u2581"),
        ("Hunde und Kat ##zen", "##"),
        ("Hunde und Kat\uffed zen", "\uffed"),
        ("Hunde</w> und</w>", "</w>"),
        ("Hun de_ und_ Kat zen_ ._", "_"),
        ("Hunde und <unk>", "<unk>"),
        ("Hunde und [UNK]", "[UNK]"),
        ("Die \u0120Hunde \u0120und \u0120Katzen", "\u0120"),
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


PREPARED = {
    "_ (subwords)": "The house_ no. zen_ {}_",
    "<unk>": "The <unk> number {}",
    "token ids": "17 4 {} 2",
    "key or number": "en-{}",
    "Chinese": "\u6211\u4eec \u90fd \u559c\u6b22 {} \u6211\u4eec \u90fd \u559c\u6b22",
    "@@": "The hou@@ se number {}",
    "##": "The hou ##se number {}",
    "\u2581": "\u2581The \u2581house \u2581number {}",
    "spaces before punctuation": "The house , number {} .",
    "&apos;": "The house &apos;s number {}",
}


@pytest.mark.parametrize("sign", PREPARED)
def test_training_text_in_tokens_or_subwords(sign: str) -> None:
    plain = [(f"The house, no. {i}.", f"Das Haus Nr. {i}: gut!") for i in range(60)]
    prepared = [(src, PREPARED[sign].format(i)) for i, (src, _) in enumerate(plain)]
    assert list(training_warnings(plain, ["en", "de"])) == []
    # A model may read tokens; it makes subwords itself.
    found = "".join(training_warnings(plain + prepared, ["en", "de"], has_tokens=True))
    is_of_tokens = sign in ("Chinese", "spaces before punctuation", "&apos;")
    assert (sign in found) != is_of_tokens
    swapped = [(tgt, src) for src, tgt in plain + prepared]
    found = "".join(training_warnings(swapped, ["de", "en"]))
    assert sign in found
    assert "60 of 120 pairs in de (pair 61" in found
    # Scores are warned of by the same check, on both sides.
    hyps, references = zip(*plain, *prepared, strict=True)
    for sides in ([hyps, references], [references, hyps]):
        found = "".join(warnings(sides[0], [sides[1]]))
        # Entities of a reference may be part of the text.
        assert sign in found or (sign == "&apos;" and sides[0] is hyps)


def test_one_translation_of_many_sentences() -> None:
    pairs = [(f"sentence {i}", "N/A" if i % 10 == 3 else f"Satz {i}") for i in range(200)]
    [found] = training_warnings(pairs, ["en", "de"])
    assert "'N/A'" in found
    assert "20 different" in found
    # The same pair may be repeated, and a short answer has a few sources.
    greetings = [("Hello.", "Hallo.")] * 50 + [(f"Yes{i}", "Ja.") for i in range(5)]
    assert list(training_warnings(greetings + pairs[4:12], ["en", "de"])) == []


def test_news_is_plain(shared_data: Path) -> None:
    texts = []
    for lang in ("en", "de"):
        path = shared_data / "newstest" / f"newstest2013.{lang}"
        texts.append(path.read_text(encoding="utf-8").split("\n"))
    assert list(training_warnings(list(zip(*texts, strict=True)), ["en", "de"])) == []
