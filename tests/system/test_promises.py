"""Promises that no other test keeps, and the table of all."""

import os
import random
import re
from pathlib import Path

from system.command import RECIPE, contents, done, environment, nmtkit
from system.conftest import TOML, Finished, write_texts

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


def test_locale_and_name_of_the_folder_change_no_byte(tmp_path: Path, finished: Finished) -> None:
    place = tmp_path / "mein Ordner ß \U0001f600"
    place.mkdir()
    (tmp_path / "a link").symlink_to(place)
    folder = tmp_path / "a link"
    write_texts(folder)
    (folder / RECIPE).write_text(TOML, encoding="utf-8", newline="\n")
    (tmp_path / "elsewhere").mkdir()
    (folder / "runs").symlink_to(tmp_path / "elsewhere")
    variables = environment(LC_ALL="POSIX", PYTHONCOERCECLOCALE="0", PYTHONUTF8="0")
    done(nmtkit(folder, "prepare", f"./{RECIPE}", "--workers", "1", env=variables))
    theirs = contents(finished.folder / "runs" / "prepare")
    assert contents(folder / "runs" / "prepare") == theirs
