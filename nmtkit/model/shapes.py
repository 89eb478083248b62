"""The names and shapes of a model's weights, and whether a file holds them. No torch here."""

from collections.abc import Iterator
from itertools import islice
from math import prod
from pathlib import Path

from safetensors import SafetensorError, safe_open

from nmtkit.errors import UserError, shown
from nmtkit.model.cost import count_parameters
from nmtkit.recipe import ModelConfig

WEIGHTS = "model.safetensors"  # of checkpoints and of bundles
MAX_HEADER_BYTES = 2**22  # of a safetensors file; the base model needs 20 kB

Kind = tuple[str, tuple[int, ...]]  # dtype, as safetensors names it, and shape


def check_weights(path: Path, config: ModelConfig, n_rows: int) -> None:
    """Check that the safetensors file at `path` holds exactly the weights of a model.

    Only the header is read, and its size bounds the memory used, whatever it and `config` say.

    Args:
        path: The safetensors file.
        config: The configuration of the model.
        n_rows: Number of rows of its embedding matrix.

    Raises:
        UserError: The file is not a safetensors file, or holds the weights of a different model.
    """
    n_weights = count_parameters(config, n_rows).total
    found = _found(path)
    n_found = sum(prod(shape) for _, shape in found.values())
    if n_found != n_weights:
        raise UserError(
            f"{path} holds {n_found:,} weights, but the model described next to it has "
            f"{'more' if n_weights > n_found else 'fewer'}; delete its folder and create it again"
        )
    expected = {
        name: ("F32", shape) for name, shape in islice(shapes(config, n_rows), len(found) + 1)
    }
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
        with safe_open(path, "numpy") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            return {name: (s.get_dtype(), tuple(s.get_shape())) for name, s in slices.items()}
    except (SafetensorError, OSError) as error:
        raise UserError(
            f"{path} can't be read as safetensors: {error}; delete its folder"
        ) from None


def shapes(config: ModelConfig, n_rows: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the name and shape of each weight of a `Transformer`.

    Args:
        config: The configuration of the model.
        n_rows: Number of rows of its embedding matrix.
    """
    d_model = config.d_model
    yield "tgt_embedding.weight", (n_rows, d_model)
    if not config.tie_embeddings:
        yield "src_embedding.weight", (n_rows, d_model)
        yield "_output", (n_rows, d_model)
    if config.positions == "learned":
        yield "tgt_embedding.positions", (config.max_positions, d_model)
        yield "src_embedding.positions", (config.max_positions, d_model)
    if config.norm == "pre":
        yield from _norm("encoder_norm", d_model)
        yield from _norm("decoder_norm", d_model)
    for layer in range(config.n_layers):
        yield from _layer(f"encoder.{layer}", config, n_norms=2)
        yield from _layer(f"decoder.{layer}", config, n_norms=3)
        yield from _cross_attention(f"decoder.{layer}.cross_attention", config)


def _layer(name: str, config: ModelConfig, n_norms: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield what encoder and decoder layers have in common."""
    d_model, bias = config.d_model, config.attention_bias
    keys, values = config.n_heads * config.d_k, config.n_heads * config.d_v
    yield from _linear(f"{name}.self_attention.qkv", d_model, 2 * keys + values, bias=bias)
    yield from _linear(f"{name}.self_attention.out", values, d_model, bias=bias)
    yield from _linear(f"{name}.feed_forward.w1", d_model, config.d_ff)
    yield from _linear(f"{name}.feed_forward.w2", config.d_ff, d_model)
    for number in range(n_norms):
        yield from _norm(f"{name}.residuals.{number}.norm", d_model)


def _cross_attention(name: str, config: ModelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    d_model, bias = config.d_model, config.attention_bias
    keys, values = config.n_heads * config.d_k, config.n_heads * config.d_v
    yield from _linear(f"{name}.q", d_model, keys, bias=bias)
    yield from _linear(f"{name}.kv", d_model, keys + values, bias=bias)
    yield from _linear(f"{name}.out", values, d_model, bias=bias)


def _linear(
    name: str, d_in: int, d_out: int, *, bias: bool = True
) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.weight", (d_out, d_in)
    if bias:
        yield f"{name}.bias", (d_out,)


def _norm(name: str, d_model: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.weight", (d_model,)
    yield f"{name}.bias", (d_model,)
