"""The whole chain: what a run leaves, what a rerun redoes, what never changes the bytes."""

import json
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from system.command import (
    RECIPE,
    artifact,
    contents,
    done,
    environment,
    nmtkit,
    read_lines,
    sentence,
    traces,
)
from system.conftest import INVISIBLE, LONG_LINE, N_TEST, ODD_LINES, Finished

STAGES = ("prepare", "train", "average", "translate", "score")
BLEUS = ("sacreBLEU", "tokenized BLEU", "compound-split BLEU")


def test_run_ends_with_each_bleu_named_and_every_path(finished: Finished) -> None:
    assert finished.outcome.code == 0
    for name in BLEUS:
        (row,) = (line for line in finished.outcome.out.split("\n") if f"│ {name} " in line)
        assert any(character.isdigit() for character in row)
    assert "nrefs:1" in finished.outcome.out
    for stage in STAGES:
        assert f"runs/{stage}/{finished.artifact(stage).name}" in finished.outcome.out


def test_tiny_model_learned_its_language(finished: Finished) -> None:
    hypotheses = read_lines(finished.artifact("translate") / "test/hypotheses.txt")[:N_TEST]
    references = read_lines(finished.folder / "test.de")[:N_TEST]
    n_right = sum(h == r for h, r in zip(hypotheses, references, strict=True))
    assert n_right >= 0.7 * N_TEST


def test_each_line_of_the_test_set_has_its_hypothesis_in_its_place(finished: Finished) -> None:
    hypotheses = read_lines(finished.artifact("translate") / "test/hypotheses.txt")
    assert len(hypotheses) == N_TEST + len(ODD_LINES)
    assert [line == "" for line in hypotheses[N_TEST:]] == [
        not s.strip(INVISIBLE) for s in ODD_LINES
    ]
    scores = json.loads((finished.artifact("score") / "scores.json").read_text(encoding="utf-8"))
    assert scores["test"]["test_set"]["lines"] == len(hypotheses)
    ratings = json.loads((finished.artifact("translate") / "test/ratings.json").read_bytes())
    assert len(ratings) == len(hypotheses)


def test_test_line_in_pieces_is_told_and_counted(finished: Finished) -> None:
    number = N_TEST + ODD_LINES.index(LONG_LINE) + 1
    told = [line for line in finished.outcome.err.split("\n") if "too long" in line]
    assert len(told) == 1
    assert f"translate: test, line {number} is too long" in told[0]
    assert "more than 256 subwords" in told[0]
    assert "its 2 pieces" in told[0]
    place = finished.artifact("translate")
    ratings = json.loads((place / "test/ratings.json").read_bytes())
    assert {i: r["pieces"] for i, r in enumerate(ratings, start=1) if "pieces" in r} == {number: 2}
    measured = json.loads((place / "measurements.json").read_bytes())
    assert measured["sets"]["test"]["lines_in_pieces"] == 1


def test_no_place_is_written_into_an_artifact(finished: Finished) -> None:
    for path in (finished.folder / "runs").rglob("*.json"):
        if path.name != "measurements.json":
            assert str(finished.folder) not in path.read_text(encoding="utf-8"), path


def test_stages_one_by_one_make_the_bytes_of_run(workplace: Path, finished: Finished) -> None:
    for stage in STAGES:
        ended = done(nmtkit(workplace, stage, RECIPE))
        if stage != "score":
            assert ended.out == f"runs/{stage}/{artifact(workplace, stage).name}\n"
    assert all(name in ended.out for name in BLEUS)
    assert contents(workplace / "runs") == contents(finished.folder / "runs")


@pytest.mark.parametrize(("before", "stage"), list(pairwise(STAGES)))
def test_stage_without_the_one_before_it_says_what_is_missing(
    complete: Path, before: str, stage: str
) -> None:
    for absent in STAGES[STAGES.index(before) :]:
        shutil.rmtree(complete / "runs" / absent)
    said = sentence(nmtkit(complete, stage, RECIPE))
    assert f"nothing from `{before}` is in runs yet" in said
    assert f"run `nmtkit {before} tiny.toml` first" in said
    assert not list(complete.glob(f"runs/{stage}/*/manifest.json"))


