"""Models of fairseq (https://github.com/facebookresearch/fairseq): checkpoint, dictionary, codes.

Deviation: fairseq's decoder begins with </s>, ours with <s>, which therefore gets the same row in
the target embedding, but not in the output matrix: the two are not tied, even if they were there.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor

from nmtkit.config.recipe import ModelConfig
from nmtkit.corpus.bpe_codes import CONTINUES, read_codes
from nmtkit.corpus.subword import (
    MAX_DIGITS,
    MAX_FILE_BYTES,
    BpeSubword,
    SentencePieceSubword,
    Subword,
)
from nmtkit.interchange.names import NORMS, parts_of
from nmtkit.interchange.restricted_load import Inert, load
from nmtkit.model.description import Description
from nmtkit.model.weights import shapes
from nmtkit.store.records import DamagedError, first_problem, read_bytes, read_utf8
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import quote

# Classes and functions that a checkpoint may contain; of PACKAGES, it may contain any class.
ALLOWED_NAMES = {
    "argparse.Namespace",
    "collections.defaultdict",
    "typing.Any",
    "numpy.dtype",
    "numpy.core.multiarray.scalar",
    "numpy._core.multiarray.scalar",
    "builtins.bool",
    "builtins.dict",
    "builtins.float",
    "builtins.int",
    "builtins.list",
    "builtins.str",
    # as in Python 2
    "__builtin__.bool",
    "__builtin__.dict",
    "__builtin__.float",
    "__builtin__.int",
    "__builtin__.list",
    "__builtin__.long",
    "__builtin__.str",
    "__builtin__.unicode",
}
PACKAGES = ("omegaconf.", "fairseq.")

# In a dictionary, these four precede the lines of the file. Ours are in another order.
SYMBOLS = ("<s>", "<pad>", "</s>", "<unk>")
# Of the pieces in a dictionary: placeholders that somebody added.
MAX_FOREIGN = 0.01
FILLER = re.compile(r"madeupword\d{4}")  # fills the dictionary up to a multiple of 8

# Settings that our model has only one value of. A checkpoint that has them must have these values.
FIXED: dict[str, Any] = {
    "activation_fn": "relu",
    "no_token_positional_embeddings": False,
    "no_scale_embedding": False,
    "layernorm_embedding": False,
    "adaptive_input": False,
    "no_cross_attention": False,
    "cross_self_attention": False,
    "adaptive_softmax_cutoff": None,
}
BOTH_SIDES = ("attention_heads", "normalize_before", "learned_pos")  # must be the same on both

# The rows of our <pad>, <s>, </s> and <unk> in fairseq's matrices.
SYMBOL_ROWS = {
    "src_embedding.weight": (1, 0, 2, 3),
    "tgt_embedding.weight": (1, 2, 2, 3),  # the decoder reads </s> instead of <s>
    "_output": (1, 0, 2, 3),
}

FIRST_POSITION = 2  # the first two rows are never read

# Keys of `model` that hold no weights of ours.
NO_WEIGHTS = re.compile(r"(en|de)coder\.(version|embed_positions\.(_float_tensor|weights))")


def read_model(path: Path, langs: Sequence[str]) -> tuple[Description, dict[str, Tensor]]:
    """Read the model and the weights of a checkpoint, which may come from a stranger."""
    with torch.no_grad():
        state = load(path, ALLOWED_NAMES, PACKAGES)
        state = state if type(state) is dict else {}
        tensors, settings = state.get("model"), _settings(state)
        if not isinstance(tensors, dict) or {*map(type, tensors)} - {str} or not settings:
            raise UserError(
                f"{path} is not a checkpoint of fairseq-train: it has no model or no settings"
            )
        _check_settings(path, settings, langs)
        named = dict(_renamed(path, tensors))
        model = _description(path, settings, named)
        named.setdefault("decoder.output_projection.weight", named["decoder.embed_tokens.weight"])
        named_shapes = shapes(model.config, model.n_rows)
        weights = {name: _weight(path, named, name, shape) for name, shape in named_shapes}
    for key in sorted(named):
        if not NO_WEIGHTS.fullmatch(key):
            raise UserError(f"{path} has {quote(key)}, which our model has not")
    return model, weights


def _settings(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flat settings of the model: a Namespace or, since 2020, a part of `cfg`."""
    found = _plain(state.get("args"))
    if found is None and type(cfg := _plain(state.get("cfg"))) is dict:
        found = _plain(cfg.get("model"))
    return {key: _plain(value) for key, value in found.items()} if type(found) is dict else {}


