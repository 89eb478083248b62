"""Forced decoding of texts, line by line."""

import json
import math
import re
from pathlib import Path

import pytest
from command_help import commands, help_text

import nmtkit
from nmtkit.cli.force import force
from nmtkit.corpus.special_tokens import EOS_ID
from nmtkit.decoding.force_files import force_files
from nmtkit.utils.errors import UserError

LINES = ["The well-known cat sat.", "", "cat dog!", "Who looked?", "A dog ran away."]


def write(folder: Path, src: list[str], tgt: list[str]) -> tuple[Path, Path]:
    for name, lines in (("src", src), ("tgt", tgt)):
        text = "".join(f"{line}\n" for line in lines)
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
    return folder / "src", folder / "tgt"


def numbers(translator: nmtkit.Translator, files: tuple[Path, Path]) -> list[list[float]]:
    """The log-probability and the perplexity of every line."""
    lines = force_files(translator, *files, "text", align=False)
    return [list(map(float, line.split("\t"))) for line in lines]


def test_ratings_equal_those_of_tokens(translator: nmtkit.Translator, tmp_path: Path) -> None:
    translations = ["Who sat?", "cat", "The dog ran away.", "", "A well-known dog!"]
    lines = force_files(translator, *write(tmp_path, LINES, translations), "json", align=True)
    rows = [json.loads(line) for line in lines]
    assert [row["source"] for row in rows] == LINES
    text = translator.text
    for line, translation, row in zip(LINES, translations, rows, strict=True):
        (rating,) = row["translations"]
        src = text.encode(line) or [EOS_ID]
        tgt = text.subword.encode(text.tgt.tokenize(translation))
        (expected,) = translator.engine.force([src], [tgt], align=True)
        assert rating["text"] == translation
        assert rating["tokens"] == [*text.subword.pieces(tgt), "</s>"]
        assert rating["token_log_probs"] == pytest.approx(expected.log_probs, abs=1e-4)
        assert rating["log_prob"] == pytest.approx(sum(expected.log_probs), abs=1e-3)
        penalty = ((5 + len(tgt) + 1) / 6) ** translator.decoding.length_penalty
        assert rating["score"] == pytest.approx(rating["log_prob"] / penalty, abs=1e-3)
        assert rating["words"] == text.tgt.tokenize(translation).split()
        assert bool(rating["alignment"]) == (bool(translation) and bool(line))
    pharaohs = force_files(translator, *write(tmp_path, LINES, translations), "pharaoh", align=True)
    assert [*pharaohs] == [row["translations"][0]["alignment"] for row in rows]


def test_text_format_and_summary(
    translator: nmtkit.Translator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = write(tmp_path, LINES, LINES)
    lines = numbers(translator, files)
    rows = [json.loads(line) for line in force_files(translator, *files, "json", align=False)]
    ratings = [row["translations"][0] for row in rows]
    assert lines == [[rating["log_prob"], rating["perplexity"]] for rating in ratings]
    assert lines[1] == [0, 1]
    n_tokens = sum(len(rating["tokens"]) for rating in ratings)
    total = sum(log_prob for log_prob, _ in lines)
    summary = capsys.readouterr().err
    pattern = (
        rf"force: 5 lines, {n_tokens} tokens .* log-probability ([-.0-9]+), perplexity ([.0-9]+)"
    )
    printed_total, printed_perplexity = re.findall(pattern, summary)[0]
    assert float(printed_total) == pytest.approx(total, abs=0.01)
    assert float(printed_perplexity) == pytest.approx(math.exp(-total / n_tokens), rel=1e-4)


@pytest.mark.parametrize(
    ("src", "tgt", "message"),
    [
        (["a", "b"], ["a"], r"differ in length: .*src has 2 lines, .*tgt has 1"),
        (["a", "cat" * 2_000], ["a", "b"], r"line 2 is too long for forced decoding"),
        (["a", "b"], ["a", "x " * 1_100], r"line 2 is too long .* 1,024 subwords"),
    ],
)
def test_invalid_texts_are_refused(
    translator: nmtkit.Translator, tmp_path: Path, src: list[str], tgt: list[str], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        numbers(translator, write(tmp_path, src, tgt))


def test_help_and_error_list_formats(tmp_path: Path) -> None:
    files = write(tmp_path, LINES, LINES)
    formats = "text, json, fairseq or pharaoh"
    with pytest.raises(UserError, match=formats):
        force(*files, output_format="moses")
    text = help_text("nmtkit force", dict(commands())["nmtkit force"])
    assert formats in " ".join(text.split())
