"""The report: own runs, published results next to them, and the provenance of all figures."""

import csv
import io
import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from rendering.conftest import HOSTILE
from rendering.test_page import assert_self_contained, parse

from nmtkit.rendering.chart import Chart
from nmtkit.rendering.document import Part, files_for_paper, markdown_paragraphs, render_page
from nmtkit.rendering.grid import Grid, as_csv
from nmtkit.report.collection import Report, ScoredRun
from nmtkit.report.published_tables import (
    reproductions_grid,
    table_2_grid,
    table_4_grid,
)
from nmtkit.report.report import report_document, runs_grid
from nmtkit.report.results import TABLES
from nmtkit.report.training_cost import training_cost
from nmtkit.study.figures import Spread, StudyRow, StudyRun, StudyTable
from nmtkit.study.study_table import study_chart, study_grid, study_notes

ROOT = Path(__file__).resolve().parents[2]
EMPTY = Report("2026-01-02T03:04:05+00:00", {"code": "c0de"}, "runs", [], [])
SHA = "5ea1" * 16


def score(value: float) -> dict[str, Any]:
    return {"score": value, "how": "a signature"}


SPLIT = {**score(26.75), "score_quotes_replaced": 27.25}


def run_of(
    number: int, name: str = "mine", text: str = "", tgt: str = "de", **scores: Any
) -> ScoredRun:
    test_set = {"name": f"set{text}", "lines": 7, "sha256": SHA}
    run = {"recipe": f"{name}{text}", "sha256": SHA, "overrides": [], "commit": 40 * "c"}
    about = {
        "is_here": True,
        "published": "2026-01-01",
        "seconds": 60.0,
        "host": f"host{text}",
        "run": {**run, "clean": False},
        "made_by": {"nmtkit": "0", "torch": "2.13.0"},
        "recipe": {"model": {"d_model": 31, "text": text}},
        "texts": {"train": [[f"hash of a text{text}"]]},
    }
    stages: list[dict[str, Any]] = [
        {
            **about,
            "stage": stage,
            "fingerprint": f"{stage}{text}",
            "path": f"runs/{stage}/{number}",
            "manifest_sha256": f"manifest of {stage}",
        }
        for stage in ("train", "score")
    ]
    return ScoredRun(
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
    )


def run_in(name: str, facts: ScoredRun | None = None, **changes: Any) -> StudyRun:
    values: dict[str, Any] = {"seed": 1, "run": "x", "state": "not run", "why": ""}
    if facts:
        values |= {"state": "finished", "scored": facts.id, "steps": 9, "scores": facts.scores}
    return StudyRun(**{"name": name, **values, **changes})


def row_of(name: str, *runs: StudyRun, change: str = "", bleu: str = "sacrebleu") -> StudyRow:
    score = Spread.of([run.score(bleu) for run in runs])
    return StudyRow(name, change, 65_000_000, {}, None, score, [*runs])


def study_of(facts: ScoredRun, text: str = "") -> StudyTable:
    hot = row_of("hot", run_in("hot", state="diverged", why=f"not finite{text}"), change=text)
    base = f"base{text}"
    later = f"later{text}"
    rows = [row_of(base, run_in(base, facts)), hot, row_of(later, run_in(later), change=text)]
    return StudyTable("a-study", f"What it is{text}", "sacrebleu", rows)


def full(text: str = "") -> Report:
    run = run_of(1, "wmt14-en-de-base", text, compound_split_bleu=SPLIT, sacrebleu=score(26))
    return replace(EMPTY, runs=[run], studies=[study_of(run, text)])


def markdown(report: Report) -> str:
    return "\n\n".join(markdown_paragraphs(report_document(report)))


def parts_of(part: Part) -> dict[str, Part]:
    within = {part.key: part}
    for child in part.parts:
        within |= parts_of(child)
    return within


# Studies


def test_study_score_kind() -> None:
    runs = [run_of(1, compound_split_bleu=kind) for kind in (score(26.75), SPLIT)]
    for kind, cells in (
        ("compound_split_bleu.score_quotes_replaced", ["not available", "27.25", ""]),
        ("compound_split_bleu", ["26.75", "26.75 (+0.00)", ""]),
    ):
        rows = [row_of("row", run_in("row", run), bleu=kind) for run in (*runs, None)]
        grid = study_grid(StudyTable("s", "d", kind, rows))
        (column,) = (i for i, name in enumerate(grid.columns) if name.startswith("compound-split"))
        assert [row[column] for row in grid_rows(grid)] == cells


