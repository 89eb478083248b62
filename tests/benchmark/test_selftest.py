"""The checks of the environment, the known losses, and the file of results."""

import json
import shutil
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import pytest

from nmtkit.benchmark import selftest
from nmtkit.benchmark.selftest import Check, append_line, as_json_line, check_results
from nmtkit.config.settings import Settings
from nmtkit.utils.errors import Stopped, UserError


def environment(folder: Path) -> Mapping[str, Check]:
    """The checks of this machine, by name."""
    settings = Settings(folder / "runs" / "deeper")
    return {check.what: check for check in selftest.environment(settings)}


def test_environment_of_this_machine(tmp_path: Path) -> None:
    checks = environment(tmp_path)
    assert {"nmtkit", "versions", "CPU", "memory", "disk"} <= {*checks}
    assert "failed" not in [check.state for check in checks.values()]
    assert f"GB free in {tmp_path}" in checks["disk"].seen
    assert not any(tmp_path.iterdir())  # the folder is not created


def test_environment_notes_problems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pins = selftest.pinned_versions()
    versions = {"torch": f"{pins['torch']}+cpu", "numpy": "1.0.0"}
    genuine = metadata.version
    usage = shutil.disk_usage(tmp_path)._replace(free=10**9)
    monkeypatch.setattr(metadata, "version", lambda name: versions.get(name) or genuine(name))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    checks = environment(tmp_path)
    assert [checks[name].state for name in ("versions", "disk")] == ["noted", "noted"]
    assert f"numpy 1.0.0 (tested: {pins['numpy']})" in checks["versions"].seen
    assert "torch" not in checks["versions"].seen


@pytest.mark.parametrize(("error", "state"), [(0.0, "passed"), (0.01, "failed")])
def test_demo_losses_are_compared(
    error: float, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selftest, "LOSSES", {1: selftest.LOSSES[1] + error})
    assert selftest.demo(tmp_path).state == state


def test_failed_demo_is_a_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def demo(_folder: Path) -> Check:
        raise RuntimeError("no such kernel\nstack")

    monkeypatch.setattr(selftest, "demo", demo)
    *_, last = selftest.checks(Settings(tmp_path), tmp_path)
    assert last == Check("demo", "failed", "RuntimeError: no such kernel")


def test_stopped_demo_is_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def demo(_folder: Path) -> Check:
        raise Stopped("stopped after step 3, which is saved", exit_code=130)

    monkeypatch.setattr(selftest, "demo", demo)
    with pytest.raises(Stopped) as stopped:
        list(selftest.checks(Settings(tmp_path), tmp_path))
    assert (str(stopped.value), stopped.value.exit_code) == ("stopped", 130)


def test_result_lines_are_strict_json(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    check = Check("a\nb", "failed", "ä", {"loss": float("nan"), "ms": 1.5, "x": float("inf")})
    append_line(path, as_json_line(check))
    append_line(path, as_json_line(check))
    first, second, end = path.read_text(encoding="utf-8").split("\n")
    assert end == ""

    def refuse(name: str) -> None:
        raise AssertionError(name)

    record = json.loads(first, parse_constant=refuse)
    assert record.keys() == json.loads(second).keys()
    assert (record["what"], record["seen"]) == ("a\nb", "ä")
    assert record["figures"] == {"loss": None, "ms": 1.5, "x": None}


@pytest.mark.parametrize(
    ("before", "after"), [(b"", b"x\n"), (b"a\n", b"a\nx\n"), (b"a", b"a\nx\n")]
)
def test_append_after_cut_line(before: bytes, after: bytes, tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_bytes(before)
    append_line(path, "x")
    assert path.read_bytes() == after


@pytest.mark.parametrize("content", ["[model]\nd_model = 8\n", '{"time": 1}\n', "\x00\xff", "[]\n"])
def test_foreign_file_gets_no_results(content: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match="was not written by"):
        check_results(path)


def test_own_results_are_continued(tmp_path: Path) -> None:
    """Also after a line that was cut off; a link in the folder of artifacts is not followed."""
    path = tmp_path / "selftest.jsonl"
    check_results(path)
    path.touch()
    check_results(path)
    path.write_text('{"time": "20', encoding="utf-8")
    append_line(path, as_json_line(Check("GPU", "passed", "seen")))
    check_results(path)
    link = tmp_path / "link.jsonl"
    link.symlink_to(path)
    with pytest.raises(UserError, match="is a link to"):
        append_line(link, "{}")
