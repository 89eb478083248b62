"""Weights on disk, as safetensors: compared with what a model needs before memory is taken."""

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

MAX_HEADER_BYTES = 2**22  # of a safetensors file; the base model's takes 20 kB

Kind = tuple[str, tuple[int, ...]]  # safetensors's name of the type, and the shape


def save_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Write a safetensors file, with the permissions that other new files get.

    Raises:
        UserError: the disk is full, or the like.
    """
    path.touch()
    mode = path.stat().st_mode
    try:
        save_file(tensors, path)
    except SafetensorError as error:  # which says in words alone what the system said
        raise UserError(
            f"{path} can't be written: {error}; fix that (is the disk full?) and run the same "
            "command again, nothing finished is lost"
        ) from None
    path.chmod(mode)


def load_weights(model: nn.Module, path: Path) -> None:
    """Put the weights of a safetensors file into `model`.

    Raises:
        UserError: the file is no safetensors file, or holds another model.
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
        UserError: it is none.
    """
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise UserError(
            f"{path} can't be read as safetensors: {error}; delete its folder"
        ) from None


def check_shapes(path: Path, tensors: Mapping[str, Tensor], model: Mapping[str, Tensor]) -> None:
    """Compare the `tensors` that are in the file `path` with those of a model.

    Raises:
        UserError: names or shapes differ.
    """
    found, expected = (
        {name: tuple(tensor.shape) for name, tensor in side.items()} for side in (tensors, model)
    )
    if found != expected:
        names = found.keys() | expected.keys()
        name = min(name for name in names if found.get(name) != expected.get(name))
        raise UserError(
            f"{path} holds another model than is described beside it: {name} has shape "
            f"{found.get(name)}, expected {expected.get(name)}; delete its folder and make it again"
        )


def check_weights(path: Path, config: ModelConfig, n_rows: int, n_weights: int) -> None:
    """Make sure that the safetensors file at `path` holds exactly a model's weights.

    Nothing but its header is read, and whatever that and `config` say, no more is made of them than
    fits the header's own size.

    Args:
        path: a file of weights
        config: the model
        n_rows: rows of its embedding matrix
        n_weights: how many numbers its weights are

    Raises:
        UserError: it holds others, or is no safetensors file.
    """
    found = _found(path)
    n_found = sum(prod(shape) for _, shape in found.values())
    if n_found != n_weights:
        raise UserError(
            f"{path} holds {n_found:,} weights, and the model that is described beside it has "
            f"{'more' if n_weights > n_found else 'fewer'}; delete its folder and make it again"
        )
    expected = dict(islice(_expected(config, n_rows), len(found) + 1))
    if found != expected:
        name = min(
            name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name)
        )
        raise UserError(
            f"{path} holds another model than is described beside it: {shown(name)} is "
            f"{found.get(name)}, expected {expected.get(name)}; delete its folder and make it again"
        )


def _found(path: Path) -> dict[str, Kind]:
    with path.open("rb") as file:
        n_bytes = int.from_bytes(file.read(8), "little")
    if n_bytes > MAX_HEADER_BYTES:
        raise UserError(
            f"{path} has a header of {n_bytes:,} bytes, and at most {MAX_HEADER_BYTES:,} are read; "
            "delete its folder"
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
    """The weights of a model, layer by layer: each has the shapes of the first."""
    with torch.device("meta"):  # which has no memory
        model = Transformer(config.model_copy(update={"n_layers": 1}), n_rows)
    for name, parameter in model.named_parameters():
        kind = "F32", tuple(parameter.shape)
        if name.startswith(("encoder.0.", "decoder.0.")):
            for layer in range(config.n_layers):
                yield name.replace(".0.", f".{layer}.", 1), kind
        else:
            yield name, kind