def test_study_row_of_several_seeds() -> None:
    scores = {"base": [25.0, 25.5, 26.0], "other": [24.0, 24.5, 0.0], "single": [23.0]}
    rows = []
    for name, values in scores.items():
        facts = [run_of(1, sacrebleu=score(value)) if value else None for value in values]
        rows.append(row_of(name, *(run_in(name, run) for run in facts)))
    table = StudyTable("mine", "d", "sacrebleu", rows)
    grid = study_grid(table)
    found = [dict(zip(grid.columns, row, strict=True)) for (row,) in grid.groups]
    assert [row["sacreBLEU"] for row in found] == [
        "25.50 ± 0.50 (n=3)",
        "24.25 ± 0.35 (n=2, -1.25)",
        "23.00 (-2.50)",
    ]
    assert [row["state"] for row in found] == ["finished", "2 finished, 1 not run", "finished"]
    assert not any("published" in name for name in grid.columns)
    rows[0].published["perplexity"] = 4.9
    rows[1].published["perplexity"] = 5.25
    assert "5.25 (+0.35)" in rows_by_label(study_grid(table))["other"]
    assert "n - 1" in study_notes(table)[0]
    chart = study_chart(table, "mine")
    assert chart is not None
    means, runs = chart.series
    assert means.points == [(25.5, 0), (24.25, -1), (23.0, -2)]  # the first on top
    assert [value for value, _ in runs.points] == [25.0, 25.5, 26.0, 24.0, 24.5, 23.0]
    assert chart.y.ticks == [(0, "base"), (-1, "other"), (-2, "single")]


# Tables of the paper


def grid_rows(grid: Grid | None) -> list[Sequence[str]]:
    """The rows of all groups of a table."""
    assert grid is not None
    return list(itertools.chain.from_iterable(grid.groups))


def rows_by_label(grid: Grid | None) -> dict[str, Sequence[str]]:
    return {row[0]: row[1:] for row in grid_rows(grid)}


def test_table_2_own_rows() -> None:
    german = run_of(1, compound_split_bleu=SPLIT, sacrebleu=score(26))
    french = run_of(2, tgt="fr", tokenized_bleu=score(38.5), compound_split_bleu=score(9))
    old = run_of(3, compound_split_bleu=score(27.25), sacrebleu=score(26))
    dev = replace(run_of(4), scores={"newstest2013": {"sacrebleu": score(1)}})
    uncased = run_of(5, compound_split_bleu=SPLIT)
    uncased.stages[-1]["recipe"]["scoring"] = {"lowercase": True}
    rows = rows_by_label(table_2_grid([german, french, old, dev, uncased]))
    assert list(rows.items())[:4] == [
        ("nmtkit: mine seed=1", ("27.25", "", "3.3 × 10¹⁸", "", "1.0 × 10¹⁸")),
        ("nmtkit: mine seed=2", ("", "38.50", "", "3.3 × 10¹⁸", "1.0 × 10¹⁸")),
        ("nmtkit: mine seed=3", ("not available", "", "3.3 × 10¹⁸", "", "1.0 × 10¹⁸")),
        ("ByteNet", ("23.75", "", "", "", "")),
    ]
    assert rows["Transformer (base)"] == ("27.3", "38.1", "3.3 × 10¹⁸", "3.3 × 10¹⁸", "")


def test_table_2_numbers_in_files() -> None:
    run = run_of(1, compound_split_bleu=SPLIT, sacrebleu=score(26))
    files = dict(files_for_paper(report_document(replace(EMPTY, runs=[run]))))
    assert r"$3.3\times10^{18}$" in files["tables/table-2.tex"]
    assert "3.3 × 10¹⁸" in files["tables/table-2.md"]
    rows = list(csv.reader(io.StringIO(files["tables/table-2.csv"])))
    costs = {row[0]: [float(cell) for cell in row[3:] if cell] for row in rows[1:]}
    assert costs["Transformer (base)"] == [3.3e18, 3.3e18]
    assert costs["nmtkit: mine seed=1"] == [pytest.approx(3.28e18, rel=0.01), 1.02e18]
    assert "65.1 M" in files["tables/runs.tex"]
    assert r"\textasciicircum" not in files["tables/runs.tex"]
    assert r"\^{}" not in files["tables/runs.tex"]


def test_reproductions_by_kind_of_bleu() -> None:
    german = run_of(1, compound_split_bleu=SPLIT, sacrebleu=score(26))
    french = run_of(2, tgt="fr", tokenized_bleu=score(38.5), sacrebleu=score(36))
    grid = reproductions_grid([german, french])
    ours = {row[0]: row[-1] for row in grid_rows(grid) if "seed=" in row[1]}
    theirs = {(row[1], row[-1]): ours.get(row[0]) for row in grid_rows(grid)}
    assert sorted(ours.values()) == ["26.00", "27.25"]
    assert theirs["the paper (inferred)", "27.3"] == "27.25"
    assert theirs["the paper (inferred)", "28.4"] == "27.25"
    assert theirs["tensor2tensor#317", "27.52"] == "26.00"
    assert theirs["Ott et al. 2018 (fairseq)", "29.29"] is None
    assert all(len({row[0] for row in group}) == 1 for group in grid.groups)


