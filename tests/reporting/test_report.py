"""The report: the paper's tables, ours beside them, and where each figure leads."""

import json
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from nmtkit.files import DamagedError
from nmtkit.reporting.chart import Curve
from nmtkit.reporting.cost import training_cost
from nmtkit.reporting.exhibit import Drawing, Exhibit, Panel, read_exhibit, write_exhibit
from nmtkit.reporting.facts import StudyRow, StudyTable
from nmtkit.reporting.inspection import Grid
from nmtkit.reporting.published import TABLE_2, TABLE_4
from nmtkit.reporting.report import (
    Report,
    RunFacts,
    StageFacts,
    reproductions_grid,
    table_2,
    table_2_score,
    table_4,
)
from nmtkit.reporting.report_page import render_html, render_markdown
from nmtkit.reporting.study import study_grid
from reporting.conftest import HOSTILE
from reporting.test_page import assert_alone, parse

ROOT = Path(__file__).resolve().parents[2]
EMPTY = Report("2026-01-02T03:04:05+00:00", {"code": "c0de"}, "runs", [], [], {})
SHA = "5ea1" * 16


def score(value: float) -> dict[str, Any]:
    return {"score": value, "how": "as said"}


SPLIT = {**score(26.75), "score_quotes_replaced": 27.25}


def run_of(
    number: int, name: str = "mine", text: str = "", tgt: str = "de", **scores: Any
) -> RunFacts:
    test_set = {"name": f"set{text}", "lines": 7, "sha256": SHA}
    run = {"recipe": f"{name}{text}", "sha256": SHA, "overrides": [], "commit": 40 * "c"}
    stages = [
        StageFacts(
            stage, f"{stage}{text}", f"runs/{stage}/{number}", is_here=True,
            manifest_sha256=f"manifest of {stage}", published="2026-01-01", seconds=60.0,
            host=f"host{text}", run={**run, "clean": False},
            made_by={"nmtkit": "0", "torch": "2.13.0"}, code={f"{stage}/": f"code of {stage}"},
            recipe={"model": {"d_model": 31, "text": text}},
            texts={"train": [[f"hash of a text{text}"]]},
        )
        for stage in ("train", "score")
    ]  # fmt: skip
    return RunFacts(
        id=f"{number:016x}",
        label=f"{name}{text} seed={number}",
        command=f"nmtkit run {name}{text}",
        name=name,
        description=f"A recipe{text}",
        languages=("en", tgt),
        scores={f"newstest2014{text}": {**scores, "test_set": test_set}},
        stages=stages,
        n_parameters=65_107_968,
        steps=100,
        cost=training_cost(43_200, 8, "Tesla P100-SXM2-16GB", 1.02e18),
        dev=[],
        by_length={},
        other_code={f"train{text}": [f"model/{text}"]} if text else {},
        curves=[Curve("loss", f"Loss{text}", [(1, 2.0), (50, 1.0)], 50)],
    )


def study_of(run: RunFacts, text: str = "") -> StudyTable:
    rows = [
        StudyRow(f"base{text}", "", "x", True, "finished", "", 65_000_000, scored=run.id,
                 steps=9, cost=run.cost, dev_perplexity=5.25, scores=run.scores),
        StudyRow("hot", text, "x", False, "diverged", f"not finite{text}", 65_000_000),
    ]  # fmt: skip
    return StudyTable(f"a study{text}", f"What it is{text}", "sacrebleu", rows)


def full(text: str = "") -> Report:
    run = run_of(1, "wmt14-en-de-base", text, compound_split_bleu=SPLIT, sacrebleu=score(26))
    panel = Panel(title=f"t{text}", columns=[f"a{text}", "b"], n_labels=1, rows=[[text, "7"]])
    drawing = Drawing(title=f"d{text}", svg=f"<svg>{text}</svg>")
    exhibit = Exhibit(
        command=f"nmtkit bench layers{text}", made_by={"code": text}, notes=[f"n{text}"],
        panels=[panel], drawings=[drawing],
    )  # fmt: skip
    return replace(EMPTY, runs=[run], studies=[study_of(run, text)], exhibits={"table-1": exhibit})


