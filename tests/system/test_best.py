"""Corpora with weights, early stopping by dev scores, and the average of the best checkpoints."""

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
    "dev": '{ src = "train.en", tgt = "train.de" }',  # by default, only a part would be scored
    "dev_every_steps": f'10\npatience = {PATIENCE}\npatience_metric = "chrf"',
    "n_checkpoints": '2\nwhich = "best"',
    "learning_rate_scale": 3.0,
}


def assert_follows_scores(folder: Path) -> None:
    """Assert that the recorded scores decided the end of training and the averaged steps."""
    trained = artifact(folder, "train")
    averaged = artifact(folder, "average")
    lines = read_metrics(trained / "metrics.jsonl")
    scores = {line["step"]: line["dev_chrf"] for line in lines if line["dev_chrf"] is not None}
    assert all(line["dev_seconds"] > 0 for line in lines if line["step"] in scores)
    for step in scores:
        evaluated = [earlier for earlier in scores if earlier <= step]
        best = max(evaluated, key=lambda earlier: scores[earlier])
        is_over = len([later for later in evaluated if later > best]) == PATIENCE
        assert (is_over or step == 120) == (step == lines[-1]["step"])
    chosen = sorted(sorted(scores, key=lambda step: -scores[step])[:2])
    record = json.loads((averaged / "averaged.json").read_bytes())
    chosen_scores = [scores[step] for step in chosen]
    assert record == {"steps": chosen, "metric": "chrf", "scores": chosen_scores}
    name = "model.safetensors"
    models = [load_file(trained / f"checkpoints/step-{step:08d}" / name) for step in chosen]
    for key, weight in load_file(averaged / name).items():
        mean = np.mean([model[key].astype(np.float64) for model in models], axis=0)
        np.testing.assert_array_equal(weight, mean.astype(np.float32))


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a training that was stopped early by chrF, and the average of its best."""
    folder = tmp_path_factory.mktemp("scored")
    write_texts(folder)
    (folder / RECIPE).write_text(recipe(**CHANGES), encoding="utf-8", newline="\n")
    done(nmtkit(folder, "prepare", RECIPE, "--workers", "1"))
    done(nmtkit(folder, "train", RECIPE, "--max-tokens", "250"))
    done(nmtkit(folder, "average", RECIPE))
    return folder


def test_early_stop_follows_scores(scored: Path) -> None:
    assert_follows_scores(scored)


def test_altered_score_is_refused(scored: Path, tmp_path: Path) -> None:
    shutil.copytree(scored, tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy" / "runs" / "average")
    newest = max((artifact(tmp_path / "copy", "train") / "checkpoints").iterdir())
    text = (newest / "progress.json").read_text(encoding="utf-8")
    other = re.sub(r'(?<="score": )\d', "9", text, count=1)
    (newest / "progress.json").write_text(other, encoding="utf-8")
    assert len(other) == len(text)
    assert other != text
    message = sentence(nmtkit(tmp_path / "copy", "average", RECIPE))
    assert "progress.json was altered" in message


@pytest.mark.parametrize(
    ("metric", "lines"), [("sacrebleu", f"first {N_DEV} "), ("chrf", f"whole of dev, {N_TRAIN} ")]
)
def test_dev_score_of_last_weights(
    finished: Finished, scored: Path, tmp_path: Path, metric: str, lines: str
) -> None:
    """Only the first lines are scored if early stopping does not use the score."""
    folder, dev = (scored, "train") if metric == "chrf" else (finished.folder, "dev")
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


def test_weights_repeat_corpora(scored: Path) -> None:
    prepared = PreparedCorpus(open_directory(artifact(scored, "prepare")))
    lines = read_metrics(artifact(scored, "train") / "metrics.jsonl")
    assert lines[-1]["epoch"] > 2
    for side in ("src", "tgt"):
        lengths = prepared.ids("train", side).lengths
        read = sum(line[f"{side}_tokens"] for line in lines if line["epoch"] < 2)
        assert read == 5 * lengths[:N_DEV].sum() + lengths[N_DEV:].sum()


def test_two_processes_stop_together(scored: Path, tmp_path: Path) -> None:
    write_texts(tmp_path)
    shutil.copy(scored / RECIPE, tmp_path / RECIPE)
    shutil.copytree(scored / "runs" / "prepare", tmp_path / "runs" / "prepare")
    together = ("train", RECIPE, "--max-tokens", "250", "--processes", "2")
    assert "restart" not in done(nmtkit(tmp_path, *together, env=environment())).err
    done(nmtkit(tmp_path, "average", RECIPE))
    assert_follows_scores(tmp_path)
    keys = ("step", "epoch", "src_tokens", "tgt_tokens")
    ours = read_metrics(artifact(tmp_path, "train") / "metrics.jsonl")
    theirs = read_metrics(artifact(scored, "train") / "metrics.jsonl")
    for our_line, their_line in zip(ours, theirs, strict=False):
        assert [our_line[key] for key in keys] == [their_line[key] for key in keys]
