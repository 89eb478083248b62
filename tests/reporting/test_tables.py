"""The scores that commands print."""

from typing import Any

import pytest

from nmtkit.evaluation.bleu import count_scores
from nmtkit.languages import Language
from nmtkit.reporting.tables import print_scores
from nmtkit.stages.score import describe, text_tools


@pytest.fixture
def scores() -> dict[str, Any]:
    hyps = ["the well-known cat sat on the mat .", "and a dog looked at it ."]
    refs = [line.replace("dog", "bird") for line in hyps]
    return {
        name: {
            **count_scores(lines, refs, tools=text_tools(Language.of("de"))),
            "test_set": describe(name, refs),
        }
        for name, lines in (("one", hyps), ("other", refs))
    }


def test_every_score_has_its_kind_signature_and_test_set(
    scores: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    print_scores(scores, as_json=False)
    lines = capsys.readouterr().out.split("\n")
    header = "\n".join(lines[:4])
    hows = lines[lines.index(next(line for line in lines if line.startswith("└"))) + 1 :]
    assert "one" in header
    assert "other" in header
    assert header.count("2 lines") == 2
    for key, kind in (
        ("sacrebleu", "sacreBLEU"),
        ("tokenized_bleu", "tokenized BLEU"),
        ("compound_split_bleu", "compound-split BLEU"),
    ):
        (line,) = (line for line in lines if line.startswith(f"│ {kind} "))
        for of_set in scores.values():
            assert f" {of_set[key]['score']:.2f} " in line
            (how,) = (how for how in hows if how.startswith(f"{kind}: "))
            assert of_set[key]["how"] in how
    low, high = scores["one"]["sacrebleu"]["confidence_interval"]
    (line,) = (line for line in lines if line.startswith("│ sacreBLEU "))
    assert f"[{low:.2f}, {high:.2f}]" in line
    assert "\n".join(hows).count(scores["one"]["sacrebleu"]["signature"]) == 1


def test_figures_that_scores_of_before_lack_are_not_available(
    scores: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    del scores["one"]["compound_split_bleu"]["score_quotes_replaced"]
    print_scores(scores, as_json=False)
    lines = capsys.readouterr().out.split("\n")
    (line,) = (line for line in lines if "quotes replaced " in line and line.startswith("│"))
    assert [cell.strip() for cell in line.split("│")[2:-1]] == ["not available", "100.00"]
    del scores["other"]["compound_split_bleu"]["score_quotes_replaced"]
    print_scores(scores, as_json=False)
    assert capsys.readouterr().out.count("not available") == 2
