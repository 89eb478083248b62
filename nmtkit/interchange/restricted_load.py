"""Files of `torch.save` from strangers, read by torch's restricted unpickler."""

import re
import warnings
from collections.abc import Set
from mmap import ACCESS_READ, mmap
from pathlib import Path
from pickletools import genops
from typing import Any

import torch

from nmtkit.utils.errors import UserError, is_out_of_memory
from nmtkit.utils.text import quote, shorten

N_LEGACY_PICKLES = 5  # magic number, version, sizes of C types, value, keys of the storages
ZIP_MAGIC = b"PK\x03\x04"
TENSOR_PARTS = re.compile(
    r"collections\.OrderedDict|_codecs\.encode|torch\.\w+Storage"
    r"|torch\._utils\._rebuild_(tensor|tensor_v2|parameter)"
)


class Placeholder:
    """Stands for a class of the program that wrote a file, and for its instances.

    Attributes:
        state: The state of the instance in the file.
    """

    def __init__(self, *_: Any) -> None:
        """Ignore the arguments of the class that this one stands for."""
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        """Keep the state instead of interpreting it."""
        self.state = state


def load(path: Path, names: Set[str], packages: tuple[str, ...]) -> Any:
    """Load a file with `torch.load(weights_only=True)`, on the CPU.

    Classes of the program that wrote the file are neither imported nor called: `Placeholder`
    replaces them, and an empty dictionary replaces a defaultdict.

    Args:
        path: The file, a zip archive or, before torch 1.6, a sequence of pickles.
        names: Classes and functions that it may name in addition to those of tensors, as
            module.name.
        packages: Prefixes of other names that it may have.

    Returns:
        The saved object.

    Raises:
        UserError: The file is damaged, or has another name.
    """
    if path.exists() and not path.is_file():
        raise UserError(f"{path} is not a regular file; copy it to one")
    try:
        # All names are checked before torch unpickles anything.
        named = _names_in_file(path)
        for name in sorted(named):
            is_known = name in names or name.startswith(packages)
            if not is_known and not TENSOR_PARTS.fullmatch(name):
                raise UserError(
                    f"{path} refers to {quote(name)}, which no checkpoint needs, so it is not "
                    "loaded; download it from its original source"
                )
        stand_ins: list[Any] = []
        for name in names | named:
            is_dictionary = name == "collections.defaultdict"
            stand_ins.append((_empty_dictionary if is_dictionary else Placeholder, name))
        with torch.serialization.safe_globals(stand_ins), warnings.catch_warnings(action="ignore"):
            return torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
    except UserError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        reason = " ".join(str(error).rpartition("WeightsUnpickler error:")[2].split())
        raise UserError(
            f"{path} is damaged, or is not a file of torch.save that torch {torch.__version__} "
            f"reads ({type(error).__name__}: {shorten(reason, 200)}); download it from its "
            "original source"
        ) from error


def _empty_dictionary(*_: Any) -> dict[Any, Any]:
    """Return a dictionary, whatever the arguments of the defaultdict are."""
    return {}


def _names_in_file(path: Path) -> set[str]:
    """Return the classes and functions that a file names and torch would not load: module.name."""
    with path.open("rb") as file:
        is_zip = file.read(len(ZIP_MAGIC)) == ZIP_MAGIC
    if is_zip:
        return set(torch.serialization.get_unsafe_globals_in_checkpoint(path))
    names: set[str] = set()
    # Mapped: a length beyond the end of the file takes no memory.
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as mapped:
        for _ in range(N_LEGACY_PICKLES):
            # Each pickle begins where the one before it ends.
            for opcode, arg, _ in genops(mapped):  # type: ignore[arg-type]  # it has read, readline
                if opcode.name == "GLOBAL":
                    names.add(str(arg).replace(" ", ".", 1))
    return names
