"""The code that runs: version and hash of nmtkit, git commit of its checkout, library versions."""

import hashlib
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from nmtkit import __version__
from nmtkit.utils import progress
from nmtkit.utils.interrupts import AGENT

if TYPE_CHECKING:
    from nmtkit.store.artifacts import Artifact

LIBRARIES = ("torch", "numpy", "sacremoses", "sentencepiece", "sacrebleu", "safetensors")
# The parts of a checkout that a result depends on.
SOURCES = ("nmtkit", "pipelines", "data")
GIT_TIMEOUT_S = 20.0
N_HASH_DIGITS = 16  # of the hash of the source files
CODE_KEYS = ("nmtkit", "commit", "source")  # of `versions()`: they describe our own code
OTHER_CODE = "other code"  # a kind of warning, see `progress.warn_once`
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
    clean = True
    for line in other_lines:
        # The user may keep recipes and text in `pipelines` and `data`; only new code is a change.
        is_new_file = line.startswith("? ") and not line[2:].lstrip('"').startswith("nmtkit/")
        if not line.startswith("#") and not is_new_file:
            clean = False
    return Checkout(commit.removeprefix("# branch.oid "), clean)


@cache
def source_hash() -> str:
    """Return a hash of the source files of this package: 16 hexadecimal digits.

    It is the same in a checkout and in every kind of installation.
    """
    package = Path(__file__).resolve().parents[1]
    names = []
    # `os.walk` is faster than `Path.rglob`, and nearly every command computes this hash.
    for folder, subfolders, files in os.walk(package):
        place = folder.removeprefix(str(package)).lstrip("/")
        if not place:
            # A wheel has these two folders of the repository inside the package.
            subfolders[:] = [name for name in subfolders if name not in ("data", "pipelines")]
        for name in files:
            # Hidden files of editors are no modules, and may be links to nowhere.
            if name.endswith(".py") and not name.startswith("."):
                names.append(f"{place}/{name}")
    sha256 = hashlib.sha256()
    for name in sorted(names):
        content = Path(f"{package}/{name}").read_bytes()
        sha256.update(f"{name} {hashlib.sha256(content).hexdigest()}\n".encode())
    return sha256.hexdigest()[:N_HASH_DIGITS]


@cache
def versions() -> dict[str, str]:
    """Return the versions that a manifest records; "commit" is missing outside a checkout."""
    version_by_name = {
        "python": platform.python_version(),
        "nmtkit": __version__,
        "source": source_hash(),
    }
    commit, clean = checkout()
    if commit is not None:
        version_by_name["commit"] = commit if clean else commit + DIRTY
    for name in LIBRARIES:
        version_by_name[name] = metadata.version(name)
    return version_by_name


def own_code(made_by: Mapping[str, str]) -> dict[str, str]:
    """Return only the versions that describe our own code."""
    return {key: made_by[key] for key in CODE_KEYS if key in made_by}


def code_identity() -> dict[str, str]:
    """Return the versions that `is_other_code` compares. This asks neither git nor pip."""
    return {"nmtkit": __version__, "source": source_hash()}


def is_other_code(made_by: Mapping[str, str]) -> bool:
    """Return whether other code of nmtkit built an artifact.

    Args:
        made_by: The versions in its manifest. Code that recorded no hash of its source files is
            older, and thus other code.
    """
    return any(made_by.get(key) != value for key, value in code_identity().items())


def code_name(made_by: Mapping[str, str]) -> str:
    """Return a version as messages name it: nmtkit 0.2.0 (commit 87775.., source 5d414..)."""
    name = f"nmtkit {made_by.get('nmtkit', 'of an unknown version')}"
    details = []
    for key in ("commit", "source"):
        if key not in made_by:
            continue
        values = []
        for value in made_by[key].split("+"):  # a training may have been resumed by other code
            digits, dirty, _ = value.partition(DIRTY)
            values.append(digits[:12] + dirty)
        details.append(f"{key} {'+'.join(values)}")
    return f"{name} ({', '.join(details)})" if details else name


def warn_of_other_code(artifacts: "Iterable[Artifact]") -> None:
    """Print one warning per process, even with `-q`, if other code of nmtkit built an artifact."""
    # A process that runs others, such as `study`, prints the warning for all of them.
    if AGENT in os.environ:
        return
    for artifact in artifacts:
        made_by = artifact.manifest.made_by
        if is_other_code(made_by):
            remedy = "pass --force to the command that built it"
            # `import` and `average --output` write each bundle to a new folder.
            if artifact.manifest.fingerprint is None:
                remedy = "run the command that built it with another folder"
            progress.warn_once(
                f"{artifact.path} was built by {code_name(made_by)}, and this is "
                f"{code_name(versions())}; {remedy} to rebuild it",
                kind=OTHER_CODE,
                even_if_quiet=True,
            )
            return