def test_table_4_own_rows() -> None:
    parser = run_of(1, "wsj-parsing", bracket_f1=score(91.25))
    sample = run_of(2, "treebank-sample", bracket_f1=score(75.0))  # of another test set
    parser = replace(parser, scores={"wsj-23": parser.scores["newstest2014"]})
    rows = grid_rows(table_4_grid([parser, sample]))
    assert len(rows) == len(TABLES["table_4"]["rows"]) + 1
    assert rows[0] == ("nmtkit: wsj-parsing seed=1", "wsj-23", "91.25")


# The document


def test_tables_without_runs_are_folded() -> None:
    empty = parts_of(report_document(EMPTY))
    found = parts_of(report_document(full()))
    assert all(empty[key].is_folded for key in ("table-2", "reproductions", "table-4"))
    folded = {key: found[key].is_folded for key in ("study-a-study", "table-2", "table-4")}
    assert folded == {"study-a-study": False, "table-2": False, "table-4": True}
    assert list(rows_by_label(found["study-a-study"].table)) == ["base", "hot"]
    assert found["study-a-study-not-run"].is_folded
    assert list(rows_by_label(found["study-a-study-not-run"].table)) == ["later"]


def test_charts_compare_same_methods() -> None:
    def trained(number: int, prepared: str, signature: str = "a signature") -> ScoredRun:
        run = run_of(number, sacrebleu=score(20.0 + number))
        dev = [
            {"step": step, "dev_perplexity": 9 / step, "dev_sacrebleu": number * step,
             "dev_sacrebleu_how": signature}
            for step in (1, 2)
        ]  # fmt: skip
        prepare = {"stage": "prepare", "fingerprint": prepared, "path": "p", "is_here": False}
        return replace(run, dev=dev, stages=[prepare, *run.stages])

    runs = [trained(1, "one"), trained(2, "one"), trained(3, "other"), trained(4, "one", "else")]
    found = parts_of(report_document(replace(EMPTY, runs=runs)))["runs"]
    charts = [chart for chart in found.charts if isinstance(chart, Chart)]
    lines = {chart.key: [series.name for series in chart.series] for chart in charts}
    names = [f"mine seed={number}" for number in range(1, 5)]
    assert lines["dev-sacrebleu"] == ["seed=1", "seed=2"]  # the recipe is the same
    assert [lines["dev-sacrebleu-2"], lines["dev-sacrebleu-3"]] == [[names[2]], [names[3]]]
    assert lines["dev-perplexity"] == ["mine"]  # three runs have the same points
    assert {"sacreBLEU of dev: a signature", "sacreBLEU of dev: else"} < set(found.notes)
    for chart in charts:  # a single line has no legend
        assert (chart.series[0].name in chart.title) == (len(chart.series) == 1)


def test_charts_have_scores_of_zero() -> None:
    collapsed = [{"step": step, "dev_perplexity": None, "dev_sacrebleu": 0.0} for step in (1, 2)]
    run = replace(run_of(1, sacrebleu=score(0.0)), dev=collapsed)
    study = study_of(run)
    found = parts_of(report_document(replace(EMPTY, runs=[run])))["runs"]
    (chart,) = found.charts
    assert isinstance(chart, Chart)
    assert list(chart.series[0].points) == [(1, 0.0), (2, 0.0)]
    assert 0 < chart.vertical_scale.high <= 1
    bars = study_chart(study, "mine")
    assert bars is not None
    assert list(bars.series[0].points) == [(0.0, 0)]
    assert bars.horizontal_scale.low == 0  # no score is negative
    assert not any(name.startswith("-") for _, name in bars.horizontal_scale.ticks)


def test_legend_has_values_of_recipe() -> None:
    def trained(number: int, label: str, dropout: float, *overrides: str) -> ScoredRun:
        run = run_of(number, sacrebleu=score(20.0 + number))
        run.stages[0]["recipe"]["model"]["dropout"] = dropout
        run.stages[-1]["run"] = {**run.stages[-1]["run"], "overrides": list(overrides)}
        dev = [{"step": step, "dev_sacrebleu": number * step} for step in (1, 2)]
        return replace(run, label=label, dev=dev)

    runs = [
        trained(1, "mine", 0.25),
        trained(2, "mine dropout=0.5", 0.5, "model.dropout=0.5"),
        trained(3, "mine seed=2", 0.25, "unknown.seed=2"),
        # The same training as the first: another beam changes no curve.
        trained(4, "mine beam_size=1", 0.25, "decoding.beam_size=1"),
    ]
    runs[3] = replace(runs[3], dev=runs[0].dev)
    (chart,) = parts_of(report_document(replace(EMPTY, runs=runs)))["runs"].charts
    assert isinstance(chart, Chart)
    assert [line.name for line in chart.series] == ["dropout=0.25", "dropout=0.5", "seed=2"]


