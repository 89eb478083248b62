"""Models of fairseq (https://github.com/facebookresearch/fairseq): checkpoint, dictionary, codes.

Deviation: fairseq's decoder begins with </s>, ours with <s>. The row of </s> in the target
embedding therefore also becomes that of <s>, which fairseq never reads. Since the output matrix
keeps its own row of <s>, the embeddings are not tied, even if they were in fairseq.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor

from nmtkit.corpus.bpe import VERSION_LINE, Pair, read_codes
from nmtkit.errors import UserError, shown
from nmtkit.files import DamagedError, first_problem, read_utf8
from nmtkit.interchange.pickles import Made
from nmtkit.interchange.torch_file import TorchFile, shape_of
from nmtkit.model.shapes import shapes
from nmtkit.recipe import ModelConfig

LAYER_NORM_EPSILON = 1e-5
MAX_TEXT_BYTES = 2**23  # of a dictionary or of codes

# What fairseq's checkpoints name besides tensors. Nothing of it is imported.
BUILT_IN = ("bool", "dict", "float", "int", "list", "str")
NAMES = frozenset(
    [
        "argparse.Namespace",
        "collections.OrderedDict",
        "collections.defaultdict",
        "typing.Any",
        "_codecs.encode",
        "numpy.dtype",
        "numpy.core.multiarray.scalar",
        "numpy._core.multiarray.scalar",
        *(f"builtins.{kind}" for kind in BUILT_IN),
        *(f"__builtin__.{kind}" for kind in BUILT_IN),  # Python 2
    ]
)
PACKAGES = ("omegaconf.", "fairseq.dataclass.")

# In a dictionary, these four precede the lines of the file. Ours are in another order.
SYMBOLS = ("<s>", "<pad>", "</s>", "<unk>")
ROWS = (1, 0, 2, 3)  # of <pad>, <s>, </s> and <unk> in fairseq's matrices
ROWS_OF_DECODER = (1, 2, 2, 3)  # the same, but <s> is read as </s>
FILLER = re.compile(r"madeupword\d{4}")  # fills the dictionary up to a multiple of 8

# Settings that our model has only one value of: what they must be, if they are there.
FIXED: dict[str, Any] = {
    "activation_fn": "relu",
    "no_token_positional_embeddings": False,
    "no_scale_embedding": False,
    "layernorm_embedding": False,
    "adaptive_input": False,
    "adaptive_softmax_cutoff": None,
    "no_cross_attention": False,
    "cross_self_attention": False,
}
BOTH_SIDES = ("attention_heads", "normalize_before", "learned_pos")  # must be the same on both

# The norms of a layer, in the order of its sublayers.
NORMS = {
    "encoder": ("self_attn_layer_norm", "final_layer_norm"),
    "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
}
# The output matrix, by the version of fairseq; older ones name it only if it is not tied.
OUTPUTS = ("decoder.output_projection.weight", "decoder.embed_out", "decoder.embed_tokens.weight")
MIN_ITEM_BYTES = 2  # of a weight, in float16
MAX_SHARED = (
    3  # times that an element of the file may be a weight: embeddings of both sides, output
)
MAX_DIGITS = 18  # of a count

# Keys of `model` that hold no weights of ours.
NO_WEIGHTS = re.compile(r"(en|de)coder\.(version|embed_positions\.(_float_tensor|weights))")


@dataclass(frozen=True)
class Model:
    """A model in our own terms."""

    config: ModelConfig
    n_rows: int
    weights: dict[str, Tensor]


@dataclass(frozen=True)
class Dictionary:
    """The pieces of a vocabulary with their counts, in the order of their ids."""

    pieces: dict[str, int]
    n_rows: int  # with symbols and fillers


def read_model(path: Path, langs: Sequence[str]) -> Model:
    """Read a checkpoint of fairseq, which may come from a stranger.

    Args:
        path: The file.
        langs: Of the source and of the target.

    Raises:
        UserError: It is none, is damaged, translates between other languages, or holds a model that
            ours cannot express.
    """
    file = TorchFile.open(path, _may_name)
    state = file.value if type(file.value) is dict else {}
    named, settings = state.get("model"), _settings(state)
    if type(named) is not dict or not all(type(key) is str for key in named):
        raise UserError(f"{path} is not a checkpoint of fairseq: it has no model")
    if settings is None:
        raise UserError(f"{path} has no settings of a model; give a checkpoint of fairseq-train")
    _check_settings(path, settings, langs)
    records = dict(_renamed(named))
    config, n_rows = _config(path, settings, records)
    reader = _Reader(file, records)
    reader.check_total()
    weights = dict(_weights(reader, config))
    reader.check_unread()
    _check_shapes(path, weights, dict(shapes(config, n_rows)))
    return Model(config, n_rows, weights)


def _may_name(name: str) -> bool:
    return name in NAMES or name.startswith(PACKAGES)


def _settings(state: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the flat settings of the model: a Namespace or, since 2020, a part of `cfg`."""
    if (args := _plain(state.get("args"))) is not None:
        found = args
    else:
        cfg = _plain(state.get("cfg"))
        found = _plain(cfg.get("model")) if type(cfg) is dict else None
    if type(found) is not dict:
        return None
    return {key: _plain(value) for key, value in found.items()}


