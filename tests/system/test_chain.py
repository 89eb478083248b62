"""The whole pipeline: its output, its reruns, and its independence of the environment."""

import json
import os
import random
import re
import shutil
from pathlib import Path

from nmtkit.stages.pipeline import STAGES
from nmtkit.store.files import DRAFT
from nmtkit.store.manifests import MEASUREMENTS
from system.command import RECIPE, artifact, contents, done, environment, nmtkit, read_lines, traces
from system.conftest import INVISIBLE, LONG_LINE, N_TEST, UNUSUAL_LINES, Finished, write_texts

SCORES = ("sacreBLEU", "chrF2")
PAPER_SCORES = ("tokenized BLEU", "compound-split BLEU")


def test_run_prints_scores_and_paths(finished: Finished) -> None:
    for name in SCORES:
        assert re.search(rf"{name}\b.*\d", finished.outcome.out)
    for name in PAPER_SCORES:
        assert name not in finished.outcome.out
    for stage in STAGES:
        assert f"runs/{stage}/{finished.artifact(stage).name}" in finished.outcome.out


def test_hypotheses_keep_line_order(finished: Finished) -> None:
    translated = finished.artifact("translate") / "test"
    hypotheses = read_lines(translated / "hypotheses.txt")
    references = read_lines(finished.folder / "test.de")
    pairs = list(zip(hypotheses, references, strict=True))
    assert sum(hyp == ref for hyp, ref in pairs[:N_TEST]) >= 0.7 * N_TEST
    for line, hypothesis in zip(UNUSUAL_LINES, hypotheses[N_TEST:], strict=True):
        assert (hypothesis == "") == (line.strip(INVISIBLE) == "")
    scores = json.loads((finished.artifact("score") / "scores.json").read_bytes())
    assert scores["test"]["test_set"]["lines"] == len(hypotheses)

    number = N_TEST + UNUSUAL_LINES.index(LONG_LINE) + 1
    assert finished.outcome.err.count("in 2 pieces") == 1
    assert f"warning: test, line {number} has more than" in finished.outcome.err
    ratings = json.loads((translated / "ratings.json").read_bytes())
    assert len(ratings) == len(hypotheses)
    assert {i: r["pieces"] for i, r in enumerate(ratings, start=1) if "pieces" in r} == {number: 2}
    measured = json.loads((translated.parent / MEASUREMENTS).read_bytes())
    assert measured["sets"]["test"]["lines_in_pieces"] == 1


def test_draft_of_killed_stage(complete: Path) -> None:
    """Only stages with a journal or checkpoints resume; others delete the files of a draft."""
    stages = ("average", "score")
    for stage in stages:
        published = artifact(complete, stage)
        draft = published.with_suffix(DRAFT)
        published.rename(draft)
        (draft / "stray").write_text("left", encoding="utf-8")
    done(nmtkit(complete, "run", RECIPE))
    for stage in stages:
        assert not (artifact(complete, stage) / "stray").exists()


def test_artifacts_contain_no_paths(finished: Finished) -> None:
    for path in (finished.folder / "runs").rglob("*.json"):
        if path.name != "measurements.json":
            assert str(finished.folder) not in path.read_text(encoding="utf-8"), path


def test_single_stages_equal_run(workplace: Path, finished: Finished) -> None:
    shutil.copytree(finished.folder / "runs" / "train", workplace / "runs" / "train")
    for stage in STAGES:
        workers = ("--workers", "1") if stage == "prepare" else ()
        ended = done(nmtkit(workplace, stage, RECIPE, *workers))
        if stage != "score":
            assert ended.out == f"runs/{stage}/{artifact(workplace, stage).name}\n"
    assert all(name in ended.out for name in SCORES)
    assert contents(workplace / "runs") == contents(finished.folder / "runs")


def test_rerun_changes_nothing(complete: Path, finished: Finished) -> None:
    generator = random.Random(3)
    for path in sorted(complete.rglob("*")):
        date = generator.choice((0, 1_000_000_000, 4_102_444_800))  # 1970, 2001, 2100
        os.utime(path, (date, date))
    before = traces(complete)
    ended = done(nmtkit(complete, "run", RECIPE))
    assert ended.out == finished.outcome.out
    assert traces(complete) == before


