"""Weights on disk, as safetensors files."""

from collections.abc import Iterator, Mapping
from itertools import islice
from math import prod
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from nmtkit.errors import UserError, shown
from nmtkit.model.transformer import Transformer
from nmtkit.recipe import ModelConfig

WEIGHTS = "model.safetensors"  # of checkpoints and of bundles
MAX_HEADER_BYTES = 2**22  # of a safetensors file; the base model needs 20 kB

Kind = tuple[str, tuple[int, ...]]  # dtype, as safetensors names it, and shape


def save_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Write a safetensors file with the default permissions of a new file.

    Raises:
        UserError: The file cannot be written, for example because the disk is full.
    """
    path.touch()
    mode = path.stat().st_mode
    try:
        save_file(tensors, path)
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
        UserError: The file is not a safetensors file.
    """
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


def check_weights(path: Path, config: ModelConfig, n_rows: int, n_weights: int) -> None:
    """Check that the safetensors file at `path` holds exactly the weights of a model.

    Only the header is read, and its size bounds the memory used, whatever it and `config` say.

    Args:
        path: The safetensors file.
        config: The configuration of the model.
        n_rows: Number of rows of its embedding matrix.
        n_weights: Total number of its weights.

    Raises:
        UserError: The file is not a safetensors file, or holds the weights of a different model.
    """
    found = _found(path)
    n_found = sum(prod(shape) for _, shape in found.values())
    if n_found != n_weights:
        raise UserError(
            f"{path} holds {n_found:,} weights, but the model described next to it has "
            f"{'more' if n_weights > n_found else 'fewer'}; delete its folder and create it again"
        )
    expected = dict(islice(_expected(config, n_rows), len(found) + 1))
    if found != expected:
        name = min(
            name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name)
        )
        raise UserError(
            f"{path} holds another model than the one described next to it: {shown(name)} is "
            f"{found.get(name)}, expected {expected.get(name)}; delete its folder and create it "
            "again"
        )


def _found(path: Path) -> dict[str, Kind]:
    with path.open("rb") as file:
        n_bytes = int.from_bytes(file.read(8), "little")
    if n_bytes > MAX_HEADER_BYTES:
        raise UserError(
            f"{path} has a header of {n_bytes:,} bytes; at most {MAX_HEADER_BYTES:,} are "
            "supported, so delete its folder"
        )
    try:
        with safe_open(path, "pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            return {name: (s.get_dtype(), tuple(s.get_shape())) for name, s in slices.items()}
    except (SafetensorError, OSError) as error:
        raise UserError(
            f"{path} can't be read as safetensors: {error}; delete its folder"
        ) from None


def _expected(config: ModelConfig, n_rows: int) -> Iterator[tuple[str, Kind]]:
    """Yield the name and kind of each weight; all layers have the shapes of the first one."""
    with torch.device("meta"):  # allocates no memory
        model = Transformer(config.model_copy(update={"n_layers": 1}), n_rows)
    for name, parameter in model.named_parameters():
        kind = "F32", tuple(parameter.shape)
        if name.startswith(("encoder.0.", "decoder.0.")):
            for layer in range(config.n_layers):
                yield name.replace(".0.", f".{layer}.", 1), kind
        else:
            yield name, kind
