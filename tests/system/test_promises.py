"""Promises that no other test keeps, and the table of all."""

import os
import random
import re
from pathlib import Path

from system.command import RECIPE, contents, done, nmtkit

TESTS = Path(__file__).resolve().parents[1]


def test_every_promise_has_its_test() -> None:
    table = (TESTS / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"`([a-z0-9_/]+\.py)(?:::(test_\w+))?`", table)
    assert len(named) > 35
    for path, test in named:
        file = TESTS / path if not path.startswith("tests/") else TESTS.parent / path
        source = file.read_text(encoding="utf-8")
        assert not test or f"\ndef {test}(" in source, f"{path}::{test}"
    rows = re.findall(r"^\| (.*?) \| (.*?) \|$", table, flags=re.MULTILINE)[1:]
    assert all("test_" in tests for _, tests in rows)


def test_dates_of_files_decide_nothing(complete: Path) -> None:
    before = contents(complete / "runs")
    generator = random.Random(3)
    for path in sorted(complete.rglob("*")):
        date = generator.choice((0, 1_000_000_000, 4_102_444_800))  # 1970, 2001, 2100
        os.utime(path, (date, date))
    ended = done(nmtkit(complete, "run", RECIPE))
    assert ended.err.count(": fresh, ") == 5
    assert contents(complete / "runs") == before