def test_other_decoding_trains_nothing(complete: Path, finished: Finished) -> None:
    before = {stage: traces(complete / "runs" / stage) for stage in STAGES}
    done(nmtkit(complete, "run", RECIPE, "--set", "decoding.beam_size=1"))
    after = {stage: traces(complete / "runs" / stage) for stage in STAGES}
    redone = ("average", "translate", "score")
    assert {stage for stage in STAGES if before[stage] != after[stage]} == {*redone}
    for stage in redone:
        assert len(list(complete.glob(f"runs/{stage}/*/manifest.json"))) == 2
        old = finished.artifact(stage).name
        assert contents(complete / "runs" / stage / old) == contents(finished.artifact(stage))
    weights = list(complete.glob("runs/average/*/model.safetensors"))
    assert len({path.stat().st_ino for path in weights}) == 1


def test_decoder_of_other_depth(complete: Path) -> None:
    """A student is trained on the same prepared corpus, and both engines run it."""
    option = ["--set", "model.n_decoder_layers=2"]
    for stage in ("train", "average"):
        done(nmtkit(complete, stage, RECIPE, *option, "--set", "training.max_steps=40"))
    assert len(list(complete.glob("runs/prepare/*/manifest.json"))) == 1
    option += ["--set", "training.max_steps=40"]
    texts = []
    for engine in ("torch", "ctranslate2"):
        translate = ["translate", "--recipe", RECIPE, *option, "--engine", engine]
        texts.append(done(nmtkit(complete, *translate, stdin=b"a b c\n")).out)
    assert texts[0] == texts[1] != "\n"


def test_other_test_sets_train_nothing(complete: Path, finished: Finished) -> None:
    """The same test set, the dev set, and a text without a reference."""
    sets = (
        'test.sets=[{ name = "test", src = "test.en", tgt = "test.de" }, '
        '{ src = "dev.en", tgt = "dev.de" }, { name = "unreferenced", src = "dev.en" }]'
    )
    before = {stage: traces(complete / "runs" / stage) for stage in ("prepare", "train", "average")}
    done(nmtkit(complete, "translate", RECIPE, "--set", sets))
    ended = done(nmtkit(complete, "score", RECIPE, "--set", sets))
    assert {stage: traces(complete / "runs" / stage) for stage in before} == before
    assert "skipping unreferenced, which has no reference" in ended.err
    assert "dev.en-de" in ended.out
    scores = json.loads(done(nmtkit(complete, "score", RECIPE, "--set", sets, "--json")).out)
    old = json.loads((finished.artifact("score") / "scores.json").read_bytes())
    assert scores.keys() == {"test", "dev.en-de"}
    assert scores["test"] == old["test"]
    (other,) = complete.glob("runs/translate/*/unreferenced/hypotheses.txt")
    assert not other.with_name("reference.txt").exists()
    assert read_lines(other) == read_lines(other.parents[1] / "dev.en-de" / "hypotheses.txt")


def test_prepare_in_any_environment(tmp_path: Path, finished: Finished) -> None:
    folder = tmp_path / "a link"
    place = tmp_path / "mein Ordner ß \U0001f600"
    for name in (place, tmp_path / "elsewhere"):
        name.mkdir()
    folder.symlink_to(place)
    (folder / "runs").symlink_to(tmp_path / "elsewhere")
    write_texts(folder)
    for locale, workers in (("POSIX", "1"), ("C.UTF-8", "2")):
        variables = {"LC_ALL": locale, "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
        env = environment(PYTHONHASHSEED=workers, **variables)
        args = ("prepare", f"./{RECIPE}", "--workers", workers)
        prepared = folder / done(nmtkit(folder, *args, env=env)).out.strip()
        assert contents(prepared) == contents(finished.artifact("prepare"))
        shutil.rmtree(prepared)
