"""The code that runs: version of nmtkit, git commit of its checkout, versions of libraries."""

import os
import platform
import subprocess
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from nmtkit import __version__

LIBRARIES = ("torch", "numpy", "sacremoses", "sentencepiece", "sacrebleu", "safetensors")
# The parts of a checkout that a result depends on.
SOURCES = ("nmtkit", "pipelines", "data")
GIT_TIMEOUT_S = 20.0
CODE_KEYS = ("nmtkit", "commit")  # of `versions()`: they identify our own code
DIRTY = "-dirty"  # follows a commit whose sources were changed


class Checkout(NamedTuple):
    """The state of the git checkout that this package is imported from."""

    commit: str | None  # None: not a checkout
    clean: bool | None  # the sources are those of the commit


@cache
def checkout() -> Checkout:
    """Ask git for the commit of the checkout, and whether its sources are unchanged."""
    root = Path(__file__).resolve().parents[2]
    # Without this check, git would find a repository that contains an installed package.
    if not (root / ".git").exists():
        return Checkout(None, None)
    # GIT_DIR and the like would make git look at another repository.
    environment = {name: value for name, value in os.environ.items() if name[:4] != "GIT_"}
    command = ["git", "--no-optional-locks", "status", "--porcelain=v2", "--branch", "--", *SOURCES]
    try:
        status = subprocess.run(  # noqa: S603 - nothing in it comes from outside
            command,
            cwd=root,
            env=environment,
            check=True,
            timeout=GIT_TIMEOUT_S,
            capture_output=True,
            encoding="utf-8",
        )
    except (OSError, subprocess.SubprocessError):
        return Checkout(None, None)
    # Lines with "#" describe the branch, the first of them the commit; others are changed files.
    commit, *other_lines = status.stdout.strip().split("\n")
    clean = all(line.startswith("#") for line in other_lines)
    return Checkout(commit.removeprefix("# branch.oid "), clean)


@cache
def versions() -> dict[str, str]:
    """Return the versions that a manifest records; "commit" is missing outside a checkout."""
    version_by_name = {"python": platform.python_version(), "nmtkit": __version__}
    commit, clean = checkout()
    if commit is not None:
        version_by_name["commit"] = commit if clean else commit + DIRTY
    for name in LIBRARIES:
        version_by_name[name] = metadata.version(name)
    return version_by_name


def own_code(made_by: Mapping[str, str]) -> dict[str, str]:
    """Return only the versions that identify our own code."""
    return {key: made_by[key] for key in CODE_KEYS if key in made_by}


def is_other_code(made_by: Mapping[str, str]) -> bool:
    """Return whether another version or commit of nmtkit built an artifact.

    Args:
        made_by: The versions in its manifest. The commit is compared only in a checkout: an
            installed package does not know its own.
    """
    present = own_code(versions())
    return any(made_by.get(key) != value for key, value in present.items())


def code_name(made_by: Mapping[str, str]) -> str:
    """Return a version and its commit as messages name them: nmtkit 0.2.0 (commit 877758acfa44)."""
    name = f"nmtkit {made_by.get('nmtkit', 'of an unknown version')}"
    if "commit" not in made_by:
        return name
    commits = []
    for commit in made_by["commit"].split("+"):  # a training may have been resumed by another one
        digits, dirty, _ = commit.partition(DIRTY)
        commits.append(digits[:12] + dirty)
    return f"{name} (commit {'+'.join(commits)})"
