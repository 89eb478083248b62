"""A check of the paths that a command writes: they must be neither inputs nor in an artifact."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from nmtkit.store.files import delete_leftover
from nmtkit.store.manifests import has_manifest
from nmtkit.utils.errors import UserError


def check_output(option: str, place: Path, inputs: Iterable[Path] = ()) -> None:
    """Refuse an output that would replace an input of the command, or change an artifact.

    Args:
        option: The option or argument that names the output, such as "--html".
        place: The file or folder that the command will write.
        inputs: Files that the command reads, and folders whose files it reads.

    Raises:
        UserError: `place` is an input, lies in a folder of inputs, or in an artifact.
    """
    # Links are resolved, since another name may lead to the same file.
    path = _real_path(place)
    for source in inputs:
        is_same = False
        with suppress(OSError):  # one is missing, or may not be read
            is_same = place.is_file() and place.samefile(source)
        if is_same:
            raise UserError(
                f"{option} {place} would replace {source}, which this command reads; write to "
                "another file"
            )
        if _real_path(source) in path.parents:
            raise UserError(
                f"{option} {place} would be in {source}, whose files this command reads; write to "
                "another folder"
            )
    # A file that is added to an artifact would be reported as damage.
    for folder in (path, *path.parents):
        if has_manifest(folder):
            delete_leftover(folder)
            problem = "already exists"
            if folder != path:
                problem = f"would change {folder}, which nmtkit published"
            raise UserError(f"{option} {place} {problem}; write to another folder")


def _real_path(path: Path) -> Path:
    """Resolve links like `Path.resolve`, but raise nothing for a loop of links."""
    return Path(os.path.realpath(path))