def test_runs_data_has_one_value_per_cell() -> None:
    interval = {**score(26.04321), "confidence_interval": [25.5, 26.5], "signature": "tok:13a"}
    run = run_of(1, sacrebleu=interval, compound_split_bleu=SPLIT)
    rows = list(csv.reader(io.StringIO(as_csv(runs_grid(replace(EMPTY, runs=[run]))))))
    found = [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]
    assert [row["metric"] for row in found] == [
        "sacrebleu",
        "compound_split_bleu",
        "compound_split_bleu.score_quotes_replaced",
    ]
    expected = {"score": "26.0432", "low": "25.5", "high": "26.5", "signature": "tok:13a"}
    assert expected.items() <= found[0].items()
    assert {row["score"] for row in found[1:]} == {"26.75", "27.25"}
    assert {row["low"] for row in found[1:]} == {""}
    assert "26.04 [25.50, 26.50]" in rows_by_label(runs_grid(replace(EMPTY, runs=[run])))[run.label]


def test_report_links_to_provenance() -> None:
    page = parse(render_page(report_document(full())))
    text = markdown(full())
    links = [link for link in page.all("a") if "run-" in link.attributes["href"]]
    assert len(links) == 5  # from the runs, Table 2, the study and two kinds of reproductions
    ids = set()
    for details in page.all("details"):
        ids |= {element.attributes.get("id") for element in details.all()}
    assert {link.attributes["href"].removeprefix("#") for link in links} <= ids
    for fact in (
        *("nmtkit run wmt14-en-de-base", "nmtkit verify runs/score/1", "manifest of train"),
        *(f'"commit": "{40 * "c"}"', '"clean": false', '"torch": "2.13.0"', "hash of a text"),
        *('"d_model": 31', f'"sha256": "{SHA}"', "compound-split BLEU: a signature"),
    ):
        assert fact in page.text
        assert fact in text.replace("\\", "")


def test_hostile_text_in_report() -> None:
    plain = parse(render_page(report_document(full("x"))))
    hostile = parse(render_page(report_document(full(HOSTILE))))
    # The number of lines from labels to points depends on the length of the labels.
    plain_tags = [element.tag for element in plain.all() if element.tag != "path"]
    assert [element.tag for element in hostile.all() if element.tag != "path"] == plain_tags
    assert_self_contained(hostile, "style")
    text = markdown(full(HOSTILE))
    assert "<script" not in re.sub(r"(?m)^    .*$", "", text).replace("\\<", "")
    assert all(
        line.isprintable()
        for line in f"{render_page(report_document(full(HOSTILE)))}\n{text}".split("\n")
    )


def test_files_for_paper() -> None:
    files = dict(files_for_paper(report_document(full())))
    tables = {"runs", "study-a-study", "table-2", "reproductions"}
    names = {f"tables/{name}.{end}" for name in tables for end in ("md", "tex", "csv")}
    charts = {"charts/cost.svg", "charts/study-a-study-scores.svg"}
    assert set(files) == names | charts
    assert "](#" not in files["tables/runs.md"]
    assert all(chart in markdown(full()) for chart in charts)


def test_study_keys_are_unique() -> None:
    study = full().studies[0]
    report = replace(full(), studies=[study, study, replace(study, name="runs")])
    keys = [part.key for part in report_document(report).parts]
    assert {"runs", "study-a-study", "study-a-study-2", "study-runs"} <= set(keys)
    assert len(keys) == len(set(keys))


def test_report_json_is_documented() -> None:
    content = full().as_json()
    assert content["format"] == 6
    readme = (ROOT / "nmtkit" / "report" / "README.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"`([a-z_0-9-]+)`", readme))
    keys = {*content, *content["runs"][0], *content["runs"][0]["stages"][0]}
    keys |= {*content["runs"][0]["cost"], *content["studies"][0]["rows"][0]}
    keys |= {*content["studies"][0]["rows"][0]["runs"][0]}
    assert keys - documented == set()
    assert {field.name for field in fields(ScoredRun)} == set(content["runs"][0])
    assert json.loads(json.dumps(content, allow_nan=False)).keys() == content.keys()
