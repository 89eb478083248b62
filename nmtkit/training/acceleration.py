"""The acceleration of a training: its precision and, on a GPU, its level of compilation."""

import os
import shutil
import sysconfig
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path

import torch

from nmtkit.utils.processes import NO_CUDA_GRAPHS


class Level(IntEnum):
    """The way in which the operations of a step reach the GPU; a level needs those below it."""

    EAGER = 0  # one kernel per operation
    COMPILED = 1  # kernels that torch.compile writes, launched one by one
    CAPTURED = 2  # a CUDA graph of these: all kernels of a micro-batch are launched as one


# The highest level, by the value of the option --accelerate.
MAX_LEVEL = {"auto": Level.CAPTURED, "compile": Level.COMPILED, "none": Level.EAGER}


@dataclass(frozen=True)
class Acceleration:
    """The precision and the level. They change a gradient only by rounding, and dropout masks."""

    dtype: torch.dtype = torch.float32  # of activations; weights and gradients are float32
    level: Level = Level.EAGER

    @classmethod
    def choose(
        cls, device: torch.device, dtype: torch.dtype, max_level: Level = Level.CAPTURED
    ) -> "Acceleration":
        """Choose the highest level that a device allows.

        Args:
            device: The device that trains.
            dtype: Data type of activations.
            max_level: The highest level that the user allows.
        """
        if device.type != "cuda" or not has_compiler():
            return cls(dtype, Level.EAGER)
        # A process that could not capture a graph has restarted itself as this one.
        if NO_CUDA_GRAPHS in os.environ:
            max_level = min(max_level, Level.COMPILED)
        return cls(dtype, max_level)

    def lower(self) -> "Acceleration | None":
        """Return the next lower level, or None below the lowest."""
        if self.level == Level.EAGER:
            return None
        return replace(self, level=Level(self.level - 1))

    @property
    def precision(self) -> str:
        """The name of `dtype`, as in `--dtype`."""
        return str(self.dtype).removeprefix("torch.")

    def __str__(self) -> str:
        """Return the precision and the level, for messages."""
        return f"{self.precision}, {self.level.name.lower()}"


def has_compiler() -> bool:
    """Return whether Triton can compile here: it needs a C compiler and the headers of Python."""
    names = [os.environ["CC"]] if "CC" in os.environ else ["gcc", "clang"]
    header = Path(sysconfig.get_path("include", "posix_prefix")) / "Python.h"
    return any(map(shutil.which, names)) and header.exists()
