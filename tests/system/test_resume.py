"""Stopped, killed, started twice: the files are those of an uninterrupted run."""

import shutil
import signal
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from chains import Killed

from nmtkit.config.loading import load_recipe
from nmtkit.config.settings import Settings
from nmtkit.decoding.engine import PART_LINES
from nmtkit.decoding.text_translator import TextTranslator, Translation
from nmtkit.stages import translate
from nmtkit.stages.pipeline import Pipeline
from nmtkit.store.records import read_json
from system.command import (
    RECIPE,
    contents,
    done,
    nmtkit,
    outcome,
    read_lines,
    sentence,
    start,
    status,
    steps_done,
    wait_until,
)
from system.conftest import N_TEST, UNUSUAL_LINES, Finished


def test_stopped_training_resumes(prepared: Path, finished: Finished) -> None:
    process = start(prepared, "train", RECIPE)
    wait_until(lambda: steps_done(prepared) >= 13, process)
    process.send_signal(signal.SIGSTOP)  # so that it is still there, however busy the machine
    message = sentence(nmtkit(prepared, "train", RECIPE))
    assert f"process {process.pid} on {socket.gethostname()}" in message
    process.send_signal(signal.SIGUSR1)
    process.send_signal(signal.SIGCONT)
    stopped = outcome(process)
    assert stopped.code == 128 + signal.SIGUSR1
    step = steps_done(prepared)
    assert f"stopped by SIGUSR1 after step {step} of 120" in sentence(stopped)
    (draft,) = prepared.glob("runs/train/*.partial")
    assert (draft / "checkpoints" / f"step-{step:08d}" / "manifest.json").is_file()
    state = status(prepared)["train"]
    assert state["state"] == "partial"
    assert state["path"] == f"runs/train/{finished.artifact('train').name}"

    page = (prepared / f"{state['path']}.html").read_text(encoding="utf-8")
    assert f"Stopped, step {step} of 120" in page

    resumed = done(nmtkit(prepared, "train", RECIPE, "--deterministic"))
    assert resumed.out == f"{state['path']}\n"
    assert contents(prepared / state["path"]) == contents(finished.artifact("train"))
    assert len(read_lines(prepared / state["path"] / "metrics.jsonl")) == 120
    # The steps before the stop were not trained with --deterministic.
    measurements = read_json(prepared / state["path"] / "measurements.json")
    assert measurements["deterministic"] is False
    assert [part["deterministic"] for part in measurements["parts"]] == [False, True]


@pytest.fixture
def _one_thread() -> Iterator[None]:
    """Use one thread, as commands do in tests: the number of threads changes rounding."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_one_thread")
def test_killed_translation_resumes(
    complete: Path, finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    genuine = TextTranslator.translate
    sizes: list[int] = []
    max_parts = 3

    def translate_part(
        translator: TextTranslator, lines: Sequence[str], *args: Any
    ) -> list[Translation]:
        if len(sizes) == max_parts:
            raise Killed
        sizes.append(len(lines))
        return genuine(translator, lines, *args)

    monkeypatch.setitem(PART_LINES, "cpu", 8)
    monkeypatch.setattr(TextTranslator, "translate", translate_part)
    shutil.rmtree(complete / "runs" / "translate")
    settings = Settings(complete / "runs", device="cpu", workers=1)
    recipe = load_recipe(str(complete / RECIPE))
    with pytest.raises(Killed):
        translate.run(Pipeline(recipe, settings, RECIPE))
    assert sizes == [8] * 3
    max_parts = -1
    translated = translate.run(Pipeline(recipe, settings, RECIPE))
    assert sum(sizes) == N_TEST + len(UNUSUAL_LINES)
    text = "test/hypotheses.txt"
    expected = (finished.artifact("translate") / text).read_bytes()
    assert (translated.path / text).read_bytes() == expected
