"""Ctrl-C at many moments of a command, from its first imports to its last line."""

import random
import signal
import time
from pathlib import Path

import pytest

from nmtkit.utils.interrupts import EXIT_CODE
from system.command import RECIPE, Outcome, done, environment, outcome, sentence, start

N_MOMENTS = 12
PYTHON_START_S = 0.3  # until the interpreter runs nmtkit, on a busy machine
COMMANDS = {
    "help": ("--help",),
    "runs": ("runs",),
    "prepare": ("prepare", RECIPE, "--force", "--workers", "2"),
    "train": ("train", RECIPE, "--force"),
    "train-processes": ("train", RECIPE, "--force", "--processes", "2"),
    "translate": ("translate", RECIPE, "--force"),
    "translate-file": ("translate", "--recipe", RECIPE, "-i", "long.en", "-o", "long.de"),
    "score": ("score", RECIPE, "--force"),
    "selftest": ("selftest",),  # trains, too
    "new": ("new", "mine", "--src", "train.en", "--tgt", "train.de", "--no-trial"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_interrupted_command_is_one_sentence(name: str, complete: Path) -> None:
    (complete / "long.en").write_text("a b c d\n" * 5_000, encoding="utf-8")

    def run(number: int, delay_s: float | None = None) -> Outcome:
        """Run the command, interrupted after some time."""
        # Every fourth run converts the model for CTranslate2, which imports torch.
        cache = complete / f"cache-{number // 4}"
        process = start(complete, *COMMANDS[name], env=environment(XDG_CACHE_HOME=str(cache)))
        if delay_s is not None:
            time.sleep(delay_s)
            process.send_signal(signal.SIGINT)
        return outcome(process)

    begin = time.monotonic()
    done(run(0))
    seconds = time.monotonic() - begin
    generator = random.Random(name)
    codes = set()
    for number in range(N_MOMENTS):
        ended = run(number, generator.uniform(PYTHON_START_S, max(seconds, PYTHON_START_S + 0.2)))
        codes.add(ended.code)
        if ended.code != 0:
            assert ended.code == EXIT_CODE, ended.err
            assert "stopped" in sentence(ended)
    # A short command may have ended before all moments.
    assert EXIT_CODE in codes or seconds < 2 * PYTHON_START_S
    done(run(0))
