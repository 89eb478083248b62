"""The table of promises in tests/README.md."""

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


def test_promises_have_tests() -> None:
    table = (TESTS / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"`([a-z0-9_/]+\.py)(?:::(test_\w+))?`", table)
    assert len(named) > 35
    for path, test in named:
        file = TESTS / path if not path.startswith("tests/") else TESTS.parent / path
        source = file.read_text(encoding="utf-8")
        assert not test or f"\ndef {test}(" in source, f"{path}::{test}"
    rows = re.findall(r"^\| (.*?) \| (.*?) \|$", table, flags=re.MULTILINE)[1:]
    assert all("test_" in tests for _, tests in rows)
