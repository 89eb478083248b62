"""From files to a translation and a fine-tuned model: `nmtkit new`, `run` and `translate`."""

import io
import json
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from functools import partial
from pathlib import Path
from threading import Event

from nmtkit.utils.interrupts import EXIT_CODE, STOPPED
from system.command import (
    Outcome,
    artifact,
    done,
    environment,
    nmtkit,
    outcome,
    read_lines,
    wait_until,
)
from system.conftest import write_texts
from system.server import serving

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


# nmtkit with a catalog of its own.
PROGRAM = """
from pathlib import Path
from nmtkit.__main__ import main
from nmtkit.sources import catalog
catalog.data_dir = lambda: Path("data")
main()
"""
CATALOG = """
[files.talks]
urls = ["{url}"]
[corpora.talks-train]
licence = "none"
[corpora.talks-train.texts]
en-de = {{ src = "talks:train.en", tgt = "talks:train.de" }}
[published]
"""


def test_stopped_download_of_corpus_resumes(tmp_path: Path) -> None:
    write_texts(tmp_path)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as texts:
        for lang in ("en", "de"):
            texts.write(tmp_path / f"train.{lang}", f"train.{lang}")
    body = archive.getvalue()
    n_sent = len(body) // 2
    is_released = Event()
    starts: list[int] = []
    command = [sys.executable, "-c", PROGRAM, "new", "mine", "--corpus", "talks-train"]

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*command, "--no-trial"],
            cwd=tmp_path,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    with serving(body, n_sent, is_released, starts) as url:
        (tmp_path / "data").mkdir()
        text = CATALOG.format(url=url.replace("a.bin", "talks.zip"))
        (tmp_path / "data" / "catalog.toml").write_text(text, encoding="utf-8")

        def has_half(n_requests: int) -> bool:
            parts = list(tmp_path.glob("runs/downloads/*/talks.zip.part"))
            return len(starts) == n_requests and [part.stat().st_size for part in parts] == [n_sent]

        for n_requests, number in ((1, signal.SIGINT), (2, signal.SIGKILL)):
            process = start()
            wait_until(partial(has_half, n_requests), process)
            process.send_signal(number)
            ended = outcome(process)
            if number == signal.SIGINT:
                assert ended == Outcome(EXIT_CODE, "", f"nmtkit: {STOPPED}\n")
            assert not (tmp_path / "mine.toml").exists()
            assert not (tmp_path / "mine").exists()
        is_released.set()
        done(outcome(start()))
        assert starts == [0, n_sent, n_sent]
        resumed = (tmp_path / "mine.toml").read_bytes()

        (tmp_path / "mine.toml").unlink()
        shutil.rmtree(tmp_path / "mine")
        shutil.rmtree(tmp_path / "runs")
        done(outcome(start()))
        assert (tmp_path / "mine.toml").read_bytes() == resumed
