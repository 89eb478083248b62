"""Translated files: every format keeps the lines, and an interrupted translation resumes."""

import json
from collections.abc import Iterable
from itertools import accumulate, combinations
from pathlib import Path
from typing import Any

import pytest
from bundles import publish_bundle
from hypothesis import given
from hypothesis import strategies as st
from models import tiny

import nmtkit
from nmtkit.config.settings import EngineName, EnginePrecision
from nmtkit.decoding.output_formats import Format
from nmtkit.decoding.text_files import Output, _depends_on, growing_parts, translate
from nmtkit.decoding.text_translator import Translation
from nmtkit.utils.errors import Advance

LONG = "The cat sat. A dog ran away. Who looked? " * 4


LINES = ["The well-known cat sat.", "", "cat | dog", LONG, "   ", "Who looked?"]


SENTENCES = ["Who looked?", "The cat sat.", "A dog ran away."]


def output_of(translator: nmtkit.Translator, output: Output, folder: Path) -> list[str]:
    """The lines of the translation of `LINES`."""
    source = folder / "source"
    target = folder / "target"
    source.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8", newline="\n")
    translate(translator, output, source, target)
    return target.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def test_file_has_text_of_translator(translator: nmtkit.Translator, tmp_path: Path) -> None:
    texts = [translation.text for translation in translator.translate(LINES)]
    assert output_of(translator, Output("text", 1, align=False), tmp_path) == texts
    assert texts[1] == texts[4] == ""
    assert len(set(texts)) == 5


@pytest.mark.parametrize("engine", [EngineName.TORCH, EngineName.CTRANSLATE2])
@pytest.mark.parametrize("n_done", [0, 1, 2])
def test_stopped_file_resumes(
    n_done: int, engine: EngineName, bundle: Path, tmp_path: Path
) -> None:
    """A sentence's score depends on its batch by rounding, so the parts must be the same."""
    output = Output("json", 2, align=False)
    parts: list[list[str]] = []
    stops: list[int] = []

    class WatchedTranslator(nmtkit.Translator):
        def n_best(
            self, lines: Iterable[str], n: int, advance: Advance = lambda _: None
        ) -> list[list[Translation]]:
            part = list(lines)
            if len(part) in stops:
                stops.remove(len(part))
                raise KeyboardInterrupt
            parts.append(part)
            return super().n_best(part, n, advance)

    def translate_lines() -> list[str]:
        parts.clear()
        translator = WatchedTranslator(bundle, device="cpu", engine=engine)
        return output_of(translator, output, tmp_path)

    expected = translate_lines()
    uninterrupted = sorted(parts, key=len)
    assert [len(part) for part in uninterrupted] == [1, 2, 3]
    (tmp_path / "target").unlink()
    stops.append(n_done + 1)
    with pytest.raises(KeyboardInterrupt):
        translate_lines()
    assert not (tmp_path / "target").exists()
    assert translate_lines() == expected
    assert sorted(parts, key=len) == uninterrupted[n_done:]


def test_draft_depends_on_all_options(bundle: Path, tmp_path: Path) -> None:
    other = publish_bundle(tmp_path / "other", tiny(), seed=4)

    def inputs(
        bundle: Path = bundle, text: str = "0", format_name: Format = "text", **options: Any
    ) -> dict[str, str]:
        translator = nmtkit.Translator(bundle, device="cpu", **options)
        return _depends_on(translator, Output(format_name, 1, align=False), text)

    drafts = [
        inputs(),
        inputs(bundle=other),
        inputs(text="1"),
        inputs(format_name="json"),
        inputs(beam_size=2),
        inputs(length_penalty=0.5),
        inputs(engine=EngineName.TORCH),
        inputs(dtype=EnginePrecision.FLOAT32),
        inputs(split_sentences=False),
    ]
    assert drafts[0] == inputs()
    for first, second in combinations(drafts, 2):
        assert first != second


def test_cut_sentence_is_warned_about(
    translator: nmtkit.Translator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "source"
    long = "cat " * 60
    text = f"{' '.join(SENTENCES)}\n{SENTENCES[0]} {long}. {SENTENCES[1]}\n{long}. And {long}\n"
    source.write_text(text, encoding="utf-8", newline="\n")
    translate(translator, Output("text", 1, align=False), source, tmp_path / "target")
    warnings = [line for line in capsys.readouterr().err.split("\n") if "warning" in line]
    assert [line.split(" has ")[0] for line in warnings] == ["warning: line 2", "warning: line 3"]
    assert "a sentence" in warnings[0]
    assert "2 sentences" in warnings[1]


def test_json_details_add_up(translator: nmtkit.Translator, tmp_path: Path) -> None:
    lines = output_of(translator, Output("json", 2, align=True), tmp_path)
    rows = [json.loads(line) for line in lines]
    assert [row["source"] for row in rows] == LINES
    for line, translations in zip(LINES, translator.n_best(LINES, 2), strict=True):
        details = rows[LINES.index(line)]["translations"]
        assert len(details) == len(translations)
        for detail, translation in zip(details, translations, strict=True):
            assert detail["text"] == translation.text
            assert detail["log_prob"] == pytest.approx(translation.log_prob, abs=1e-4)
            assert sum(detail["token_log_probs"]) == pytest.approx(detail["log_prob"], abs=1e-2)
            assert detail["tokens"].count("</s>") == translation.n_pieces
            assert len(detail["tokens"]) == translation.n_tokens + translation.n_pieces
            links = [tuple(map(int, link.split("-"))) for link in detail["alignment"].split()]
            assert {tgt for _, tgt in links} == set(range(len(detail["words"])))
            assert {src for src, _ in links} <= set(range(len(detail["source_words"])))
    assert translator.translate([LONG])[0].n_pieces > 2
    pharaohs = output_of(translator, Output("pharaoh", 1, align=True), tmp_path)
    assert pharaohs == [row["translations"][0]["alignment"] for row in rows]


@given(st.integers(0, 200), st.integers(1, 40))
def test_parts_after_stop_are_the_same(n: int, max_lines: int) -> None:
    parts = list(growing_parts([range(n)], max_lines))
    for k, n_done in enumerate(accumulate(map(len, parts), initial=0)):
        assert list(growing_parts([range(n_done, n)], max_lines, n_done)) == parts[k:]
