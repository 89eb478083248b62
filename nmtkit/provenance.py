"""Where a result comes from: the recipe, as it was named, and the checkout that ran it."""

import os
import shlex
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from nmtkit.errors import UserError
from nmtkit.files import Record, sha256_of
from nmtkit.recipe_file import recipe_path

# The parts of a checkout that a result depends on.
SOURCES = ("nmtkit", "pipelines", "data")
GIT_SECONDS = 20.0  # at most


class Provenance(Record):
    name: str  # of the recipe
    recipe: str  # the name of one that comes with nmtkit, or the path of its file
    sha256: str | None  # of that file
    overrides: tuple[str, ...] = ()
    commit: str | None  # of git; None: not a checkout
    clean: bool | None  # the sources are as in the commit

    @property
    def run(self) -> str:
        """What to type behind `nmtkit run` for the same result."""
        return run_of(self.recipe, self.overrides)


def provenance(name: str, command: str, overrides: Sequence[str]) -> Provenance:
    """Return the provenance of what this process makes from the recipe `name`, named `command`."""
    try:
        path = recipe_path(command)
        sha256 = sha256_of(path)
    except (UserError, OSError):  # it was moved since it was read
        path, sha256 = Path(command), None
    commit, clean = _checkout()
    return Provenance(
        name=name,
        recipe=command if command == path.stem else _text(str(path.resolve())),
        sha256=sha256,
        overrides=tuple(map(_text, overrides)),
        commit=commit,
        clean=clean,
    )


def _text(argument: str) -> str:
    """Return a path or an argument as UTF-8 has it, whatever the locale; other bytes as escapes."""
    return os.fsencode(argument).decode("utf-8", errors="backslashreplace")


def run_of(recipe: str, overrides: Sequence[str]) -> str:
    """Return a recipe with its overrides as one types them; a file below here by its short path."""
    path = Path(recipe)
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        recipe = f"./{path.relative_to(Path.cwd())}"
    return shlex.join([recipe, *(f"--set={override}" for override in overrides)])


def split_overrides(run: str) -> tuple[str, list[str]]:
    """Return the recipe, or the study, and the overrides of 'RECIPE --set section.key=value'."""
    if "--set" not in run:
        return run, []
    try:
        name, *options = shlex.split(run.replace("--set ", "--set="))
    except ValueError:  # an open quotation mark
        name, options = run, [""]
    if not all(option.startswith("--set=") for option in options):
        raise UserError(f"{run!r} is not a run; give a recipe, or 'RECIPE --set section.key=value'")
    return name, [option.removeprefix("--set=") for option in options]


@cache
def _checkout() -> tuple[str | None, bool | None]:
    """Return the commit of the checkout that this code is in, and whether it is unchanged."""
    root = Path(__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return None, None
    environment = {name: value for name, value in os.environ.items() if name[:4] != "GIT_"}
    command = ["git", "--no-optional-locks", "status", "--porcelain=v2", "--branch", "--", *SOURCES]
    try:
        status = subprocess.run(  # noqa: S603 - nothing in it comes from outside
            command,
            cwd=root,
            env=environment,
            check=True,
            timeout=GIT_SECONDS,
            capture_output=True,
            encoding="utf-8",
        )
    except (OSError, subprocess.SubprocessError):
        return None, None
    commit, *others = status.stdout.strip().split("\n")
    return commit.removeprefix("# branch.oid "), all(line.startswith("#") for line in others)
