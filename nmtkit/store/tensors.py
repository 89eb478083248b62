"""Tensors on disk, as safetensors files."""

from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError, safe_open

from nmtkit.utils.errors import UserError, is_out_of_memory

if TYPE_CHECKING:
    from torch import Tensor

LENGTH_BYTES = 8  # at the beginning of a file: the size of its header


def read_header(path: Path, max_bytes: int) -> dict[str, tuple[str | int, ...]]:
    """Return the types and shapes of the tensors of a file, by name. Needs no torch.

    Args:
        path: A safetensors file.
        max_bytes: Maximum size of its header. Parsing takes 20 times the memory.

    Returns:
        For each tensor, its type followed by its shape.

    Raises:
        UserError: The file is not safetensors, or its header is larger.
    """
    try:
        with path.open("rb") as file:
            n_bytes = int.from_bytes(file.read(LENGTH_BYTES), "little")
        if n_bytes > max_bytes:
            raise UserError(
                f"{path} has a header of {n_bytes:,} bytes, but the model described next to it "
                f"needs at most {max_bytes:,}; delete its folder and rebuild it"
            )
        tensors = {}
        with safe_open(path, "numpy") as file:
            for name in file.keys():  # noqa: SIM118 - it is not a dictionary
                tensor = file.get_slice(name)
                tensors[name] = (tensor.get_dtype(), *tensor.get_shape())
        return tensors
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

    # safetensors creates files that only the user can read.
    path.touch()
    mode = path.stat().st_mode
    try:
        save_file(tensors, path, metadata)
    except SafetensorError as error:  # it has no errno
        raise UserError(
            f"{path} cannot be written: {error}; fix this (is the disk full?) and rerun the same "
            "command: no finished work is lost"
        ) from None
    path.chmod(mode)


def _unreadable(path: Path, error: Exception) -> Exception:
    """Return the error of a file that cannot be read. It may be whole if memory ran out."""
    if is_out_of_memory(error):
        return MemoryError(str(error))
    return UserError(
        f"{path} cannot be read as safetensors ({error}); restore it from a backup, or update the "
        "package safetensors"
    )
