"""Weights of Marian in the format of Hugging Face's transformers (`MarianMTModel`).

This is the reverse of the export in `huggingface`: the dimensions of vectors are reordered, and
the rows of the embeddings get our ids. The decoder of Marian starts from its padding token. Its row
becomes that of our `<s>`.

Deviation: Marian has no row for our `<pad>`. It gets a row of zeros and a bias of -100: its
probability is 0 in float32.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from nmtkit.interchange.huggingface import EMBEDDINGS, alternating, reorder, sines_first_order
from nmtkit.interchange.marian_config import MarianModel
from nmtkit.interchange.names import part_names
from nmtkit.interchange.restricted_load import load
from nmtkit.model.transformer import sinusoids
from nmtkit.model.weights import shapes
from nmtkit.store.tensors import load_tensors, read_header
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import quote

NEVER_BIAS = -100.0  # the bias of our <pad>: exp(-100) is 0 next to 1 in float32
MAX_HEADER_BYTES = 2**22  # of a safetensors file; 1,000 tensors take 100 kB

WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")
WEIGHT_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")  # of shards
OUTPUT_BIAS = "output_bias"  # our name
BIAS = "final_logits_bias"  # Marian's name
# Our names of the embeddings, with Marian's names. If some are tied, a file may have only one of
# them.
SHARED = "model.shared.weight"
EMBEDDING_NAMES = {
    "src_embedding.weight": "model.encoder.embed_tokens.weight",
    "tgt_embedding.weight": "model.decoder.embed_tokens.weight",
    "_output": "lm_head.weight",
}
# Largest difference of a stored table of positions from ours. It may be rounded to 16 bits.
POSITION_TOLERANCE = 1e-2


def weights_file(folder: Path) -> Path:
    """Return the file of the weights in a folder.

    Raises:
        UserError: It has none.
    """
    for name in WEIGHT_FILES:
        if (folder / name).is_file():
            return folder / name
    for name in WEIGHT_INDEXES:
        if (folder / name).is_file():
            raise UserError(
                f"{folder} has its weights in several files ({name}); load the model in "
                "transformers, and write one file with model.save_pretrained(DIR, "
                'max_shard_size="50GB")'
            )
    raise UserError(f"{folder} has no {' or '.join(WEIGHT_FILES)}; download the whole folder")


def read_weights(
    path: Path, model: MarianModel, *, excludes_pad: bool = False
) -> dict[str, Tensor]:
    """Read the weights of a model, by our names.

    Args:
        path: A safetensors file, or a file of `torch.save`. It may come from a stranger.
        excludes_pad: Whether the padding token has no part in the softmax.

    Raises:
        UserError: The file cannot be read, or has other weights.
    """
    found = _read_tensors(path)
    _check_positions(path, found, model)
    order = alternating(model.description.config.d_model)
    rows = torch.tensor(model.rows)
    weights = {}
    used = set()
    for name, shape in shapes(model.description.config, model.description.n_rows):
        their_names = _marian_names(name, found, model)
        used.update(their_names)
        is_bias = name == OUTPUT_BIAS
        if is_bias and BIAS not in found:
            theirs = torch.zeros(len(rows))
        else:
            theirs = _join_parts(path, found, their_names)
        if is_bias:
            # Label smoothing counts all logits: -1e4 or -inf would dominate the loss.
            theirs = theirs.flatten().clamp_min(NEVER_BIAS)
            if excludes_pad and len(theirs) > model.pad_id:
                theirs[model.pad_id] = NEVER_BIAS

        is_by_row = is_bias or name in EMBEDDINGS
        expected = (shape[0] - 1, *shape[1:]) if is_by_row else shape
        if theirs.shape != expected:
            raise UserError(
                f"{path}: {' and '.join(their_names)} has shape {tuple(theirs.shape)}, but "
                f"config.json needs {tuple(expected)}"
            )
        if is_by_row:
            # Our <pad> comes first, then Marian's rows in the order of our ids.
            pad = theirs.new_full((1, *shape[1:]), NEVER_BIAS if is_bias else 0.0)
            theirs = torch.cat([pad, theirs[rows]])
        weights[name] = reorder(name, theirs.float(), order).contiguous()
    _check_unused(path, found, used)
    return weights


def _read_tensors(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a file, by Marian's names.

    Raises:
        UserError: The file cannot be read, or has something else than weights.
    """
    if path.suffix == ".safetensors":
        try:
            # The header is bounded before the library parses it.
            read_header(path, MAX_HEADER_BYTES)
            found = load_tensors(path)
        except UserError:
            raise UserError(
                f"{path} is damaged, or is not a file of safetensors; download it again"
            ) from None
    else:
        found = load(path, set(), ())
    if not isinstance(found, dict):
        raise UserError(f"{path} is not a dictionary of weights")
    for name, weight in found.items():
        if not isinstance(weight, Tensor) or not weight.is_floating_point():
            raise UserError(f"{path}: {quote(name)} is not a tensor of floating-point numbers")
        if name != BIAS and not weight.isfinite().all():
            raise UserError(
                f"{path}: {quote(name)} contains NaN or infinity; download the file again, or ask "
                "the authors of the model"
            )
        if weight.isnan().any() or weight.isposinf().any():
            raise UserError(f"{path}: {quote(name)} contains NaN; download the file again")
    return found