def _plain(value: Any) -> Any:
    if type(value) is Inert and type(value.state) is dict:
        return value.state.get("_content", value.state.get("_val", value.state))
    return value


def _check_settings(path: Path, settings: Mapping[str, Any], langs: Sequence[str]) -> None:
    same = {f"decoder_{key}": settings.get(f"encoder_{key}", False) for key in BOTH_SIDES}
    for key, value in (FIXED | same).items():
        if settings.get(key, value) != value:
            raise UserError(
                f"{path} has a model with {key} = {quote(settings[key])}; only {key} = "
                f"{quote(value)} can be imported"
            )
    trained = [settings.get(f"{side}_lang") for side in ("source", "target")]
    if None not in trained and trained != list(langs):
        raise UserError(
            f"{path} translates {quote(trained[0])} to {quote(trained[1])}, not {langs[0]} to "
            f"{langs[1]}; change --lang"
        )


def _renamed(path: Path, model: Mapping[str, Any]) -> Iterator[tuple[str, Tensor]]:
    for key, weight in model.items():
        if not isinstance(weight, Tensor) or not weight.is_floating_point() or not weight.dim():
            raise UserError(f"{path}: {quote(key)} is not a tensor of floating-point numbers")
        match key.split("."):
            case [("encoder" | "decoder") as side, "layers", layer, "layer_norms", number, kind]:
                norm = dict(zip("012", NORMS[side], strict=False)).get(number, number)
                yield f"{side}.layers.{layer}.{norm}.{kind}", weight
            case [*place, ("in_proj_weight" | "in_proj_bias") as merged]:
                for part, third in zip("qkv", weight.tensor_split(3), strict=True):
                    yield ".".join([*place, f"{part}_proj", merged.removeprefix("in_proj_")]), third
            case ["decoder", "embed_out"]:
                yield "decoder.output_projection.weight", weight
            case _:
                yield key, weight