def test_study_shows_the_figure_of_its_kind_or_that_there_is_none() -> None:
    old, new = (run_of(1, compound_split_bleu=kind) for kind in (score(26.75), SPLIT))
    rows = [*study_of(old).rows[:1], *study_of(new).rows]
    table = StudyTable("s", "d", "compound_split_bleu.score_quotes_replaced", rows)
    cells = [row[4] for group in study_grid(table).groups for row in group]
    assert cells == ["not available", "27.25", ""]
    plain = StudyTable("s", "d", "compound_split_bleu", rows)
    cells = [row[4] for group in study_grid(plain).groups for row in group]
    assert cells == ["26.75", "26.75", ""]


def rows_of(grid: Grid) -> dict[str, tuple[str, ...]]:
    return {row[0]: row[1:] for group in grid.groups for row in group}


def test_table_2_has_the_paper_and_what_is_not_run() -> None:
    rows = rows_of(table_2(EMPTY))
    assert len(rows) == len(TABLE_2) + 4
    assert rows["Transformer (base)"] == ("27.3", "38.1", "3.3e18", "3.3e18", "")
    assert rows["GNMT + RL ensemble"] == ("26.3", "41.16", "1.8e20", "1.1e21", "")
    assert rows["nmtkit run wmt14-en-de-base"] == ("not run", "", "", "", "")
    assert rows["nmtkit run wmt14-en-fr-big"] == ("", "not run", "", "", "")


def test_table_2_has_runs_with_the_kind_of_bleu_that_the_paper_has() -> None:
    german = run_of(1, "wmt14-en-de-base", compound_split_bleu=SPLIT, sacrebleu=score(26))
    french = run_of(2, "other", tgt="fr", tokenized_bleu=score(38.5), compound_split_bleu=score(9))
    dev = replace(run_of(3, "wmt14-en-de-big"), scores={"newstest2013": {"sacrebleu": score(1)}})
    rows = rows_of(table_2(replace(EMPTY, runs=[german, french, dev])))
    costs = training_cost(43_200, 8, "Tesla P100-SXM2-16GB", 1.0).time_flops
    assert costs == pytest.approx(3.28e18, rel=0.01)
    assert rows["nmtkit: wmt14-en-de-base seed=1"] == ("27.25", "", "3.3e18", "", "1.0e18")
    assert rows["nmtkit: other seed=2"] == ("", "38.50", "", "3.3e18", "1.0e18")
    assert "nmtkit run wmt14-en-de-base" not in rows
    assert rows["nmtkit run wmt14-en-de-big"][0] == "not run"
    assert rows["nmtkit run wmt14-en-fr-base"][1] == "not run"


def test_table_2_says_which_runs_have_no_figure_like_the_papers() -> None:
    old = run_of(1, "wmt14-en-de-base", compound_split_bleu=score(27.25), sacrebleu=score(26))
    uncased = run_of(2, "other", compound_split_bleu=SPLIT)
    uncased.stages[-1].recipe["scoring"] = {"lowercase": True}
    rows = rows_of(table_2(replace(EMPTY, runs=[old, uncased])))
    assert rows["nmtkit: wmt14-en-de-base seed=1"][:2] == ("not available", "")
    assert "nmtkit: other seed=2" not in rows
    assert table_2_score(old) is None


def test_reproductions_are_beside_figures_of_their_own_kind_alone() -> None:
    german = run_of(1, "wmt14-en-de-base", compound_split_bleu=SPLIT, sacrebleu=score(26))
    french = run_of(2, "other", tgt="fr", tokenized_bleu=score(38.5), sacrebleu=score(36))
    grid = reproductions_grid(replace(EMPTY, runs=[german, french]))
    ours = {row[0]: row[-1] for group in grid.groups for row in group if "seed=" in row[1]}
    paper = [row for group in grid.groups for row in group if row[-1] in ("27.3", "28.4")]
    assert sorted(ours.values()) == ["26.00", "27.25"]
    assert [ours[row[0]] for row in paper] == ["27.25"] * 2
    (checkpoint,) = (group[0][0] for group in grid.groups if "27.52" in {row[-1] for row in group})
    assert ours[checkpoint] == "26.00"
    for group in grid.groups:
        assert len({row[0] for row in group}) == 1
        assert all(row[-1] for row in group)
    for text in (
        parse(render_html(full())).text,
        render_markdown(full()),
        json.dumps(EMPTY.as_json()),
    ):
        assert "27.52" in text


