"""Corpora with weights, early stopping by the translation of dev, and the best averaged."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import sacrebleu
from safetensors.numpy import load_file

from nmtkit.corpus.prepared import PreparedCorpus
from nmtkit.store.artifacts import open_directory
from nmtkit.training.metrics import read_metrics
from system.command import RECIPE, artifact, done, environment, nmtkit, read_lines, sentence
from system.conftest import N_DEV, N_TRAIN, Finished, recipe, write_texts

PATIENCE = 2
CHANGES = {
    "train": '[{ src = "dev.en", tgt = "dev.de", weight = 2.5 }, '
    '{ src = "train.en", tgt = "train.de", weight = 0.5 }]',
    "dev": '{ src = "train.en", tgt = "train.de" }',  # more lines than are looked at otherwise
    "dev_every_steps": f'10\npatience = {PATIENCE}\npatience_metric = "chrf"',
    "n_checkpoints": '2\nwhich = "best"',
    "learning_rate_scale": 3.0,
}


def assert_ends_and_averages_as_recorded(folder: Path) -> None:
    """Look at each evaluation and all before it."""
    trained, averaged = artifact(folder, "train"), artifact(folder, "average")
    lines = read_metrics(trained / "metrics.jsonl")
    scores = {line["step"]: line["dev_chrf"] for line in lines if line["dev_chrf"] is not None}
    assert all(line["dev_seconds"] > 0 for line in lines if line["step"] in scores)
    for step in scores:
        until = [each for each in scores if each <= step]
        best = max(until, key=lambda each: scores[each])
        is_over = len([each for each in until if each > best]) == PATIENCE
        assert (is_over or step == 120) == (step == lines[-1]["step"])
    chosen = sorted(sorted(scores, key=lambda each: -scores[each])[:2])
    told = json.loads((averaged / "averaged.json").read_bytes())
    assert told == {"steps": chosen, "metric": "chrf", "scores": [scores[step] for step in chosen]}
    name = "model.safetensors"
    models = [load_file(trained / f"checkpoints/step-{step:08d}" / name) for step in chosen]
    for key, weight in load_file(averaged / name).items():
        mean = np.mean([model[key].astype(np.float64) for model in models], axis=0)
        np.testing.assert_array_equal(weight, mean.astype(np.float32))


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("judged")
    write_texts(folder)
    (folder / RECIPE).write_text(recipe(**CHANGES), encoding="utf-8", newline="\n")
    done(nmtkit(folder, "prepare", RECIPE, "--workers", "1"))
    done(nmtkit(folder, "train", RECIPE, "--max-tokens", "250"))
    done(nmtkit(folder, "average", RECIPE))
    return folder


def test_training_ends_and_the_best_are_averaged_as_the_recorded_scores_say(judged: Path) -> None:
    assert_ends_and_averages_as_recorded(judged)


def test_altered_score_chooses_no_checkpoint(judged: Path, tmp_path: Path) -> None:
    shutil.copytree(judged, tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy" / "runs" / "average")
    newest = max((artifact(tmp_path / "copy", "train") / "checkpoints").iterdir())
    told = (newest / "progress.json").read_text(encoding="utf-8")
    other = re.sub(r'(?<="score": )\d', "9", told, count=1)
    (newest / "progress.json").write_text(other, encoding="utf-8")
    assert len(other) == len(told)
    assert other != told
    said = sentence(nmtkit(tmp_path / "copy", "average", RECIPE))
    assert "progress.json was altered" in said


@pytest.mark.parametrize(
    ("metric", "lines"), [("sacrebleu", f"first {N_DEV} "), ("chrf", f"whole of dev, {N_TRAIN} ")]
)
def test_dev_score_is_that_of_what_the_last_weights_make_of_dev(
    finished: Finished, judged: Path, tmp_path: Path, metric: str, lines: str
) -> None:
    """If nothing is decided by it, of the first lines."""
    folder, dev = (judged, "train") if metric == "chrf" else (finished.folder, "dev")
    trained = artifact(folder, "train")
    newest = max((trained / "checkpoints").iterdir())
    done(nmtkit(tmp_path, "average", str(newest), "-o", "last"))
    greedy = ("--engine", "torch", "--beam", "1", "--length-penalty", "0")
    text = (folder / f"{dev}.en").read_bytes()
    ended = done(nmtkit(tmp_path, "translate", "--bundle", "last", *greedy, stdin=text))
    hypotheses = ended.out.removesuffix("\n").split("\n")
    score = vars(sacrebleu)[f"corpus_{metric.removeprefix('sacre')}"]
    last = read_metrics(trained / "metrics.jsonl")[-1]
    assert last[f"dev_{metric}"] == score(hypotheses, [read_lines(folder / f"{dev}.de")]).score
    assert lines in last[f"dev_{metric}_how"]


def test_two_epochs_have_a_corpus_as_often_as_twice_its_weight(judged: Path) -> None:
    prepared = PreparedCorpus(open_directory(artifact(judged, "prepare")))
    lines = read_metrics(artifact(judged, "train") / "metrics.jsonl")
    assert lines[-1]["epoch"] > 2
    for side in ("src", "tgt"):
        lengths = prepared.ids("train", side).lengths
        read = sum(line[f"{side}_tokens"] for line in lines if line["epoch"] < 2)
        assert read == 5 * lengths[:N_DEV].sum() + lengths[N_DEV:].sum()


def test_two_processes_draw_the_same_and_decide_together(judged: Path, tmp_path: Path) -> None:
    write_texts(tmp_path)
    shutil.copy(judged / RECIPE, tmp_path / RECIPE)
    shutil.copytree(judged / "runs" / "prepare", tmp_path / "runs" / "prepare")
    together = ("train", RECIPE, "--max-tokens", "250", "--processes", "2")
    assert "restart" not in done(nmtkit(tmp_path, *together, env=environment())).err
    done(nmtkit(tmp_path, "average", RECIPE))
    assert_ends_and_averages_as_recorded(tmp_path)
    keys = ("step", "epoch", "src_tokens", "tgt_tokens")
    ours, theirs = (
        [[line[key] for key in keys] for line in read_metrics(path / "metrics.jsonl")]
        for path in (artifact(tmp_path, "train"), artifact(judged, "train"))
    )
    assert all(one == other for one, other in zip(ours, theirs, strict=False))
