"""Output formats, read back as other tools read them."""

import json
import math
import re

import pytest

from nmtkit.decoding.details import Alignment, Detail
from nmtkit.decoding.output_formats import as_json, format_lines
from nmtkit.decoding.text_translator import Translation

BEST = Translation("Der Hund | die Katze.", -0.5, -1.25, [[7, 8, 2], [9, 2]], [[7, 5], [6]])
NEXT = Translation("Ein Hund.", -3.0, -7.5, [[7, 8, 2], [9, 2]], [[7], []])
EMPTY = Translation("", 0.0, 0.0, [], [])
SRC = [["the", "do@@", "g", "</s>"], ["cat", "</s>"]]
ALIGNMENT = Alignment([(0, 0), (2, 2)], ["the", "dog", "cat"], ["Der", "Hund"], [(0, 0), (1, 1)])
BEST_DETAIL = Detail(SRC, [["Der", "Hu@@", "nd", "</s>"], ["Katze", "</s>"]],
                 [[-0.25, -0.125, -0.125, -0.25], [-0.375, -0.125]], ALIGNMENT)  # fmt: skip
NEXT_DETAIL = Detail(SRC, [["Ein", "</s>"], ["</s>"]], [[-2.5, -1.0], [-4.0]], None)
EMPTY_DETAIL = Detail([], [], [], None)


def test_moses_has_four_columns() -> None:
    lines = format_lines("moses", 0, "", [BEST, NEXT], [])
    lines += format_lines("moses", 1, "", [EMPTY], [])
    rows = [line.split(" ||| ") for line in lines]
    assert [len(row) for row in rows] == [4, 4, 4]
    assert [int(number) for number, *_ in rows] == [0, 0, 1]
    assert [text for _, text, *_ in rows] == ["Der Hund &#124; die Katze.", "Ein Hund.", ""]
    features = [feature.split("= ") for _, _, feature, _ in rows]
    assert features == [["LogProb", "-1.2500"], ["LogProb", "-7.5000"], ["LogProb", "0.0000"]]
    assert [float(total) for *_, total in rows] == [-0.5, -3.0, 0.0]


def test_json_has_all_details() -> None:
    row = json.loads(as_json("the dog 🐈", [BEST, NEXT], [BEST_DETAIL, NEXT_DETAIL]))
    assert row["source"] == "the dog 🐈"
    best, second = row["translations"]
    assert best == {
        "text": BEST.text,
        "score": -0.5,
        "log_prob": -1.25,
        "perplexity": round(math.exp(1.25 / 6), 4),
        "tokens": ["Der", "Hu@@", "nd", "</s>", "Katze", "</s>"],
        "token_log_probs": [-0.25, -0.125, -0.125, -0.25, -0.375, -0.125],
        "source_words": ["the", "dog", "cat"],
        "words": ["Der", "Hund"],
        "alignment": "0-0 1-1",
    }
    assert sum(best["token_log_probs"]) == best["log_prob"]
    assert "alignment" not in second
    (empty,) = json.loads(as_json("", [EMPTY], [EMPTY_DETAIL]))["translations"]
    assert (empty["text"], empty["tokens"], empty["perplexity"]) == ("", [], 1.0)


# As fairseq's scripts read lines: a letter and the number, and columns separated by tabs.
LINE = re.compile(r"([STHDPA])-(\d+)\t(.*)")


def test_fairseq_lines_are_in_base_2() -> None:
    lines = format_lines("fairseq", 3, "", [BEST, NEXT], [BEST_DETAIL, NEXT_DETAIL])
    found = [match.groups() for match in map(LINE.fullmatch, lines) if match is not None]
    assert [kind for kind, _, _ in found] == list("SHDPAHDP")
    assert {number for _, number, _ in found} == {"3"}
    src, hyp, detokenized, log_probs, alignment, *_ = (rest for _, _, rest in found)
    assert src == "the do@@ g cat"
    score, tokens = hyp.split("\t")
    assert float(score) == pytest.approx(-0.5 / math.log(2), abs=1e-6)
    assert tokens == "Der Hu@@ nd Katze"
    assert detokenized == f"{score}\t{BEST.text}"
    token_log_probs = [float(number) for number in log_probs.split(" ")]
    expected = [-0.3607, -0.1803, -0.1803, -0.3607, -0.541, -0.1803]
    assert token_log_probs == pytest.approx(expected)
    assert alignment == "0-0 2-2"


def test_fairseq_prints_reference() -> None:
    lines = format_lines("fairseq", 0, "", [BEST], [BEST_DETAIL], is_reference=True)
    assert lines[:2] == ["S-0\tthe do@@ g cat", "T-0\tDer Hu@@ nd Katze"]
    assert [line[0] for line in lines] == list("STHDPA")


def test_fairseq_empty_line() -> None:
    expected = ["S-9\t", "H-9\t0.000000\t", "D-9\t0.000000\t", "P-9\t"]
    assert format_lines("fairseq", 9, "", [EMPTY], [EMPTY_DETAIL]) == expected
