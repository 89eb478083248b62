"""A text through a bundle: every format keeps the lines, whatever they hold."""

import dataclasses
import json
import shutil
from itertools import accumulate, combinations, product
from pathlib import Path
from typing import Any

import pytest
import torch
from bundles import publish_bundle
from hypothesis import given
from hypothesis import strategies as st
from models import tiny
from system.command import done
from system.command import nmtkit as nmtkit_command

import nmtkit
from nmtkit.config.settings import EngineName, EnginePrecision
from nmtkit.decoding import lines
from nmtkit.decoding.engine import Hypothesis
from nmtkit.decoding.formats import Format
from nmtkit.decoding.lines import Translation, _best_combinations
from nmtkit.decoding.text_files import Output, _made_from, in_growing_parts, translate
from nmtkit.store.artifacts import publish_directory
from nmtkit.store.manifests import MANIFEST
from nmtkit.utils.errors import UserError

LONG = "The cat sat. A dog ran away. Who looked? " * 4
LINES = ["The well-known cat sat.", "", "cat | dog", LONG, "   ", "Who looked?"]


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
    assert output_of(translator, Output("text", 1, align=False), tmp_path) == texts
    assert texts[1] == texts[4] == ""
    assert len(set(texts)) == 5


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
    output = Output("json", 2, align=False)
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
    assert not (tmp_path / "target").exists()
    assert written() == expected
    assert sorted(parts, key=len) == undisturbed[n_done:]


def test_draft_of_another_translation_is_not_resumed(bundle: Path, tmp_path: Path) -> None:
    other = publish_bundle(tmp_path / "other", tiny(), seed=4)

    def made_from(
        bundle: Path = bundle, text: str = "0", how: Format = "text", **options: Any
    ) -> dict[str, str]:
        translator = nmtkit.Translator(bundle, device="cpu", **options)
        return _made_from(translator, Output(how, 1, align=False), text)

    made = [
        made_from(),
        made_from(bundle=other),
        made_from(text="1"),
        made_from(how="json"),
        made_from(beam_size=2),
        made_from(length_penalty=0.5),
        made_from(engine=EngineName.TORCH),
        made_from(dtype=EnginePrecision.FLOAT32),
        made_from(split_sentences=False),
    ]
    assert made[0] == made_from()
    assert all(one != another for one, another in combinations(made, 2))


# Sentences

SENTENCES = ["Who looked?", "The cat sat.", "A dog ran away."]


@pytest.fixture(scope="module", params=["torch", "ctranslate2"])
def splitting(bundle: Path, request: pytest.FixtureRequest) -> nmtkit.Translator:
    return nmtkit.Translator(bundle, device="cpu", engine=request.param)


def test_sentences_translated_one_by_one(splitting: nmtkit.Translator) -> None:
    alone = splitting.translate(SENTENCES)
    (joined,) = splitting.translate([f"  {SENTENCES[0]}  {SENTENCES[1]} \u00a0{SENTENCES[2]} "])
    assert joined.text == " ".join(translation.text for translation in alone)
    assert joined.src == [ids for translation in alone for ids in translation.src]
    assert (joined.n_pieces, joined.n_cut) == (3, 0)
    for value in ("score", "log_prob", "n_tokens"):
        total = sum(getattr(translation, value) for translation in alone)
        assert getattr(joined, value) == pytest.approx(total, abs=1e-3)


def test_line_unsplit_on_request(bundle: Path) -> None:
    unsplit = nmtkit.Translator(bundle, device="cpu", engine="torch", split_sentences=False)
    assert unsplit.translate([" ".join(SENTENCES[:2])])[0].n_pieces == 1
    assert [t.n_pieces for t in unsplit.translate(SENTENCES)] == [1, 1, 1]


def test_parser_never_splits(translator: nmtkit.Translator) -> None:
    trees = dataclasses.replace(translator.text.tgt, tokenizer="tags")
    text = dataclasses.replace(translator.text, tgt=trees)
    parser = lines.Translator(
        text, translator.engine, translator.decoding, 24, split_sentences=True
    )
    assert parser.translate([" ".join(SENTENCES[:2])])[0].n_pieces == 1


@pytest.mark.parametrize(
    ("lang", "separator"),
    [("de", " "), ("zh", ""), ("ja", ""), ("yue", ""), ("ko", " "), ("th", " "), ("tlh", " ")],
)
def test_sentences_joined_as_language_is_written(
    lang: str, separator: str, translator: nmtkit.Translator
) -> None:
    unspaced = dataclasses.replace(translator.text.tgt, lang=lang, tokenizer="none")
    text = dataclasses.replace(translator.text, tgt=unspaced)
    pieces = [piece for line in ("cat", "", "dog") for piece in [text.encode_target(line)]]
    assert text.decode_line("", pieces)[0] == f"cat{separator}dog"