def _description(
    path: Path, settings: Mapping[str, Any], named: Mapping[str, Tensor]
) -> Description:
    """Return what the model is, by the shapes of the weights where they tell."""
    n_rows, d_model = _shape(path, named, "decoder.embed_tokens.weight")
    d_ff, _ = _shape(path, named, "encoder.layers.0.fc1.weight")
    n_layers = next(n for n in count() if f"encoder.layers.{n}.fc1.weight" not in named)
    learned = bool(settings.get("encoder_learned_pos", False))
    max_positions = [settings.get(f"max_{side}_positions", 1024) for side in ("source", "target")]
    if learned:
        max_positions = [
            _shape(path, named, f"{side}.embed_positions.weight")[0] - FIRST_POSITION
            for side in ("encoder", "decoder")
        ]
    n_heads = settings.get("encoder_attention_heads")
    if type(n_heads) is not int or n_heads < 1 or d_model % n_heads:
        raise UserError(f"{path} has {quote(n_heads)} attention heads for d_model = {d_model:,}")
    values = {
        "n_layers": n_layers,
        "d_model": d_model,
        "d_ff": d_ff,
        "n_heads": n_heads,
        **dict.fromkeys(("d_k", "d_v"), d_model // n_heads),
        "attention_bias": True,
        "dropout": settings.get("dropout", 0.1),
        "attention_dropout": settings.get("attention_dropout", 0.0),
        "positions": "learned" if learned else "fairseq",
        "max_positions": min(max_positions, key=lambda n: n if type(n) is int else -1),
        "norm": "pre" if settings.get("encoder_normalize_before") else "post",
        "layer_norm_epsilon": 1e-5,
        "tie_embeddings": False,
        # Of any smaller vocabulary, `rows_for` gives this number of rows, so that the recipe of a
        # fine-tuning has the fillers too.
        "vocabulary_multiple": n_rows,
    }
    try:
        return Description(config=ModelConfig.model_validate(values), n_rows=n_rows)
    except ValidationError as error:
        raise UserError(f"{path} has a model that is not read ({first_problem(error)})") from None


def _shape(path: Path, named: Mapping[str, Tensor], key: str) -> Sequence[int]:
    if key in named and len(shape := named[key].shape) == 2 and 0 not in shape:
        return shape
    raise UserError(f"{path} is not a Transformer of fairseq: it has no matrix {key}")


def _weight(path: Path, named: dict[str, Tensor], name: str, shape: tuple[int, ...]) -> Tensor:
    names = parts_of(name)
    if missing := [part for part in names if part not in named]:
        raise UserError(f"{path} is not a Transformer of fairseq: it has no {missing[0]}")
    parts = [named.pop(part) for part in names]
    if rows := SYMBOL_ROWS.get(name):
        parts = [*(parts[0][row : row + 1] for row in rows), parts[0][len(SYMBOLS) :]]
    elif name.endswith(".positions"):
        parts = [parts[0][FIRST_POSITION:]]
    if {part.shape[1:] for part in parts} != {shape[1:]} or sum(map(len, parts)) != shape[0]:
        found = " and ".join(str(tuple(part.shape)) for part in parts)
        raise UserError(
            f"{path} is not a Transformer of the paper: {name} would have shape {found}, not "
            f"{shape}"
        )
    return torch.cat(parts).float()


def read_dictionary(path: Path) -> tuple[dict[str, int], int]:
    """Return the pieces with their counts, by their ids, and the rows, symbols and fillers too."""
    pieces: dict[str, int] = {}
    try:
        lines = read_utf8(path, MAX_FILE_BYTES).removesuffix("\n").split("\n")
    except DamagedError as error:
        raise UserError(
            f"{error.reason}; copy or link the dictionaries to where the checkpoint is"
        ) from None
    for number, line in enumerate(lines, start=1):
        piece, _, count = line.rstrip().rpartition(" ")
        is_new = piece and piece not in pieces and piece not in SYMBOLS
        if not is_new or not count.isdecimal() or len(count) > MAX_DIGITS:
            raise UserError(
                f"{path}, line {number:,}: {quote(line)} is not a new piece and its count"
            )
        pieces[piece] = int(count)
    n_rows = len(SYMBOLS) + len(pieces)
    while pieces and FILLER.fullmatch(last := next(reversed(pieces))):
        del pieces[last]
    return pieces, n_rows


def read_subword(path: Path, counts: Mapping[str, int]) -> Subword:
    """Read what split text into the pieces of a dictionary: BPE codes or a sentencepiece model.

    Args:
        path: BPE codes of subword-nmt or fastBPE, or a sentencepiece model.
        counts: The pieces of the dictionary with their counts, by their ids.

    Raises:
        UserError: The file cannot be read, or many of the pieces cannot result from it.
    """
    subword: Subword
    try:
        if read_bytes(path, MAX_FILE_BYTES).startswith(b"\n"):  # the first piece of a model
            subword = SentencePieceSubword.read(path, counts)
            foreign = _foreign_sentencepieces(path, counts)
        else:
            codes = read_codes(path)
            subword = BpeSubword(codes, counts)
            merged = set(codes.pieces())
            foreign = [p for p in counts if p not in merged and len(p.removesuffix(CONTINUES)) > 1]
    except DamagedError as error:
        raise UserError(f"{error.reason}; pass the right file with --codes") from None
    if len(foreign) > MAX_FOREIGN * len(counts):
        raise UserError(
            f"{len(foreign):,} of the {len(counts):,} subwords in the dictionary, such as "
            f"{quote(foreign[0])}, cannot result from {path}; pass the codes that split the "
            "training text of the model with --codes"
        )
    return subword


def _foreign_sentencepieces(path: Path, counts: Mapping[str, int]) -> list[str]:
    """Return the pieces that are neither in the model nor a row of characters unknown to it."""
    model = SentencePieceSubword.read(path, None)
    own = set(model.pieces(range(model.n_tokens)))
    return [p for p in counts if len(p) > 1 and p not in own and p not in model.split(p)]