def _plain(value: Any) -> Any:
    """Return what a Namespace, or a node of omegaconf, holds."""
    if type(value) is Made and value.by == "argparse.Namespace":
        return value.state
    if type(value) is Made and value.by.startswith("omegaconf.") and type(value.state) is dict:
        return value.state.get("_content", value.state.get("_val"))
    return value


def _check_settings(path: Path, settings: Mapping[str, Any], langs: Sequence[str]) -> None:
    for key, value in FIXED.items():
        if settings.get(key, value) != value:
            raise UserError(
                f"{path} has a model with {key} = {shown(settings[key])}; only {key} = {value} can "
                "be imported"
            )
    for key in BOTH_SIDES:
        sides = [settings.get(f"{side}_{key}", False) for side in ("encoder", "decoder")]
        if sides[0] != sides[1]:
            raise UserError(
                f"{path} has a model with encoder_{key} = {shown(sides[0])} and decoder_{key} = "
                f"{shown(sides[1])}; only a model with the same can be imported"
            )
    trained = [settings.get(f"{side}_lang") for side in ("source", "target")]
    if None not in trained and trained != list(langs):
        raise UserError(
            f"{path} translates {shown(trained[0])} to {shown(trained[1])}, not {langs[0]} to "
            f"{langs[1]}; change --langpair"
        )


