"""From files to a translation and a fine-tuned model: `nmtkit new`, `run` and `translate`."""

import json
import re
from pathlib import Path

from system.command import artifact, done, nmtkit, read_lines
from system.conftest import write_texts

QUICK = [
    "subword.n_tokens=300",
    "model.n_layers=1",
    "training.max_steps=10",
    "training.checkpoint_every_steps=2",
    "training.dev_every_steps=2",
    "decoding.max_extra_tokens=2",
]


def test_new_recipe_runs(tmp_path: Path) -> None:
    write_texts(tmp_path)
    printed = done(nmtkit(tmp_path, "new", "mine", "--src", "train.en", "--tgt", "train.de")).out
    assert re.search(r"mine +│ here, cpu", printed)  # the estimate of training
    assert "nmtkit run ./mine.toml" in printed
    options = ["./mine.toml", *(f"--set={value}" for value in QUICK)]
    results = json.loads(done(nmtkit(tmp_path, "run", *options, "--workers=1", "--json")).out)
    assert results["scores"]["test"]["test_set"]["lines"] == 20
    [count] = json.loads((artifact(tmp_path, "prepare") / "counts.json").read_bytes())["train"]
    assert count["dropped"]["held_out"] == 2 * 20
    bundle = done(nmtkit(tmp_path, "average", *options)).out.removesuffix("\n")
    done(nmtkit(tmp_path, "translate", "--bundle", bundle, "-i", "mine/dev.en", "-o", "out"))
    assert len(read_lines(tmp_path / "out")) == 20
    done(
        nmtkit(tmp_path, "new", "tuned", "--from", bundle, "--src", "train.en", "--tgt", "train.de")
    )
    options = ["./tuned.toml", *(f"--set={value}" for value in QUICK[2:])]
    (tmp_path / "elsewhere").mkdir()
    ended = done(nmtkit(tmp_path / "elsewhere", "prepare", "../tuned.toml", "--workers=1"))
    assert f"using the vocabulary of {tmp_path}" in ended.err
    assert "from the weights" in done(nmtkit(tmp_path, "run", *options, "--workers=1")).err
