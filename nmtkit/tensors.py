"""Tensors on disk, as safetensors files."""

from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError, safe_open

from nmtkit.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor


def read_header(path: Path) -> dict[str, tuple[str | int, ...]]:
    """Return the type and then the shape of each tensor of a file, by name. Needs no torch."""
    try:
        with safe_open(path, "numpy") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            return {name: (s.get_dtype(), *s.get_shape()) for name, s in slices.items()}
    except (SafetensorError, OSError) as error:
        raise _unreadable(path, error) from None


def load_tensors(path: Path) -> "dict[str, Tensor]":
    """Load all tensors of a file."""
    from safetensors.torch import load, load_file

    try:
        if is_utf8(path):
            return load_file(path)
        return load(path.read_bytes())  # the library opens only names that are UTF-8
    except (SafetensorError, OSError) as error:
        raise _unreadable(path, error) from None


def is_utf8(path: Path) -> bool:
    """Return whether the name of a file is valid UTF-8."""
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def save_tensors(
    tensors: "dict[str, Tensor]", path: Path, metadata: dict[str, str] | None = None
) -> None:
    """Write a safetensors file with the default permissions of a new file."""
    from safetensors.torch import save_file

    path.touch()
    mode = path.stat().st_mode
    try:
        save_file(tensors, path, metadata)
    except SafetensorError as error:  # it has no errno
        raise UserError(
            f"{path} can't be written: {error}; fix this (is the disk full?) and run the same "
            "command again, no finished work is lost"
        ) from None
    path.chmod(mode)


def _unreadable(path: Path, error: Exception) -> UserError:
    return UserError(
        f"{path} cannot be read as safetensors ({error}); restore it from a copy, or update the "
        "package safetensors"
    )
