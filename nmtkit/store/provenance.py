"""Provenance: the recipe, the overrides and the checkout that an artifact was built from."""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from nmtkit.store.code_version import checkout
from nmtkit.store.records import Record, file_sha256
from nmtkit.utils.errors import UserError


class Provenance(Record):
    """The origin of an artifact, as its measurements record it."""

    name: str  # of the recipe
    recipe: str  # the name of one that comes with nmtkit, or the absolute path of its file
    sha256: str | None  # of that file
    overrides: tuple[str, ...] = ()  # values of --set; paths in them are absolute
    # The environment variables that the recipe names, and that of the seed; None: not set.
    variables: tuple[tuple[str, str | None], ...] = ()
    commit: str | None  # of git; None: not a checkout
    clean: bool | None  # the sources are as in the commit

    @property
    def run(self) -> str:
        """The arguments of `nmtkit run` that give the same artifacts."""
        return run_arguments(self.recipe, self.overrides)


def provenance(
    name: str,
    command: str,
    path: Path,
    overrides: Sequence[str] = (),
    variables: Sequence[str] = (),
) -> Provenance:
    """Return the provenance of an artifact that this process builds.

    Args:
        name: The name of the recipe, in its file.
        command: The name or path of the recipe, as the user typed it.
        path: The file of the recipe. It may have been moved since it was read.
        overrides: The values of `--set`, with absolute paths.
        variables: The names of the environment variables that the artifact depends on.
    """
    # Without the file, its name and the overrides are still worth recording.
    try:
        sha256 = file_sha256(path)
    except OSError:
        sha256 = None
    values = []
    for variable in variables:
        values.append((variable, os.environ.get(variable)))
    commit, clean = checkout()
    return Provenance(
        name=name,
        recipe=command if command == path.stem else _unicode(str(path.resolve())),
        sha256=sha256,
        overrides=tuple(_unicode(override) for override in overrides),
        variables=tuple(values),
        commit=commit,
        clean=clean,
    )


def _unicode(argument: str) -> str:
    """Decode a path or an argument as UTF-8, whatever the locale; other bytes become escapes."""
    return os.fsencode(argument).decode("utf-8", errors="backslashreplace")


def run_arguments(recipe: str, overrides: Sequence[str]) -> str:
    """Return the arguments of `nmtkit run` for a recipe with overrides.

    Args:
        recipe: A name or an absolute path. A file below the current folder gets its short path.
        overrides: The values of `--set`.
    """
    path = Path(recipe)
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        recipe = f"./{path.relative_to(Path.cwd())}"
    options = [f"--set={override}" for override in overrides]
    return shlex.join([recipe, *options])


def split_overrides(run: str) -> tuple[str, list[str]]:
    """Split 'RECIPE --set section.key=value' into the recipe, or study, and its overrides.

    Raises:
        UserError: The text has options other than `--set`.
    """
    if "--set" not in run:
        return run, []
    # Users write an option and its value with a space or with "=".
    try:
        name, *options = shlex.split(run.replace("--set ", "--set="))
    except ValueError:  # an open quotation mark
        name, options = run, [""]
    overrides = []
    for option in options:
        if not option.startswith("--set="):
            raise UserError(
                f"{run!r} is not a run; pass a recipe, or 'RECIPE --set section.key=value'"
            )
        overrides.append(option.removeprefix("--set="))
    return name, overrides