def test_rerun_redoes_nothing_and_changes_no_byte_and_no_date(finished: Finished) -> None:
    before = traces(finished.folder)
    ended = done(nmtkit(finished.folder, "run", RECIPE))
    assert ended.out == finished.outcome.out
    assert ended.err.count(": fresh, ") == len(STAGES)
    assert traces(finished.folder) == before


def test_other_decoding_trains_nothing_and_shares_the_weights(
    complete: Path, finished: Finished
) -> None:
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


def test_other_test_sets_train_nothing_and_are_scored_in_one_table(
    complete: Path, finished: Finished
) -> None:
    """The first one as before, the dev set, and a text without a reference."""
    sets = (
        'test.sets=[{ name = "test", src = "test.en", tgt = "test.de" }, '
        '{ src = "dev.en", tgt = "dev.de" }, { name = "alone", src = "dev.en" }]'
    )
    states = json.loads(done(nmtkit(complete, "status", RECIPE, "--json", "--set", sets)).out)
    assert [states["stages"][stage]["state"] for stage in STAGES] == [
        *["fresh"] * 3,
        *["missing"] * 2,
    ]
    before = {stage: traces(complete / "runs" / stage) for stage in STAGES[:3]}
    done(nmtkit(complete, "translate", RECIPE, "--set", sets))
    ended = done(nmtkit(complete, "score", RECIPE, "--set", sets))
    assert {stage: traces(complete / "runs" / stage) for stage in STAGES[:3]} == before
    assert "alone has no reference and is not scored" in ended.err
    header = "\n".join(ended.out.split("\n")[:4])
    assert "dev.en-de" in header
    assert f"{len(read_lines(complete / 'dev.de'))} lines" in header
    scores = json.loads(done(nmtkit(complete, "score", RECIPE, "--set", sets, "--json")).out)
    old = json.loads((finished.artifact("score") / "scores.json").read_bytes())
    assert scores.keys() == {"test", "dev.en-de"}
    assert scores["test"] == old["test"]
    (other,) = complete.glob("runs/translate/*/alone/hypotheses.txt")
    assert not other.with_name("reference.txt").exists()
    assert read_lines(other) == read_lines(other.parents[1] / "dev.en-de" / "hypotheses.txt")


def test_broken_test_set_is_found_before_training(workplace: Path) -> None:
    (workplace / "more.de").write_text("ein\n" * 7, encoding="utf-8", newline="\n")
    sets = 'test.sets=[{ src = "test.en", tgt = "more.de" }]'
    said = sentence(nmtkit(workplace, "prepare", RECIPE, "--set", sets))
    assert "more.de has 7" in said


def test_prepared_corpus_is_the_same_for_any_workers_and_hash_seed(
    workplace: Path, finished: Finished
) -> None:
    for workers, hash_seed in (("1", "1"), ("2", "2")):
        place = f"runs-{workers}"
        args = ("prepare", RECIPE, "--workers", workers, "--runs-dir", place)
        done(nmtkit(workplace, *args, env=environment(PYTHONHASHSEED=hash_seed)))
        made = contents(workplace / place / "prepare")
        assert made == contents(finished.folder / "runs" / "prepare")


@pytest.mark.slow
def test_micro_batches_change_the_weights_by_rounding_alone(prepared: Path) -> None:
    weights = []
    for max_tokens in ("160", "4096"):
        short = ("--set", "training.max_steps=5", "--set", "model.dropout=0.0")
        args = ("train", RECIPE, *short, "--max-tokens", max_tokens)
        path = done(nmtkit(prepared, *args, "--runs-dir", _copy_runs(prepared, max_tokens))).out
        checkpoint = prepared / path.strip() / "checkpoints" / "step-00000005"
        weights.append(load_file(checkpoint / "model.safetensors"))
    few, many = weights
    assert few.keys() == many.keys()
    assert max(float(np.abs(few[name] - many[name]).max()) for name in few) < 1e-4
    assert any(not np.array_equal(few[name], many[name]) for name in few)


def _copy_runs(folder: Path, name: str) -> str:
    runs = folder / f"runs-{name}"
    runs.mkdir()
    (runs / "prepare").symlink_to(folder / "runs" / "prepare", target_is_directory=True)
    return runs.name