def test_table_4_has_the_paper_and_runs_that_parse() -> None:
    rows = [row for group in table_4(EMPTY).groups for row in group]
    assert len(rows) == len(TABLE_4) + 2
    assert rows[-1] == ("nmtkit run wsj-parsing-semi", "", "not run")
    parser = run_of(1, "wsj-parsing", bracket_f1=score(91.25))
    rows = [row for group in table_4(replace(EMPTY, runs=[parser])).groups for row in group]
    assert ("nmtkit: wsj-parsing seed=1", "newstest2014", "91.25") in rows
    assert not any(row[0] == "nmtkit run wsj-parsing" for row in rows)


# The page


def test_each_figure_leads_to_its_run_and_that_to_all_it_rests_on() -> None:
    page, markdown = parse(render_html(full())), render_markdown(full())
    links = [each for each in page.all("a") if "run-" in each.attributes["href"]]
    assert len(links) == 5  # of the runs, of Table 2, of the study, of two kinds of reproductions
    (details,) = page.all("details")
    ids = [each.attributes.get("id") for each in details.all()]
    assert {link.attributes["href"].removeprefix("#") for link in links} <= set(ids)
    for what in (
        "nmtkit run wmt14-en-de-base",
        "nmtkit verify runs/score/1",
        "manifest of train",
        "code of score",
        f"commit {12 * 'c'} with changes",
        "torch 2.13.0",
        "hash of a text",
        "d_model = 31",
        f"wmt14-en-de-base, sha256 {SHA}",
        "compound-split BLEU: as said",
    ):
        assert what in details.text
        assert what in markdown.replace("\\", "")


def test_no_text_becomes_markup() -> None:
    plain, hostile = (parse(render_html(full(text))) for text in ("x", HOSTILE))
    assert [e.tag for e in hostile.all()] == [e.tag for e in plain.all()]
    assert all(line.isprintable() for line in render_html(full(HOSTILE)).split("\n"))
    markdown = render_markdown(full(HOSTILE))
    assert "<script" not in re.sub(r"(?m)^    .*$", "", markdown).replace("\\<", "")
    assert all(line.isprintable() for line in markdown.split("\n"))


def test_page_is_alone() -> None:
    page = parse(render_html(full(HOSTILE)))
    assert_alone(page, "img", "src", "style")
    assert [img.attributes["src"][:26] for img in page.all("img")] == ["data:image/svg+xml;base64,"]


# JSON


def test_every_key_of_the_json_is_documented() -> None:
    content = full().as_json()
    assert content["format"] == 1
    readme = (ROOT / "nmtkit" / "reporting" / "README.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"`([a-z_0-9-]+)`", readme))
    keys = {*content, *content["runs"][0], *content["runs"][0]["stages"][0]}
    keys |= {*content["runs"][0]["cost"], *content["exhibits"]}
    assert keys - documented == set()
    assert {each.name for each in fields(RunFacts)} - {"curves"} == set(content["runs"][0])
    assert json.loads(json.dumps(content, allow_nan=False)) is not None


def test_exhibit_is_read_as_written(tmp_path: Path) -> None:
    assert read_exhibit(tmp_path, "table-1") is None
    exhibit = full(HOSTILE).exhibits["table-1"]
    assert exhibit is not None
    place = write_exhibit(tmp_path, "table-1", exhibit)
    assert read_exhibit(tmp_path, "table-1") == exhibit
    assert [path.name for path in place.parent.iterdir()] == ["table-1.json"]
    place.write_text('{"format": 2}', encoding="utf-8")
    with pytest.raises(DamagedError):
        read_exhibit(tmp_path, "table-1")
