"""Files of `torch.save` from strangers: torch limits what they run, the kernel what they take."""

import re
import resource
import warnings
import zipfile
from collections.abc import Iterator, Set
from contextlib import contextmanager
from mmap import ACCESS_READ, mmap
from pathlib import Path
from pickletools import genops
from typing import Any

import torch

from nmtkit.errors import UserError, is_out_of_memory, shortened, shown

SPARE_BYTES = 2**31  # address space for threads' stacks and for what a pickle builds
TIMES_FILE = 8  # tied embeddings in float16 are three matrices in float32
MAX_TUPLES = 2**16  # of a pickle; twice as many, nested, overflow the stack where they are a key
N_LEGACY_PICKLES = 5  # magic number, version, sizes of C types, value, keys of the storages
ZIP_MAGIC = b"PK\x03\x04"
OF_TORCH = re.compile(  # what tensors are built by
    r"collections\.OrderedDict|_codecs\.encode|torch\.\w+Storage"
    r"|torch\._utils\._rebuild_(tensor|tensor_v2|parameter)"
)


class Inert:
    """Stands for a class of the program that wrote a file, and for its instances."""

    def __init__(self, *_: Any) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


@contextmanager
def limited_memory(path: Path) -> Iterator[None]:
    """Limit the memory of this process, on Linux: 8 times the size of the file and 2 GiB more."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    try:
        n_more = TIMES_FILE * path.stat().st_size + SPARE_BYTES
        if (statm := Path("/proc/self/statm")).exists():
            n_pages = int(statm.read_text(encoding="utf-8").split()[0])
            limits = (n_pages * resource.getpagesize() + n_more, before[0])
            soft = min(limit for limit in limits if limit != resource.RLIM_INFINITY)
            resource.setrlimit(resource.RLIMIT_AS, (soft, before[1]))
        yield
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise UserError(
            f"{path} takes more than {n_more:,} bytes of memory to read, so it is damaged or "
            "hostile; get it again from where it was published"
        ) from None
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def load(path: Path, names: Set[str], packages: tuple[str, ...]) -> Any:
    """Load a file by torch's restricted unpickler, on the CPU.

    Its pickle may name, besides tensors, `names` (as module.name) and what begins with one of
    `packages`. Nothing of it is imported or called: an `Inert` takes its place, a dictionary that
    of a defaultdict. A zip archive, which torch writes since 1.6, is mapped; else all is read.
    """
    if path.exists() and not path.is_file():
        raise UserError(f"{path} is not a file that can be read twice; copy it to one")
    try:
        with path.open("rb") as file:
            is_zip = file.read(len(ZIP_MAGIC)) == ZIP_MAGIC
        named = set(_names_in_file(path, is_zip=is_zip))
        for name in sorted(named):
            is_known = name in names or name.startswith(packages)
            if not is_known and not OF_TORCH.fullmatch(name):
                raise UserError(
                    f"{path} names {shown(name)}, which a checkpoint does not need, so nothing of "
                    "it is read; get it again from where it was published"
                )
        stand_ins: list[Any] = [
            ((lambda *_: {}) if name == "collections.defaultdict" else Inert, name)
            for name in names | named
        ]
        with torch.serialization.safe_globals(stand_ins), warnings.catch_warnings(action="ignore"):
            return torch.load(path, map_location="cpu", mmap=is_zip, weights_only=True)
    except (UserError, OSError):
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        said = " ".join(str(error).rpartition("WeightsUnpickler error:")[2].split())
        raise UserError(
            f"{path} is damaged, or not a file of torch.save that torch {torch.__version__} reads "
            f"({type(error).__name__}: {shortened(said, 200)}); get it again from where it was "
            "published"
        ) from error


def _names_in_file(path: Path, *, is_zip: bool) -> Iterator[str]:
    if not is_zip:
        # Mapped: to read more bytes than there are takes no memory for those that are missing.
        with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as mapped:
            for _ in range(N_LEGACY_PICKLES):
                yield from _names(mapped)
        return
    with zipfile.ZipFile(path) as archive:
        if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
            raise ValueError("a part is compressed, as torch never does")
        if damaged := archive.testzip():
            raise ValueError(f"{damaged} has another CRC-32")
        pickles = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise ValueError(f"a zip archive with {len(pickles)} data.pkl")
        with archive.open(pickles[0]) as stream:
            yield from _names(stream)


def _names(pickle: Any) -> Iterator[str]:
    """Yield what the pickle at the position of a file names, and leave the file behind it."""
    n_tuples = 0
    for opcode, arg, _ in genops(pickle):
        n_tuples += opcode.name.startswith("TUPLE")
        if n_tuples > MAX_TUPLES:
            raise ValueError(f"more than {MAX_TUPLES:,} tuples")
        if opcode.name == "GLOBAL":
            yield str(arg).replace(" ", ".", 1)
