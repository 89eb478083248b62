"""nmtkit report: all scored runs, from artifacts only."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from nmtkit.config.settings import Settings
from nmtkit.report.collection import collect_report
from nmtkit.stages.pipeline import STAGES
from nmtkit.store.records import DamagedError
from nmtkit.utils.errors import UserError
from system import kills
from system.command import RECIPE, artifact, contents, done, flip_byte, nmtkit, sentence, traces
from system.conftest import Finished


def test_report_has_provenance(finished: Finished, tmp_path: Path) -> None:
    before = traces(finished.folder)
    ended = done(nmtkit(finished.folder, "report", "-o", str(tmp_path / "report")))
    assert traces(finished.folder) == before
    paths = [Path(line) for line in ended.out.split("\n")[:-1]]
    assert [path.name for path in paths] == ["report.html", "report.md", "report.json"]
    report = json.loads(paths[2].read_bytes())
    (run,) = report["runs"]
    scores = json.loads((finished.artifact("score") / "scores.json").read_bytes())
    assert run["scores"] == scores
    assert run["command"] == f"nmtkit run ./{RECIPE}"
    assert [stage["stage"] for stage in run["stages"]] == list(STAGES)
    for stage in run["stages"]:
        path = finished.artifact(stage["stage"])
        manifest, measured = (
            json.loads((path / f"{name}.json").read_bytes())
            for name in ("manifest", "measurements")
        )
        assert stage["manifest_sha256"] == manifest["sha256"]
        assert (stage["made_by"], stage["run"]) == (manifest["made_by"], measured["run"])
        assert all(manifest["sha256"] in page.read_text(encoding="utf-8") for page in paths[:2])
        if stage["stage"] == "train":
            assert run["cost"]["device"] == measured["device_name"] == "CPU"
            assert run["cost"]["seconds"] == pytest.approx(measured["timed_seconds"])
    assert run["cost"]["time_flops"] is None
    assert [evaluation["step"] for evaluation in run["dev"]] == [60, 120]
    sacrebleu = scores["test"]["sacrebleu"]["score"]
    table = tmp_path / "report" / "tables" / "runs.csv"
    assert f",{sacrebleu:.6g}," in table.read_text(encoding="utf-8")
    assert f"{sacrebleu:.2f}" in paths[1].read_text(encoding="utf-8")
    assert {"tables/runs.tex", "charts/dev-sacrebleu.svg"} < set(report["files"])
    assert [study["name"] for study in report["studies"]] == ["table-3", "table-3-multi30k"]


STUDY = f"""
name = "mine"
description = "One row"
recipe = "./{RECIPE}"
bleu = "sacrebleu"
rows = [{{ name = "base" }}, {{ name = "N1", set = ["model.n_layers=7"] }}]
"""


def test_report_selects_by_name(complete: Path) -> None:
    settings = Settings(complete / "runs", device="cpu")
    (complete / "study.toml").write_text(STUDY, encoding="utf-8", newline="\n")
    names = [str(complete / RECIPE), "table-3 --set training.max_steps=7"]
    report = collect_report(settings, names)
    assert [run.label for run in report.runs] == ["tiny"]
    assert all("max_steps=7" in row.run for row in report.studies[0].runs())
    report = collect_report(settings, [str(complete / "study.toml")])
    assert [(run.name, run.label) for run in report.runs] == [("tiny", "mine: base")]
    assert [study.name for study in report.studies] == ["mine"]
    assert collect_report(settings, names[1:]).runs == []
    with pytest.raises(UserError, match="did you mean 'table-3'"):
        collect_report(settings, ["table3"])
    with pytest.raises(UserError, match="no artifact of `score`"):
        collect_report(settings, [f"{complete / RECIPE} --set decoding.beam_size=2"])


def test_report_includes_begun_own_studies(complete: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(complete)
    (complete / "mine.toml").write_text(STUDY, encoding="utf-8", newline="\n")
    settings = f'recipe = "./{RECIPE}"\nset = ["training.seed=77"]'
    not_begun = STUDY.replace('"mine"', '"later"').replace(f'recipe = "./{RECIPE}"', settings)
    (complete / "studies").mkdir()
    other_recipe = STUDY.replace(f"./{RECIPE}", f"../{RECIPE}").replace('"mine"', '"within"')
    (complete / "studies" / "within.toml").write_text(other_recipe, encoding="utf-8", newline="\n")
    (complete / "later.toml").write_text(not_begun, encoding="utf-8", newline="\n")
    (complete / "other.toml").write_text("rows = 1\nrecipe = 2\n", encoding="utf-8", newline="\n")
    (complete / "broken.toml").write_text("rows = [\n", encoding="utf-8", newline="\n")
    report = collect_report(Settings(complete / "runs"))
    names = [study.name for study in report.studies]
    assert names == ["mine", "within", "table-3", "table-3-multi30k"]
    assert [run.label for run in report.runs] == ["within: base"]  # in the part of both studies


def test_empty_report_names_first_command(tmp_path: Path) -> None:
    ended = done(nmtkit(tmp_path, "report"))
    assert "nmtkit run demo" in ended.err
    assert "nmtkit run demo" in (tmp_path / "report" / "report.md").read_text(encoding="utf-8")
    assert (tmp_path / "report" / "tables" / "runs.csv").exists() is False
    latex = done(nmtkit(tmp_path, "report", "--table", "latex")).out
    assert r"\begin{tabular}{ll}" in latex.split("\n")
    data = done(nmtkit(tmp_path, "report", "--table", "csv")).out
    assert data.startswith("run,test set,lines,metric,score,low,high,method,signature,")
    assert data.count("\n") == 1


def test_report_without_deleted_artifact(complete: Path) -> None:
    shutil.rmtree(artifact(complete, "train"))
    (run,) = collect_report(Settings(complete / "runs")).runs
    here = {stage["stage"]: stage["is_here"] for stage in run.stages}
    # The artifacts that it was built from are not known any more.
    assert here == {"train": False, "average": True, "translate": True, "score": True}
    assert (run.cost, run.n_parameters, run.steps) == (None, None, None)


def test_damaged_run_is_skipped(complete: Path, capfd: pytest.CaptureFixture[str]) -> None:
    flip_byte(artifact(complete, "score") / "scores.json")
    settings = Settings(complete / "runs")
    assert collect_report(settings).runs == []
    assert "skipping a damaged run: " in capfd.readouterr().err
    with pytest.raises(DamagedError, match="was altered"):
        collect_report(settings, [str(complete / RECIPE)])


@pytest.mark.parametrize("output", [RECIPE, "-"])
def test_output_must_be_a_folder(complete: Path, output: str) -> None:
    ended = nmtkit(complete, "report", "-o", output)
    assert ended.code == 1
    assert "is not a folder; pass a folder" in ended.err


@pytest.mark.parametrize("own", ["report.md", "report.json", "tables/runs.tex"])
def test_report_keeps_files_of_the_user(complete: Path, own: str) -> None:
    (complete / "report" / own).parent.mkdir(parents=True)
    (complete / "report" / own).write_text('{"files": []}', encoding="utf-8")
    before = traces(complete)
    ended = nmtkit(complete, "report")
    assert traces(complete) == before
    assert f"report/{own} exists and was not written by an earlier report" in ended.err


@pytest.mark.parametrize("number", [3, 6, 9, 30])
def test_killed_report_is_rewritten(complete: Path, number: int) -> None:
    for kill_at in (kills.BeforeOperation(number), None):
        result = kills.attempt(kills.command("report"), complete, kill_at=kill_at)
        assert (result.killed, result.failure) == (kill_at is not None, "")
    assert not [*(complete / "report").rglob(".*")]


def test_report_deletes_older_files(complete: Path) -> None:
    folder = complete / "report"
    done(nmtkit(complete, "report", RECIPE))
    (folder / "tables" / "mine.csv").write_text("", encoding="utf-8")
    (folder / "charts" / "mine.svg").write_text("", encoding="utf-8")
    written = json.loads((folder / "report.json").read_bytes())
    assert "charts/dev-sacrebleu.svg" in written["files"]
    empty = hashlib.sha256(b"").hexdigest()
    for name in ("older.tex", "changed.tex"):
        written["files"][f"tables/{name}"] = empty
        (folder / "tables" / name).write_text("", encoding="utf-8")
    (folder / "tables" / "changed.tex").write_text("by the user", encoding="utf-8")
    foreign = {**written["files"], "charts/mine.txt": empty, "../tiny.toml": empty}
    for files, is_ours in ((foreign, False), (written["files"], True)):
        text = json.dumps({**written, "files": files})
        (folder / "report.json").write_text(text, encoding="utf-8")
        assert nmtkit(complete, "report", "table-3").code == (0 if is_ours else 1)
        assert (folder / "tables" / "older.tex").exists() != is_ours
        assert (folder / "charts" / "dev-sacrebleu.svg").exists() != is_ours
    assert (folder / "tables" / "mine.csv").exists()
    assert (folder / "tables" / "changed.tex").exists()
    assert (folder / "charts" / "mine.svg").exists()
    assert (complete / RECIPE).exists()


@pytest.mark.parametrize("link", ["report.html", "tables", "tables/runs.csv", "charts"])
def test_report_follows_no_link(complete: Path, link: str) -> None:
    place = complete / "report" / link
    place.parent.mkdir(parents=True)
    bundle = artifact(complete, "average")
    before = contents(bundle)
    place.symlink_to(bundle / "model.json" if "." in link else bundle)
    assert f"{link} is a link to " in sentence(nmtkit(complete, "report"))
    assert contents(bundle) == before
    assert [path.name for path in (complete / "report").iterdir()] == [
        link.split("/", maxsplit=1)[0]
    ]


def test_foreign_report_deletes_nothing(complete: Path) -> None:
    """A report.json of somebody else names files of the user."""
    tables = complete / "report" / "tables"
    tables.mkdir(parents=True)
    mine = tables / "mine.csv"
    mine.write_text("a,b\n", encoding="utf-8")
    hashes = ({"tables/mine.csv": "0" * 64}, ["tables/mine.csv"])
    for files in hashes:
        content = json.dumps({"made_by": {}, "files": files})
        (complete / "report" / "report.json").write_text(content, encoding="utf-8")
        nmtkit(complete, "report")
        assert mine.read_text(encoding="utf-8") == "a,b\n"