def _join_parts(path: Path, found: Mapping[str, Tensor], names: Sequence[str]) -> Tensor:
    """Join the parts of one of our weights along their first dimension.

    Args:
        path: The file, for messages.
        found: The weights in the file, by Marian's names.
        names: Marian's names of the parts.
    """
    parts = []
    for name in names:
        if name not in found:
            raise UserError(f"{path} has no {name}; it is not a complete MarianMTModel")
        parts.append(found[name])
    # Of one part, no copy is needed.
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _marian_names(name: str, found: Mapping[str, Tensor], model: MarianModel) -> list[str]:
    """Return Marian's names of the parts of one of our weights.

    Args:
        found: The weights in the file, by Marian's names. Of tied ones, it may have only one.
    """
    if name == OUTPUT_BIAS:
        return [BIAS]
    if name not in EMBEDDING_NAMES:
        return [f"model.{part}" for part in part_names(name)]
    # Tied weights may be stored once, under the name of any of them.
    candidates = [EMBEDDING_NAMES[name]]
    if model.description.config.tie_embeddings:
        candidates = [SHARED, *EMBEDDING_NAMES.values()]
    elif model.shares_sides:
        candidates.append(SHARED)
    elif model.ties_output and name != "src_embedding.weight":
        candidates += [EMBEDDING_NAMES["tgt_embedding.weight"], EMBEDDING_NAMES["_output"]]
    for candidate in candidates:
        if candidate in found:
            return [candidate]
    return candidates[:1]


def _check_positions(path: Path, found: dict[str, Tensor], model: MarianModel) -> None:
    """Remove stored tables of positions, and check that they are the sinusoids of the paper.

    transformers computes them, but earlier versions also stored them.
    """
    d_model = model.description.config.d_model
    for side in ("encoder", "decoder"):
        table = found.pop(f"model.{side}.embed_positions.weight", None)
        if table is None:
            continue
        is_table = table.dim() == 2 and table.shape[1] == d_model and len(table) <= 2**16
        expected = (
            sinusoids(len(table), d_model)[:, sines_first_order(d_model)] if is_table else table
        )
        difference = (table.float() - expected.float()).abs().max() if is_table else torch.inf
        if difference > POSITION_TOLERANCE:
            raise UserError(
                f"{path}: model.{side}.embed_positions.weight are not the sinusoids of Marian; "
                "only models with static positions can be imported"
            )


def _check_unused(path: Path, found: Mapping[str, Tensor], used: set[str]) -> None:
    """Check that all weights of a file were read, except for copies of embeddings.

    The shared embedding is not used if the file has those of both sides.
    """
    embeddings = {SHARED, *EMBEDDING_NAMES.values()}
    for name in sorted(found.keys() - used):
        is_copy = name == SHARED
        if name in embeddings:
            for other in embeddings & used:
                is_copy = is_copy or torch.equal(found[name], found[other])
        if not is_copy:
            raise UserError(
                f"{path} has the unexpected key {quote(name)}; only models without additional "
                "parameters can be imported"
            )
