"""Stopped, killed, started twice: what ends up on disk is what an undisturbed run leaves."""

import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from nmtkit.decoding.engine import PART_LINES
from nmtkit.decoding.lines import Translation, Translator
from nmtkit.machine import Machine
from nmtkit.recipe_file import load_recipe
from nmtkit.stages import translate
from nmtkit.stages.chain import Chain
from system.command import (
    RECIPE,
    artifact,
    contents,
    done,
    nmtkit,
    outcome,
    run_command,
    sentence,
    start,
    status,
    steps_done,
    wait_until,
)
from system.conftest import N_TEST, ODD_LINES, Finished
from system.kills import attempt

RUN = ("run", RECIPE, "--workers", "1")


def test_stopped_training_saves_and_goes_on_to_the_same_bits(
    prepared: Path, finished: Finished
) -> None:
    process = start(prepared, "train", RECIPE)
    wait_until(lambda: steps_done(prepared) >= 13, process)
    process.send_signal(signal.SIGUSR1)
    stopped = outcome(process)
    assert stopped.code == 128 + signal.SIGUSR1
    said = sentence(stopped)
    assert "stopped by SIGUSR1 after step " in said
    assert "of 120, which is saved; the same command resumes there" in said
    step = int(said.split("after step ")[1].split(" ")[0])
    assert step == steps_done(prepared)
    (draft,) = prepared.glob("runs/train/*.partial")
    assert (draft / "checkpoints" / f"step-{step:08d}" / "manifest.json").is_file()
    state = status(prepared)["train"]
    assert state["state"] == "partial"
    assert state["path"] == f"runs/train/{finished.artifact('train').name}"

    page = (prepared / f"{state['path']}.html").read_text(encoding="utf-8")
    assert f"<b>Stopped</b>, step {step} of 120" in page

    went_on = done(nmtkit(prepared, "train", RECIPE))
    assert went_on.out == f"{state['path']}\n"
    assert contents(prepared / state["path"]) == contents(finished.artifact("train"))
    lines = (prepared / state["path"] / "metrics.jsonl").read_bytes().count(b"\n")
    assert lines == 120


def test_ctrl_c_while_text_is_prepared_is_told_in_a_line(
    workplace: Path, finished: Finished
) -> None:
    text = (workplace / RECIPE).read_text(encoding="utf-8")
    source = '{ src = "train.en", tgt = "train.de" }'
    longer = text.replace(f"[{source}]", f"[{', '.join([source] * 300)}]")
    (workplace / "longer.toml").write_text(longer, encoding="utf-8", newline="\n")
    process = start(
        workplace,
        *("prepare", "longer.toml", "--workers", "1"),
        # A shell that runs the tests in the background lets them ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    wait_until(lambda: any(workplace.glob("runs/prepare/*.partial/temporary")), process)
    process.send_signal(signal.SIGINT)
    stopped = outcome(process)
    assert stopped.code == 130
    assert sentence(stopped).endswith("finished work is kept")
    assert not list(workplace.glob("runs/prepare/*/manifest.json"))
    done(nmtkit(workplace, "prepare", RECIPE))
    assert contents(artifact(workplace, "prepare")) == contents(finished.artifact("prepare"))


def test_run_killed_in_each_part_and_rerun_leaves_what_an_undisturbed_run_leaves(
    workplace: Path, finished: Finished
) -> None:
    """Kill -9 a run as it prepares, in the middle of training, and near the end."""
    moments: list[Callable[[], bool]] = [
        lambda: any(workplace.glob("runs/prepare/*.partial")),
        lambda: steps_done(workplace) >= 25,
        lambda: any(workplace.glob("runs/train/*/manifest.json")),
    ]
    for moment in moments:
        process = start(workplace, *RUN)
        wait_until(moment, process)
        time.sleep(random.uniform(0.0, 0.3))
        _kill(process)
    done(nmtkit(workplace, *RUN))
    assert contents(workplace / "runs") == contents(finished.folder / "runs")


def die_in_the_fourth_part(_: Path) -> None:
    """Translate three parts of eight lines."""
    whole, parts = Translator.translate, list[Any]()

    def translate_three(*args: Any) -> list[Translation]:
        if len(parts) == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        parts.append(args)
        return whole(*args)

    PART_LINES["cpu"] = 8
    Translator.translate = translate_three  # type: ignore[method-assign,assignment]
    run_command("translate", RECIPE)


def test_translation_killed_goes_on_from_the_last_finished_part(
    complete: Path, finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(complete / "runs" / "translate")
    undisturbed = _translate_in_parts_of_eight(complete, complete / "undisturbed", monkeypatch)
    assert sum(undisturbed) == N_TEST + len(ODD_LINES)
    shutil.rmtree(complete / "runs" / "translate")

    assert attempt(die_in_the_fourth_part, complete).code == -signal.SIGKILL
    resumed = _translate_in_parts_of_eight(complete, complete / "resumed", monkeypatch)
    assert resumed == undisturbed[3:]
    assert contents(complete / "resumed") == contents(complete / "undisturbed")
    hypotheses = finished.artifact("translate") / "test/hypotheses.txt"
    assert (complete / "resumed" / "test/hypotheses.txt").read_bytes() == hypotheses.read_bytes()


def _translate_in_parts_of_eight(
    folder: Path, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> list[int]:
    """Run the stage, copy what it publishes, and return the lines of each part it translated."""
    sizes: list[int] = []

    def translate_part(
        translator: Translator, lines: Sequence[str], *args: Any
    ) -> list[Translation]:
        sizes.append(len(lines))
        return whole(translator, lines, *args)

    whole = Translator.translate
    machine = Machine(folder / "runs", device="cpu", workers=1)
    with monkeypatch.context() as patch:
        patch.setitem(PART_LINES, "cpu", 8)
        patch.setattr(Translator, "translate", translate_part)
        made = translate.run(Chain(load_recipe(str(folder / RECIPE)), machine, RECIPE))
    shutil.copytree(made.path, copy)
    return sizes


def test_second_run_at_the_same_time_is_refused_and_the_first_ends_well(
    prepared: Path, finished: Finished
) -> None:
    first = start(prepared, *RUN)
    wait_until(lambda: steps_done(prepared) >= 1, first)
    first.send_signal(signal.SIGSTOP)  # so that it is still there, however busy the machine
    second = nmtkit(prepared, *RUN)
    first.send_signal(signal.SIGCONT)
    said = sentence(second)
    assert f"is being made by process {first.pid} on {socket.gethostname()}" in said
    done(outcome(first))
    assert contents(prepared / "runs") == contents(finished.folder / "runs")


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    outcome(process)