@pytest.mark.parametrize("output_format", ["text", "json", "fairseq", "moses"])
def test_command_splits_lines(output_format: str, bundle: Path, tmp_path: Path) -> None:
    """A line of sentences stays one line, without a warning; --no-split translates it whole."""
    line = " ".join(SENTENCES[:2])
    command = ["translate", "--bundle", f"{bundle}", "--format", output_format]
    stdin = f"{line}\n\n".encode()
    split = done(nmtkit_command(tmp_path, *command, stdin=stdin))
    whole = done(nmtkit_command(tmp_path, *command, "--no-split", stdin=stdin))
    assert split.out != whole.out
    n_lines = 8 if output_format == "fairseq" else 2
    assert split.out.count("\n") == whole.out.count("\n") == n_lines
    assert "warning" not in split.err + whole.err
    if output_format == "text":
        alone = "".join(f"{sentence}\n" for sentence in SENTENCES[:2]).encode()
        separate = done(nmtkit_command(tmp_path, *command, stdin=alone)).out
        assert split.out == f"{separate.removesuffix(chr(10)).replace(chr(10), ' ')}\n\n"


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


def test_dash_is_standard_stream(bundle: Path, tmp_path: Path) -> None:
    command = ["translate", "--bundle", f"{bundle}"]
    expected = done(nmtkit_command(tmp_path, *command, stdin=b"cat!\n")).out
    dashes = ["--input", "-", "--output", "-"]
    assert done(nmtkit_command(tmp_path, *command, *dashes, stdin=b"cat!\n")).out == expected
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "-").write_bytes(b"cat!\n")
    assert done(nmtkit_command(tmp_path, *command, "-i", "./-", "-o", "-")).out == expected
    assert (
        done(nmtkit_command(tmp_path, *command, "-i", "-", "-o", "./-", stdin=b"cat!\n")).out == ""
    )
    assert (tmp_path / "-").read_text(encoding="utf-8") == expected


# Python


@pytest.mark.parametrize(
    ("option", "value", "engine"),
    [
        ("engine", "torch", "torch"),
        ("engine", "ctranslate2", "ctranslate2"),
        ("engine", EngineName.CTRANSLATE2, "ctranslate2"),
        ("dtype", "int8", "ctranslate2"),
        ("dtype", EnginePrecision.INT8, "ctranslate2"),
        ("device", torch.device("cpu"), "ctranslate2"),
    ],
)
def test_options_as_strings_and_enums(option: str, value: Any, engine: str, bundle: Path) -> None:
    options = {"device": "cpu", option: value}
    assert nmtkit.Translator(bundle, **options).engine.name == engine


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("engine", "ctranslate"),
        ("engine", ""),
        ("engine", None),
        ("dtype", "int4"),
        ("dtype", torch.float32),
        ("device", "tpu"),
        ("beam_size", "4"),
        ("length_penalty", float("nan")),
    ],
)
def test_options_are_validated(option: str, value: Any, bundle: Path) -> None:
    options = {"device": "cpu", option: value}
    with pytest.raises(UserError, match=option):
        nmtkit.Translator(bundle, **options)


def test_text_that_is_not_unicode_raises(splitting: nmtkit.Translator) -> None:
    with pytest.raises(ValueError, match="line 2 has a lone surrogate"):
        splitting.translate(["cat!", "cat \udce9!"])
    with pytest.raises(TypeError, match="line 2 is a bytes"):
        splitting.translate(["cat!", b"cat!"])  # type: ignore[list-item]


def test_lines_may_come_from_anywhere_but_not_as_one_string(translator: nmtkit.Translator) -> None:
    texts = [translation.text for translation in translator.translate(LINES)]
    assert [each.text for each in translator.translate(line for line in LINES)] == texts
    with pytest.raises(TypeError, match="give a list of lines"):
        translator.translate("The cat sat.")
    with pytest.raises(TypeError, match="give a list of lines"):
        translator.n_best("The cat sat.", 2)


def test_json_has_a_line_for_each_line_and_adds_up(
    translator: nmtkit.Translator, tmp_path: Path
) -> None:
    written = output_of(translator, Output("json", 2, align=True), tmp_path)
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
    pharaohs = output_of(translator, Output("pharaoh", 1, align=True), tmp_path)
    assert pharaohs == [each["translations"][0]["alignment"] for each in told]


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
    # The mean of two equal probabilities rounds otherwise than one of them.
    assert [each.score for each in same] == pytest.approx([each.score for each in alone], abs=1e-3)
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


@given(st.integers(0, 200), st.integers(1, 40))
def test_parts_after_a_stop_are_those_of_a_run_without_one(n: int, most: int) -> None:
    whole = list(in_growing_parts([range(n)], most))
    for k, n_done in enumerate(accumulate(map(len, whole), initial=0)):
        assert list(in_growing_parts([range(n_done, n)], most, n_done)) == whole[k:]
