"""The description of a model next to its weights: their names, shapes and number, and their files.

Nothing but `load_weights` imports torch.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from nmtkit.config.model import ModelConfig
from nmtkit.store.artifacts import Artifact, verify
from nmtkit.store.records import Record, read_record, write_json
from nmtkit.store.tensors import load_tensors, read_header
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import quote

if TYPE_CHECKING:
    from torch import nn

WEIGHTS = "model.safetensors"  # of checkpoints and of bundles
MODEL = "model.json"  # of trainings and of bundles: the `Description`

# Bounds on the header of WEIGHTS, whose JSON has names, types, shapes and offsets of tensors.
HEADER_BYTES = 4_096  # without tensors: metadata and padding
ENTRY_BYTES = 160  # of a tensor, without its name

Shape = tuple[int, ...]


def inference_settings(config: ModelConfig) -> dict[str, Any]:
    """Return the values that the output of a trained model depends on: all but both dropouts."""
    return config.model_dump(exclude={"dropout", "attention_dropout"})


class Description(Record):
    """A model's section of a recipe, and what follows from the vocabulary."""

    config: ModelConfig
    n_rows: Annotated[int, Field(ge=1, lt=2**63)]  # of its embedding matrix

    def inference_settings(self) -> dict[str, Any]:
        """Return all values that the output of the model depends on, except its weights."""
        return {**inference_settings(self.config), "rows of embeddings": self.n_rows}

    def verified_weights(self, folder: Artifact) -> Path:
        """Return the file of the weights in a bundle or a checkpoint, verified.

        The sizes that its header declares are compared before memory is allocated for them.
        """
        path = verify(folder, WEIGHTS).file(WEIGHTS)
        check_header(path, self.config, self.n_rows)
        return path

    def save(self, folder: Path) -> None:
        """Write model.json into a folder."""
        write_json(folder / MODEL, self.model_dump(mode="json", exclude_defaults=True))

    @classmethod
    def load(cls, folder: Path) -> "Description":
        """Read model.json of a folder."""
        return read_record(folder / MODEL, cls)


def shapes(config: ModelConfig, n_rows: int) -> Iterator[tuple[str, Shape]]:
    """Yield the names and shapes of the weights of a `Transformer`.

    Args:
        n_rows: Number of rows of its embeddings.
    """
    d_model = config.d_model
    yield "tgt_embedding.weight", (n_rows, d_model)
    if not config.tie_embeddings:
        yield "src_embedding.weight", (n_rows, d_model)
        yield "_output", (n_rows, d_model)
    if config.output_bias:
        yield "output_bias", (n_rows,)
    for side, n_layers in (("encoder", config.n_layers), ("decoder", config.decoder_layers)):
        if config.positions == "learned":
            embedding = "src_embedding" if side == "encoder" else "tgt_embedding"
            yield f"{embedding}.positions", (config.max_positions, d_model)
        if config.norm == "pre":
            yield f"{side}_norm.weight", (d_model,)
            yield f"{side}_norm.bias", (d_model,)
        for layer in range(n_layers):
            for name, shape in _layer(side, config):
                yield f"{side}.{layer}.{name}", shape


def _layer(side: str, config: ModelConfig) -> Iterator[tuple[str, Shape]]:
    d_model, d_ff, bias = config.d_model, config.d_ff, config.attention_bias
    keys, values = config.n_heads * config.d_k, config.n_heads * config.d_v
    linears = [("self_attention.qkv", d_model, 2 * keys + values, bias)]
    linears += [("self_attention.out", values, d_model, bias)]
    if side == "decoder":
        linears += [("cross_attention.q", d_model, keys, bias)]
        linears += [("cross_attention.kv", d_model, keys + values, bias)]
        linears += [("cross_attention.out", values, d_model, bias)]
    linears += [("feed_forward.w1", d_model, d_ff, True), ("feed_forward.w2", d_ff, d_model, True)]
    for name, d_in, d_out, has_bias in linears:
        yield f"{name}.weight", (d_out, d_in)
        if has_bias:
            yield f"{name}.bias", (d_out,)
    for sublayer in range(3 if side == "decoder" else 2):
        yield f"residuals.{sublayer}.norm.weight", (d_model,)
        yield f"residuals.{sublayer}.norm.bias", (d_model,)


@dataclass(frozen=True)
class Parameters:
    """Number of weights, grouped by the tokens that are multiplied with them."""

    encoder: int  # matrices applied to every source token
    memory: int  # the same in the decoder: keys and values of cross-attention
    decoder: int  # matrices applied to every target token, without the output matrix
    output: int  # the pre-softmax matrix
    total: int  # all weights, including norms, biases and embeddings


def count_parameters(config: ModelConfig, n_rows: int) -> Parameters:
    """Count the weights of a model with `n_rows` embedding rows (last column of Table 3)."""
    groups = dict.fromkeys(("encoder", "memory", "decoder"), 0)
    total = 0
    for name, shape in shapes(config, n_rows):
        total += prod(shape)
        # Norms and biases have one dimension, and take no matrix product.
        side = name.split(".")[0]
        if side in groups and len(shape) == 2:
            groups["memory" if "cross_attention.kv" in name else side] += prod(shape)
    return Parameters(**groups, output=n_rows * config.d_model, total=total)


def check_header(path: Path, config: ModelConfig, n_rows: int) -> None:
    """Check that the safetensors file at `path` holds exactly the weights of a model, in float32.

    Only the header is read, and only if it is not larger than that of such a model.

    Args:
        n_rows: Number of rows of its embeddings.

    Raises:
        UserError: The file has other tensors, or is damaged.
    """
    max_bytes = HEADER_BYTES
    for tensor, _ in shapes(config, n_rows):
        max_bytes += len(tensor) + ENTRY_BYTES
    header = read_header(path, max_bytes)
    # A recipe may describe a model with any number of weights; one more than in the file is enough
    # to find the first difference.
    listed = islice(shapes(config, n_rows), len(header) + 1)
    expected: dict[str, tuple[str | int, ...]] = {name: ("F32", *shape) for name, shape in listed}
    names = sorted(header.keys() | expected.keys())
    name = next((name for name in names if header.get(name) != expected.get(name)), None)
    if name is not None:
        raise UserError(
            f"{path} does not match the model description next to it: {quote(name)} is "
            f"{header.get(name, 'missing')}, expected {expected.get(name, 'none')}; restore both "
            "from the same backup"
        )


def load_weights(model: "nn.Module", path: Path) -> None:
    """Load the weights of a safetensors file, whose hash or header was checked, into `model`."""
    weights = load_tensors(path)
    for name, parameter in model.named_parameters():
        parameter.data.copy_(weights[name])
