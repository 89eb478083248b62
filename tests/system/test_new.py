"""From two files to a translation: `nmtkit new`, `run` and `translate`, in an empty folder."""

import json
from pathlib import Path

from system.command import artifact, done, nmtkit, read_lines
from system.conftest import write_texts

QUICK = [
    "subword.n_tokens=300",
    "model.n_layers=1",
    "training.max_steps=10",
    "training.checkpoint_every_steps=2",
    "decoding.max_extra_tokens=2",
]


def test_what_new_writes_runs_and_held_out_sentences_are_not_trained_on(tmp_path: Path) -> None:
    write_texts(tmp_path)
    done(nmtkit(tmp_path, "new", "mine", "--src", "train.en", "--tgt", "train.de"))
    options = ["./mine.toml", *(f"--set={value}" for value in QUICK)]
    told = json.loads(done(nmtkit(tmp_path, "run", *options, "--workers=1", "--json")).out)
    assert told["scores"]["test"]["test_set"]["lines"] == 20
    [count] = json.loads((artifact(tmp_path, "prepare") / "counts.json").read_bytes())["train"]
    assert count["dropped"]["held_out"] == 2 * 20
    bundle = done(nmtkit(tmp_path, "average", *options)).out.removesuffix("\n")
    done(nmtkit(tmp_path, "translate", "--bundle", bundle, "-i", "mine/dev.en", "-o", "out"))
    assert len(read_lines(tmp_path / "out")) == 20