def _renamed(named: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the weights with the names that the norms of layers have had since 2019."""
    for key, record in named.items():
        match key.split("."):
            case [side, "layers", layer, "layer_norms", ("0" | "1" | "2") as number, kind]:
                norms = NORMS.get(side, ())
                norm = dict(enumerate(norms)).get(int(number), "layer_norms")
                yield f"{side}.layers.{layer}.{norm}.{kind}", record
            case _:
                yield key, record


def _config(
    path: Path, settings: Mapping[str, Any], records: Mapping[str, Any]
) -> tuple[ModelConfig, int]:
    """Return the configuration, by the shapes of the weights where they tell, and the rows."""
    n_rows, d_model = _shape(path, records, "decoder.embed_tokens.weight")
    n_src_rows, _ = _shape(path, records, "encoder.embed_tokens.weight")
    if n_src_rows != n_rows:
        raise UserError(
            f"{path} has {n_src_rows:,} source rows and {n_rows:,} target rows; only a model with "
            "one dictionary for both sides (--joined-dictionary) can be imported"
        )
    d_ff, _ = _shape(path, records, "encoder.layers.0.fc1.weight")
    layers = {side: _n_layers(side, records) for side in ("encoder", "decoder")}
    if layers["encoder"] != layers["decoder"]:
        raise UserError(
            f"{path} has {layers['encoder']:,} encoder layers and {layers['decoder']:,} decoder "
            "layers; only a model with as many on both sides can be imported"
        )
    learned = bool(settings.get("encoder_learned_pos", False))
    max_positions = [settings.get(f"max_{side}_positions", 1024) for side in ("source", "target")]
    if learned:  # the first two rows are never read
        max_positions = [
            _shape(path, records, f"{side}.embed_positions.weight")[0] - 2
            for side in ("encoder", "decoder")
        ]
    n_heads = settings.get("encoder_attention_heads")
    if type(n_heads) is not int or n_heads < 1 or d_model % n_heads:
        raise UserError(f"{path} has {shown(n_heads)} attention heads for d_model = {d_model:,}")
    values = {
        "n_layers": layers["encoder"],
        "d_model": d_model,
        "d_ff": d_ff,
        "n_heads": n_heads,
        "d_k": d_model // n_heads,
        "d_v": d_model // n_heads,
        "attention_bias": True,
        "dropout": settings.get("dropout", 0.1),
        "attention_dropout": settings.get("attention_dropout", 0.0),
        "positions": "learned" if learned else "fairseq",
        "max_positions": min(max_positions, key=_as_int),
        "norm": "pre" if settings.get("encoder_normalize_before") else "post",
        "layer_norm_epsilon": LAYER_NORM_EPSILON,
        "tie_embeddings": False,
        "vocabulary_multiple": 1,
    }
    try:
        return ModelConfig.model_validate(values), n_rows
    except ValidationError as error:
        raise UserError(f"{path} has a model that is not read ({first_problem(error)})") from None


def _as_int(value: Any) -> int:
    return value if type(value) is int else -1


def _shape(path: Path, records: Mapping[str, Any], name: str) -> tuple[int, int]:
    shape = shape_of(records.get(name))
    if shape is None or len(shape) != 2 or 0 in shape:
        raise UserError(f"{path} is not a Transformer of fairseq: it has no matrix {name}")
    return shape[0], shape[1]


def _n_layers(side: str, records: Mapping[str, Any]) -> int:
    n_layers = 0
    while f"{side}.layers.{n_layers}.fc1.weight" in records:
        n_layers += 1
    return n_layers


def _weights(reader: "_Reader", config: ModelConfig) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights under our names."""
    embeddings = {
        "src_embedding": ("encoder.embed_tokens.weight", ROWS),
        "tgt_embedding": ("decoder.embed_tokens.weight", ROWS_OF_DECODER),
    }
    for name, (key, first) in embeddings.items():
        yield f"{name}.weight", _rows(reader.read(key), first)
        if config.positions == "learned":
            side = key.split(".")[0]
            yield f"{name}.positions", reader.read(f"{side}.embed_positions.weight")[2:]
    yield "_output", _rows(reader.read(*OUTPUTS), ROWS)
    for side, norms in NORMS.items():
        if config.norm == "pre":
            yield from _linear(reader, f"{side}_norm", f"{side}.layer_norm")
        for layer in range(config.n_layers):
            ours, theirs = f"{side}.{layer}", f"{side}.layers.{layer}"
            yield from _attention(reader, f"{ours}.self_attention", f"{theirs}.self_attn")
            if side == "decoder":
                yield from _attention(reader, f"{ours}.cross_attention", f"{theirs}.encoder_attn")
            yield from _linear(reader, f"{ours}.feed_forward.w1", f"{theirs}.fc1")
            yield from _linear(reader, f"{ours}.feed_forward.w2", f"{theirs}.fc2")
            for number, norm in enumerate(norms):
                yield from _linear(reader, f"{ours}.residuals.{number}.norm", f"{theirs}.{norm}")


def _check_shapes(
    path: Path, weights: Mapping[str, Tensor], expected: Mapping[str, tuple[int, ...]]
) -> None:
    for name, shape in expected.items():
        if (found := tuple(weights[name].shape)) != shape:
            raise UserError(
                f"{path} is not a Transformer of the paper: {name} would have shape {found}, not "
                f"{shape}"
            )


def _rows(matrix: Tensor, first: Sequence[int]) -> Tensor:
    """Put the rows of the symbols into our order."""
    return torch.cat([matrix[list(first)], matrix[len(first) :]])


def _linear(reader: "_Reader", ours: str, theirs: str) -> Iterator[tuple[str, Tensor]]:
    for kind in ("weight", "bias"):
        yield f"{ours}.{kind}", reader.read(f"{theirs}.{kind}")


def _attention(reader: "_Reader", ours: str, theirs: str) -> Iterator[tuple[str, Tensor]]:
    """Yield merged projections; fairseq merged all three until 2019, and none since."""
    for kind in ("weight", "bias"):
        if f"{theirs}.in_proj_{kind}" in reader.records:
            parts = reader.read(f"{theirs}.in_proj_{kind}").chunk(3)
        else:
            parts = tuple(reader.read(f"{theirs}.{part}_proj.{kind}") for part in "qkv")
        if ours.endswith("cross_attention"):
            yield f"{ours}.q.{kind}", parts[0]
            yield f"{ours}.kv.{kind}", torch.cat(parts[1:])
        else:
            yield f"{ours}.qkv.{kind}", torch.cat(parts)
    yield from _linear(reader, f"{ours}.out", f"{theirs}.out_proj")


@dataclass
class _Reader:
    """Reads weights, and remembers which."""

    file: TorchFile
    records: dict[str, Any]
    read_keys: set[str] = field(default_factory=set)

    def read(self, *keys: str) -> Tensor:
        """Read the first of these weights that is there."""
        for key in keys:
            if key in self.records:
                self.read_keys.add(key)
                return self.file.tensor(self.records[key], key)
        raise UserError(f"{self.file.path} is not a Transformer of fairseq: it has no {keys[0]}")

    def check_total(self) -> None:
        """Check that the weights together are not much larger than the file.

        Tied embeddings are there three times. Nothing else shares its elements.

        Raises:
            UserError: They are.
        """
        n_file = self.file.path.stat().st_size
        n_weights = sum(prod(shape_of(record) or ()) for record in self.records.values())
        if n_weights * MIN_ITEM_BYTES > MAX_SHARED * n_file:
            raise UserError(
                f"{self.file.path} claims {n_weights:,} weights in {n_file:,} bytes; it is damaged "
                "or hostile"
            )

    def check_unread(self) -> None:
        """Check that the model has no weights but those that were read.

        Raises:
            UserError: It has.
        """
        for key in sorted(self.records.keys() - self.read_keys):
            if not NO_WEIGHTS.fullmatch(key):
                raise UserError(f"{self.file.path} has {shown(key)}, which our model has not")


def _read_text(path: Path, option: str) -> str:
    """Read a file of the user's, which is no artifact of ours to be deleted and made again."""
    try:
        return read_utf8(path, MAX_TEXT_BYTES)
    except DamagedError as error:
        raise UserError(f"{error.reason}; name the right one with {option}") from None


def read_dictionary(path: Path) -> Dictionary:
    """Read a dictionary, dict.LANG.txt.

    Raises:
        UserError: It is missing, too large or malformed.
    """
    pieces: dict[str, int] = {}
    lines = _read_text(path, "--data").removesuffix("\n").split("\n")
    for number, line in enumerate(lines, start=1):
        piece, _, count = line.rstrip().rpartition(" ")
        if not piece or not count.isdecimal() or len(count) > MAX_DIGITS:
            raise UserError(f"{path}, line {number:,}: {shown(line)} is not a piece and a count")
        if piece in pieces or piece in SYMBOLS:
            raise UserError(f"{path}, line {number:,}: {shown(piece)} is there twice")
        pieces[piece] = int(count)
    n_rows = len(SYMBOLS) + len(pieces)
    while pieces and FILLER.fullmatch(last := next(reversed(pieces))):
        del pieces[last]
    return Dictionary(pieces, n_rows)


def read_merges(path: Path) -> list[Pair]:
    """Read the merges of subword-nmt (version 0.2), or those of fastBPE, which have counts.

    Raises:
        UserError: The file is missing, too large or malformed.
    """
    text = _read_text(path, "--codes")
    if text.startswith("#version"):
        return read_codes(path)
    merges = []
    lines = text.removesuffix("\n").split("\n")
    for number, line in enumerate(lines, start=1):
        match line.strip("\r\n ").split(" "):
            case [one, other, count] if one and other and count.isdecimal():
                merges.append((one, other))
            case _:
                raise UserError(
                    f"{path}, line {number:,}: {shown(line)} is neither of subword-nmt 0.2, whose "
                    f"codes begin with {VERSION_LINE}, nor of fastBPE (two subwords and a count)"
                )
    return merges
