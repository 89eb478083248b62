"""Ctrl-C at many moments of a command, from its first imports to its last line."""

import random
import signal
import time
from pathlib import Path

import pytest
from bundles import publish_bundle
from models import tiny

from nmtkit.utils.interrupts import EXIT_CODE, STOPPED
from system.command import environment, outcome, start

N_MOMENTS = 60
PYTHON_START_S = 0.3  # until the interpreter runs nmtkit, on a busy machine


@pytest.mark.slow
def test_interrupted_translation_is_one_sentence(tmp_path: Path) -> None:
    bundle = publish_bundle(tmp_path / "model", tiny())
    (tmp_path / "in.en").write_text("A dog looked.\n" * 5_000, encoding="utf-8")
    command = ("translate", "--bundle", str(bundle), "-i", "in.en", "-o", "out.de")
    codes = set()
    generator = random.Random(1)
    for number in range(N_MOMENTS):
        # Every fifth run converts the model for CTranslate2, which imports torch.
        env = environment(XDG_CACHE_HOME=str(tmp_path / f"cache-{number // 5}"))
        process = start(tmp_path, *command, env=env)
        time.sleep(PYTHON_START_S + generator.uniform(0, 4))
        process.send_signal(signal.SIGINT)
        ended = outcome(process)
        codes.add(ended.code)
        if ended.code != 0:
            assert ended.code == EXIT_CODE
            assert ended.err.split("\n")[-2:] == [f"nmtkit: {STOPPED}", ""]
            assert "Traceback" not in ended.err
    assert EXIT_CODE in codes
