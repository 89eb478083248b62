"""A text through a bundle: every format keeps the lines, whatever they hold."""

import builtins
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from itertools import combinations, product
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch
from bundles import publish_bundle
from hypothesis import given
from hypothesis import strategies as st
from models import tiny
from system.kills import BeforeOperation, attempt

import nmtkit
from nmtkit.cli import kept
from nmtkit.cli.text import Output, _made_from, _search, _write_file, translate
from nmtkit.decoding.engine import Hypothesis
from nmtkit.decoding.formats import Format
from nmtkit.decoding.lines import Translation, _best_combinations
from nmtkit.errors import UserError
from nmtkit.machine import EngineName, EnginePrecision
from nmtkit.store import MANIFEST, publish_directory

LONG = "The cat sat. A dog ran away. Who looked? " * 4
LINES = ["The well-known cat sat.", "", "cat | dog", LONG, "   ", "Who looked?"]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish_bundle(tmp_path_factory.mktemp("bundle"), tiny(max_positions=24), seed=3)


@pytest.fixture(scope="module")
def translator(bundle: Path) -> nmtkit.Translator:
    return nmtkit.Translator(bundle, device="cpu", engine=EngineName.TORCH)


def output_of(translator: nmtkit.Translator, output: Output, folder: Path) -> list[str]:
    """What is written of `LINES`."""
    source, target = folder / "source", folder / "target"
    source.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8", newline="\n")
    translate(translator, output, source, target)
    return target.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def test_python_and_the_command_give_the_same_text(
    translator: nmtkit.Translator, tmp_path: Path
) -> None:
    texts = [translation.text for translation in translator.translate(LINES)]
    assert output_of(translator, Output(Format.TEXT, 1, align=False), tmp_path) == texts
    assert texts[1] == texts[4] == ""
    assert len(set(texts)) == 5


def test_a_pipe_is_translated_into_a_pipe(translator: nmtkit.Translator, tmp_path: Path) -> None:
    texts = [translation.text for translation in translator.translate(LINES)]
    source, target = tmp_path / "source", tmp_path / "target"
    for pipe in (source, target):
        os.mkfifo(pipe)
    got: list[str] = []
    threads = [
        Thread(target=source.write_text, args=("".join(f"{line}\n" for line in LINES),)),
        Thread(target=lambda: got.append(target.read_text(encoding="utf-8"))),
    ]
    for thread in threads:
        thread.start()
    translate(translator, Output(Format.TEXT, 1, align=False), source, target)
    for thread in threads:
        thread.join()
    assert got == ["".join(f"{text}\n" for text in texts)]
    assert {path.name for path in tmp_path.iterdir()} == {"source", "target"}


# Resumed

PARTS = [(1, "erste\n"), (2, "zweite\u2028\n\n"), (1, "vierte\n")]
WHOLE = "".join(text for _, text in PARTS)


def write_parts(file: Path, n_parts: int = len(PARTS), made_from: str = "these") -> list[int]:
    """Write what is missing, up to so many parts, and return how many lines were there."""
    asked: list[int] = []

    def written(n_done: int) -> Iterator[tuple[int, str]]:
        asked.append(n_done)
        n_lines = 0
        for number, (n, text) in enumerate(PARTS):
            if number == n_parts:
                raise KeyboardInterrupt
            if n_lines >= n_done:
                yield n, text
            n_lines += n

    _write_file(written, file, 4, {"text": made_from})
    return asked


def test_kill_at_any_moment_loses_nothing(tmp_path: Path) -> None:
    def work(folder: Path) -> None:
        write_parts(folder / "out")

    (tmp_path / "whole").mkdir()
    undisturbed = attempt(work, tmp_path / "whole")
    assert undisturbed.code == 0
    for point in range(1, undisturbed.operations + 1):
        folder = tmp_path / f"{point}"
        folder.mkdir()
        assert attempt(work, folder, "sorted", BeforeOperation(point)).killed
        assert attempt(work, folder).code == 0
        assert (folder / "out").read_text(encoding="utf-8") == WHOLE
        assert [path.name for path in folder.iterdir()] == ["out"]


def test_what_was_written_is_continued_unless_it_is_of_another_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, draft = tmp_path / "out", tmp_path / ".out.nmtkit" / "draft" / "text"
    for made_from, done in (("these", [3]), ("others", [0])):
        with pytest.raises(KeyboardInterrupt):
            write_parts(out, 2, made_from)
        assert not out.exists()
        with draft.open("ab") as file:
            file.write(b"half a li")  # of a part that was not recorded
        assert write_parts(out) == done
        assert out.read_text(encoding="utf-8") == WHOLE
        assert [path.name for path in tmp_path.iterdir()] == ["out"]
        out.unlink()
    assert "was begun with another text; starting anew" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("engine", [EngineName.TORCH, EngineName.CTRANSLATE2])
