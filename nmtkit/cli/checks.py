"""Checks and parsers of the values of options, before a command begins its work."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import typer

from nmtkit.utils.errors import UserError


def check_folder(option: typer.CallbackParam, path: Path | None) -> Path | None:
    """Refuse a path that is not a folder. It need not exist yet."""
    if path is not None and path.exists() and not path.is_dir():
        raise UserError(f"{option.opts[0]} {path} is not a folder")
    return path


def check_mirror(option: typer.CallbackParam, path: Path | None) -> Path | None:
    """Refuse a path that is not an existing folder."""
    if path is not None and not path.is_dir():
        raise UserError(f"{option.opts[0]} {path} is not a folder")
    return path


def check_page(option: typer.CallbackParam, path: Path | None) -> Path | None:
    """Refuse a path at which no file can be written."""
    check_file(option.opts[0], path)
    return path


def check_file(option: str, path: Path | None) -> None:
    """Refuse a path at which no file can be written.

    Args:
        option: The name of the option, for the message.
        path: Its value; None if the user did not pass it.
    """
    if path is None:
        return
    if path.is_dir():
        raise UserError(f"{option} {path} is a folder; pass the path of a file")
    if not path.parent.is_dir():
        raise UserError(
            f"{option} {path}: {path.parent} is not a folder; create it, or pass another path"
        )


def file_or_stream(value: str) -> Path | None:
    """Return the path of a file, or None for "-" (standard input or output)."""
    return None if value == "-" else Path(value)


def check_output(option: str, path: Path | None, inputs: Sequence[Path] = ()) -> None:
    """Refuse to write over an input of the command or into an artifact.

    Args:
        option: The name of the option, for the message.
        path: Its value; None if the user did not pass it.
        inputs: Files and folders that the command reads.
    """
    if path is not None:
        # Imports pydantic; `--help` does not need it.
        from nmtkit.store import output_check

        output_check.check_output(option, path, inputs)


def check_unused(options: Mapping[str, object], form: str, other_form: str) -> None:
    """Refuse options that belong to the other form of a command.

    Args:
        options: The values of the options of the other form, by name. Those that the user did not
            pass are None, False or empty lists.
        form: The form that the user chose, such as "nmtkit translate RECIPE".

    Raises:
        UserError: One of the options was passed.
    """
    for name, value in options.items():
        if value is not None and value is not False and value != []:
            raise UserError(
                f"{name} cannot be used with `{form}`, only with `{other_form}`; omit {name}"
            )
