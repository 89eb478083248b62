"""The hash of the source files tells code apart without git."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import nmtkit
from nmtkit.store.code_version import is_other_code, versions

PRINT_VERSIONS = (
    "import json; from nmtkit.store import code_version as c; "
    "print(json.dumps([c.versions(), c.checkout().clean]))"
)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package in a folder that is not a checkout, as a wheel installs it."""
    package = Path(nmtkit.__file__).parent
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(package, tmp_path / "site" / "nmtkit", ignore=ignore)
    return tmp_path / "site"


def versions_of(folder: Path, **variables: str) -> tuple[dict[str, str], bool | None]:
    """The versions of the package in a folder, from a process of their own."""
    ended = subprocess.run(
        [sys.executable, "-c", PRINT_VERSIONS],
        env={**os.environ, "PYTHONPATH": str(folder), **variables},
        cwd=folder,
        check=True,
        capture_output=True,
        encoding="utf-8",
    )
    made_by, clean = json.loads(ended.stdout)
    return made_by, clean


def test_installed_copy_has_same_hash(copy: Path) -> None:
    """Also with the folders and the compiled files that only a wheel has."""
    for folder in ("data", "pipelines"):
        (copy / "nmtkit" / folder).mkdir()
        (copy / "nmtkit" / folder / "tool.py").write_text("1\n", encoding="utf-8")
    (copy / "nmtkit" / ".#notes.py").symlink_to("nowhere")
    for _ in range(2):  # the second time, compiled files are there
        made_by, _ = versions_of(copy)
        assert "commit" not in made_by
        assert made_by["source"] == versions()["source"]
        assert not is_other_code(made_by)


def test_each_edit_has_another_hash(copy: Path) -> None:
    module = copy / "nmtkit" / "model" / "transformer.py"
    seen = {versions()["source"]}
    module.write_bytes(module.read_bytes() + b"# 1\n")
    edited, _ = versions_of(copy)
    seen.add(edited["source"])
    assert is_other_code(edited)
    module.write_bytes(module.read_bytes().replace(b"# 1\n", b"# 2\n"))
    seen.add(versions_of(copy)[0]["source"])
    module.rename(module.with_name("renamed.py"))
    seen.add(versions_of(copy)[0]["source"])
    (module.parent / "added.py").touch()
    seen.add(versions_of(copy)[0]["source"])
    assert len(seen) == 5


def test_hash_identifies_code() -> None:
    """The same files in two commits are the same code; without a hash, code is older."""
    present = versions()
    assert not is_other_code({**present, "commit": "0" * 40})
    assert is_other_code({**present, "nmtkit": "0.0.1"})
    assert is_other_code({key: value for key, value in present.items() if key != "source"})


def test_untracked_text_is_no_change(copy: Path) -> None:
    """The user's own recipes and text in a checkout; a new module is one."""
    author = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    (copy / ".gitignore").write_text("__pycache__/\n", encoding="utf-8")
    for command in (["init", "-q"], ["add", "nmtkit"], ["commit", "-q", "-m", "first"]):
        subprocess.run(["git", *author, *command], cwd=copy, check=True)
    for folder in ("data", "pipelines"):
        (copy / folder).mkdir()
        (copy / folder / "mine.toml").write_text("", encoding="utf-8")
    made_by, clean = versions_of(copy)
    assert clean
    assert not made_by["commit"].endswith("-dirty")
    (copy / "nmtkit" / "\u00fc.py").touch()
    made_by, clean = versions_of(copy)
    assert not clean
    assert made_by["commit"].endswith("-dirty")
    assert is_other_code(made_by)
    without_git, _ = versions_of(copy, PATH="")
    assert "commit" not in without_git
    assert without_git["source"] == made_by["source"]
