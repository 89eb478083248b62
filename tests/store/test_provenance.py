"""Recipe and code version in the measurements of an artifact, compared with git."""

import hashlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nmtkit.config.loading import recipe_path
from nmtkit.store import code_version as module
from nmtkit.store.provenance import provenance


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A repository with one commit, in which nmtkit seems to be."""
    root = tmp_path / "checkout"
    source = root / "nmtkit" / "store" / "code_version.py"
    source.parent.mkdir(parents=True)
    source.write_text("1\n", encoding="utf-8")
    for command in ("init -q", "add .", "commit -q -m first"):
        git(root, *command.split())
    monkeypatch.setattr(module, "__file__", str(source))
    module.checkout.cache_clear()
    yield root
    module.checkout.cache_clear()


def git(root: Path, *command: str) -> str:
    author = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    ended = subprocess.run(
        ["git", "-C", str(root), *author, *command],
        check=True,
        capture_output=True,
        encoding="utf-8",
    )
    return ended.stdout.strip()


@pytest.mark.parametrize(
    ("name", "clean"),
    [("nmtkit/store/code_version.py", False), ("nmtkit/new.py", False), ("mine.toml", True)],
)
def test_commit_is_that_of_git(
    checkout: Path, name: str, clean: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (checkout / name).write_text("2\n", encoding="utf-8")
    head = git(checkout, "rev-parse", "HEAD")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))  # is ignored
    found = provenance("demo", "demo", recipe_path("demo"))
    assert (found.commit, found.clean, found.recipe) == (head, clean, "demo")


def test_path_without_unicode_is_escaped(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"stra\xdfe")
    folder.mkdir()
    (folder / "mine.toml").write_text("", encoding="utf-8")
    path = folder / "mine.toml"
    found = provenance("mine", str(path), path, [f"test.sets={os.fsdecode(folder)}"])
    assert found.recipe == f"{tmp_path}/stra\\xdfe/mine.toml"
    assert found.overrides == (f"test.sets={tmp_path}/stra\\xdfe",)
    assert found.model_dump_json()


@pytest.mark.parametrize("missing", [".git", "git"])
def test_wheel_has_no_commit(checkout: Path, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    """Even if it is installed in a folder inside another repository."""
    if missing == ".git":
        (checkout / ".git").rename(checkout.parent / ".git")
    else:
        monkeypatch.setenv("PATH", "")
    found = provenance("demo", "demo", recipe_path("demo"))
    assert (found.commit, found.clean) == (None, None)


def test_own_recipe_has_path_and_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = recipe_path("demo").read_bytes()
    (tmp_path / "mine.toml").write_bytes(content)
    monkeypatch.chdir(tmp_path)
    overrides = ['test.sets=["demo-dev"]']
    found = provenance("mine", "mine.toml", Path("mine.toml"), overrides)
    assert found.recipe == str(tmp_path / "mine.toml")
    assert found.sha256 == hashlib.sha256(content).hexdigest()
    assert found.run == """./mine.toml '--set=test.sets=["demo-dev"]'"""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert found.run.startswith(f"{tmp_path}/mine.toml ")
    (tmp_path / "mine.toml").unlink()
    moved = tmp_path / "mine.toml"
    assert provenance("mine", str(moved), moved).sha256 is None
