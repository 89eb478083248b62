"""Where a result comes from: the recipe, as it was named, and the checkout that ran it."""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from nmtkit.config.loading import absolute_override, recipe_path
from nmtkit.store.code_version import checkout
from nmtkit.store.records import Record, sha256_of
from nmtkit.utils.errors import UserError


class Provenance(Record):
    name: str  # of the recipe
    recipe: str  # the name of one that comes with nmtkit, or the path of its file
    sha256: str | None  # of that file
    overrides: tuple[str, ...] = ()  # paths in them are absolute
    # The environment variables that the recipe names, and that of the seed; None: not set.
    variables: tuple[tuple[str, str | None], ...] = ()
    commit: str | None  # of git; None: not a checkout
    clean: bool | None  # the sources are as in the commit

    @property
    def run(self) -> str:
        """What to type behind `nmtkit run` for the same result."""
        return run_of(self.recipe, self.overrides)


def provenance(
    name: str, command: str, overrides: Sequence[str], variables: Sequence[str] = ()
) -> Provenance:
    """Return the provenance of an artifact that this process builds.

    Args:
        name: The name that the recipe has in its file.
        command: Its name or path, as the user typed it.
        overrides: The values of `--set`; relative paths in them are of the current folder.
        variables: The names of the environment variables that it depends on.
    """
    try:
        path = recipe_path(command)
        sha256 = sha256_of(path)
    except (UserError, OSError):  # it was moved since it was read
        path, sha256 = Path(command), None
    commit, clean = checkout()
    return Provenance(
        name=name,
        recipe=command if command == path.stem else _text(str(path.resolve())),
        sha256=sha256,
        overrides=tuple(_text(absolute_override(override, Path.cwd())) for override in overrides),
        variables=tuple((variable, os.environ.get(variable)) for variable in variables),
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
