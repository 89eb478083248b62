"""What is printed: complete, not too wide for a page, and JSON that machines can read."""

from collections.abc import Callable
from itertools import zip_longest
from typing import Any

import pytest

from nmtkit.evaluation.bleu import count_scores
from nmtkit.languages import Language
from nmtkit.reporting.facts import Results, Sample, StageResult, State
from nmtkit.reporting.tables import print_results, print_scores, print_status
from nmtkit.stages.score import describe, text_tools

LONG = "/a/very/long/place/" + "with/many/folders/" * 20 + "end"
STATES = [
    State("prepare", "fresh", "0123456789abcdef", LONG, "nothing to do"),
    State("train", "missing", "fedcba9876543210", "runs/train/x", f"not made yet {LONG}"),
]


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


def columns(printed: str) -> list[str]:
    """The text of each column of the tables, without spaces, folded cells put together again."""
    rows = [line.split("│")[1:-1] for line in printed.split("\n") if line.startswith("│")]
    return [
        "".join("".join(cell.split()) for cell in column)
        for column in zip_longest(*rows, fillvalue="")
    ]


def test_tables_in_a_pipe_are_complete_and_at_most_120_columns_wide(
    scores: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    sample = Sample(f"source {LONG}", f"reference {LONG}", f"ours {LONG}")
    results = Results([StageResult("train", f"done {LONG}", LONG)], [sample], scores)
    prints: list[tuple[Callable[[], None], list[str]]] = [
        (lambda: print_status("mine", STATES, as_json=False), [LONG, f"not made yet {LONG}"]),
        (
            lambda: print_results(results, as_json=False),
            [sample.src, str(sample.reference), sample.hypothesis, f"done {LONG}"],
        ),
    ]
    for show, texts in prints:
        show()
        printed = capsys.readouterr().out
        tables = [line for line in printed.split("\n") if line[:1] in "┏┃┡│├└┌"]
        assert max(map(len, tables)) == 120
        for text in texts:
            assert any("".join(text.split()) in column for column in columns(printed))


def test_text_is_printed_as_it_is(
    scores: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    sample = Sample("[bold]a[/bold] :smile:", "b [1, 2]", "c :heart:")
    print_results(Results([], [sample], scores), as_json=False)
    out = capsys.readouterr().out
    for text in vars(sample).values():
        assert text in out
