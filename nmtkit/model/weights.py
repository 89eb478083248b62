"""Weights on disk, as safetensors files."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from nmtkit.errors import UserError


def save_tensors(
    tensors: dict[str, Tensor], path: Path, metadata: dict[str, str] | None = None
) -> None:
    """Write a safetensors file with the default permissions of a new file.

    Raises:
        UserError: The file cannot be written, for example because the disk is full.
    """
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


def load_weights(model: nn.Module, path: Path) -> None:
    """Load the weights of a safetensors file into `model`.

    Raises:
        UserError: The file is not a safetensors file, or holds the weights of a different model.
    """
    parameters = dict(model.named_parameters())
    weights = load_tensors(path)
    check_shapes(path, weights, parameters)
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(weights[name])


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file.

    Raises:
        UserError: The file is not a safetensors file, or its path is not UTF-8.
    """
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError:
        raise UserError(
            f"safetensors can't read {path}, a path that is not UTF-8; rename the folder"
        ) from None
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise UserError(
            f"{path} can't be read as safetensors: {error}; delete its folder"
        ) from None


def check_shapes(path: Path, tensors: Mapping[str, Tensor], model: Mapping[str, Tensor]) -> None:
    """Compare the names and shapes of `tensors`, read from `path`, with those of a model.

    Raises:
        UserError: They differ.
    """
    found, expected = (
        {name: tuple(tensor.shape) for name, tensor in side.items()} for side in (tensors, model)
    )
    if found != expected:
        names = found.keys() | expected.keys()
        name = min(name for name in names if found.get(name) != expected.get(name))
        raise UserError(
            f"{path} holds another model than the one described next to it: {name} has shape "
            f"{found.get(name)}, expected {expected.get(name)}; delete its folder and create it "
            "again"
        )