def test_line_in_which_nothing_is_seen_stays_blank(engine: EngineName, bundle: Path) -> None:
    translator = nmtkit.Translator(bundle, device="cpu", engine=engine)
    blank = ["\u200b", "\u00ad\ufeff", " \u2060\t\u180e", "\u3164", "\ufe0f\u200d", "\x07"]
    seen = translator.translate(["cat", *(f"cat{each}" for each in blank)])
    assert all(translation.text for translation in seen)
    for translation in translator.translate(blank):
        assert (translation.text, translation.log_prob, translation.src) == ("", 0, [])


@pytest.mark.parametrize("engine", [EngineName.TORCH, EngineName.CTRANSLATE2])
@pytest.mark.parametrize("n_done", [0, 1, 2])
def test_stopped_translation_of_a_file_is_resumed_with_the_same_parts(
    n_done: int, engine: EngineName, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sentence's rating depends on its batch by rounding, and so on the processor."""
    output = Output(Format.JSON, 2, align=False)
    parts: list[list[str]] = []
    stops: list[int] = []
    n_best = nmtkit.Translator.n_best

    def watched(self: nmtkit.Translator, lines: list[str], *args: Any) -> list[list[Translation]]:
        if len(lines) in stops:
            stops.remove(len(lines))
            raise KeyboardInterrupt
        parts.append(lines)
        return n_best(self, lines, *args)

    def written() -> list[str]:
        parts.clear()
        return output_of(nmtkit.Translator(bundle, device="cpu", engine=engine), output, tmp_path)

    monkeypatch.setattr(nmtkit.Translator, "n_best", watched)
    expected = written()
    undisturbed = sorted(parts, key=len)
    assert [len(part) for part in undisturbed] == [1, 2, 3]
    (tmp_path / "target").unlink()
    stops.append(n_done + 1)
    with pytest.raises(KeyboardInterrupt):
        written()
    assert bool(kept("")) == bool(n_done)
    assert not (tmp_path / "target").exists()
    assert written() == expected
    assert sorted(parts, key=len) == undisturbed[n_done:]


def test_the_next_part_is_searched_while_one_ends_but_none_that_has_yet_to_arrive(
    bundle: Path,
) -> None:
    translator = nmtkit.Translator(bundle, device="cpu", engine=EngineName.CTRANSLATE2)
    begun: list[int] = []

    def parts() -> Iterator[list[str]]:
        for line in LINES:
            begun.append(len(begun))
            yield [line]

    ahead = _search(translator, 1, parts(), is_ahead=True)
    assert next(ahead)[0] == LINES[:1]
    assert begun == [0, 1]
    assert [part for part, _ in ahead] == [[line] for line in LINES[1:]]
    begun.clear()
    assert next(_search(translator, 1, parts(), is_ahead=False))[0] == LINES[:1]
    assert begun == [0]


def test_draft_of_another_translation_is_not_resumed(bundle: Path, tmp_path: Path) -> None:
    other = publish_bundle(tmp_path / "other", tiny(), seed=4)

    def made_from(
        bundle: Path = bundle, text: str = "0", how: Format = Format.TEXT, **options: Any
    ) -> dict[str, str]:
        translator = nmtkit.Translator(bundle, device="cpu", **options)
        return _made_from(translator, Output(how, 1, align=False), text)

    made = [
        made_from(),
        made_from(bundle=other),
        made_from(text="1"),
        made_from(how=Format.JSON),
        made_from(beam_size=2),
        made_from(length_penalty=0.5),
        made_from(engine=EngineName.TORCH),
        made_from(dtype=EnginePrecision.FLOAT32),
    ]
    assert made[0] == made_from()
    assert all(one != another for one, another in combinations(made, 2))


def test_lines_may_come_from_anywhere_but_not_as_one_string(translator: nmtkit.Translator) -> None:
    texts = [translation.text for translation in translator.translate(LINES)]
    assert [each.text for each in translator.translate(line for line in LINES)] == texts
    with pytest.raises(TypeError, match="give a list of lines"):
        translator.translate("The cat sat.")
    with pytest.raises(TypeError, match="give a list of lines"):
        translator.n_best("The cat sat.", 2)


@pytest.mark.parametrize("n", [1, 3])
def test_n_best_lists_are_numbered_by_line(
    translator: nmtkit.Translator, tmp_path: Path, n: int
) -> None:
    written = output_of(translator, Output(Format.MOSES, n, align=False), tmp_path)
    columns = [line.split(" ||| ") for line in written]
    assert [int(number) for number, *_ in columns] == [
        i for i, line in enumerate(LINES) for _ in range(n if line.strip() else 1)
    ]
    best = {int(number): text for number, text, *_ in reversed(columns)}
    texts = [translation.text for translation in translator.translate(LINES)]
    assert [best[i].replace("&#124;", "|") for i in range(len(LINES))] == texts
    scores = [(int(number), -float(total)) for number, *_, total in columns]
    assert scores == sorted(scores)


def test_json_has_a_line_for_each_line_and_adds_up(
    translator: nmtkit.Translator, tmp_path: Path
) -> None:
    written = output_of(translator, Output(Format.JSON, 2, align=True), tmp_path)
    told = [json.loads(line) for line in written]
    assert [each["source"] for each in told] == LINES
    for line, translations in zip(LINES, translator.n_best(LINES, 2), strict=True):
        of_line = told[LINES.index(line)]["translations"]
        assert [each["text"] for each in of_line] == [each.text for each in translations]
        for each, translation in zip(of_line, translations, strict=True):
            assert each["log_prob"] == pytest.approx(translation.log_prob, abs=1e-4)
            assert sum(each["token_log_probs"]) == pytest.approx(each["log_prob"], abs=1e-2)
            assert each["tokens"].count("</s>") == translation.n_pieces
            assert len(each["tokens"]) == translation.n_tokens + translation.n_pieces
            links = [tuple(map(int, link.split("-"))) for link in each["alignment"].split()]
            assert {tgt for _, tgt in links} == set(range(len(each["words"])))
            assert {src for src, _ in links} <= set(range(len(each["source_words"])))
    assert translator.translate([LONG])[0].n_pieces > 2


def test_fairseq_has_all_lines_of_each_line(translator: nmtkit.Translator, tmp_path: Path) -> None:
    written = output_of(translator, Output(Format.FAIRSEQ, 1, align=False), tmp_path)
    kinds = [re.match(r"([SHDP])-(\d+)\t", line) for line in written]
    expected = [(kind, str(i)) for i in range(len(LINES)) for kind in "SHDP"]
    assert [kind and kind.groups() for kind in kinds] == expected
    texts = [line.split("\t")[2] for line in written if line.startswith("D-")]
    assert texts == [translation.text for translation in translator.translate(LINES)]


def test_beam_and_length_penalty_are_taken_in_place_of_the_bundles(bundle: Path) -> None:
    changed = nmtkit.Translator(str(bundle), device="cpu", beam_size=2, length_penalty=0.0)
    assert (changed.decoding.beam_size, changed.decoding.length_penalty) == (2, 0.0)
    (translation,) = changed.translate(["The cat"])
    assert translation.score == translation.log_prob
    with pytest.raises(UserError, match="beam_size = 0"):
        nmtkit.Translator(bundle, device="cpu", beam_size=0)


def test_bundles_with_one_vocabulary_make_an_ensemble(
    bundle: Path, tmp_path: Path, translator: nmtkit.Translator
) -> None:
    same = nmtkit.Translator(bundle, bundle, device="cpu").translate(LINES)
    alone = translator.translate(LINES)
    assert [each.text for each in same] == [each.text for each in alone]
    other = publish_bundle(tmp_path, tiny(max_positions=12, n_layers=1), seed=4)
    both = nmtkit.Translator(bundle, other, device="cpu")
    assert [each.text for each in both.translate(LINES)] != [each.text for each in alone]
    assert both.max_subwords == 12


def test_bundles_with_different_vocabularies_are_refused(bundle: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(bundle, tmp_path / "other"))
    vocabulary = (other / "vocabulary.tsv").read_bytes()
    shutil.copytree(other, tmp_path / "draft", ignore=shutil.ignore_patterns(MANIFEST))
    (tmp_path / "draft" / "vocabulary.tsv").write_bytes(vocabulary + b"zzz\t1\n")
    publish_directory(tmp_path / "draft", tmp_path / "changed", {"kind": "average"})
    with pytest.raises(UserError, match=r"changed and .* have different vocabularies"):
        nmtkit.Translator(bundle, tmp_path / "changed", device="cpu")


def test_bfloat16_is_refused_where_the_processor_does_not_compute_in_it(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    with pytest.raises(UserError, match=r"^--dtype bfloat16 needs a processor with AVX-512; use "):
        nmtkit.Translator(bundle, device="cpu", dtype=EnginePrecision.BFLOAT16)


scores = st.lists(st.floats(-9, 0), min_size=1, max_size=4)


@given(st.lists(scores, max_size=4), st.integers(1, 4))
def test_combinations_of_pieces_are_the_best_of_all(pieces: list[list[float]], n: int) -> None:
    hypotheses = [
        [Hypothesis([i, j], score, score) for j, score in enumerate(of_piece)]
        for i, of_piece in enumerate(pieces)
    ]
    found = [sum(each.score for each in best) for best in _best_combinations(hypotheses, n)]
    totals = sorted((sum(combination) for combination in product(*pieces)), reverse=True)
    assert found == pytest.approx(totals[:n])


def test_prompt_answers_each_line_until_ctrl_d(
    translator: nmtkit.Translator,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[str] = []
    typed = typing(["The cat", "", "Who looked?"])

    def answer(prompt: str) -> str:
        asked.append(prompt + capsys.readouterr().out)
        return next(typed)

    monkeypatch.setattr(builtins, "input", answer)
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    translate(translator, Output(Format.TEXT, 1, align=False))
    first, last = (each.text for each in translator.translate(["The cat", "Who looked?"]))
    assert asked == ["en> ", f"en> {first}\n", "en> \n", f"en> {last}\n"]
    assert capsys.readouterr().out == "\n"


def typing(lines: list[str]) -> Iterator[str]:
    yield from lines
    raise EOFError
