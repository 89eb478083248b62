"""Import of models of fairseq (https://github.com/facebookresearch/fairseq).

A model is a checkpoint, its dictionaries and the codes that split words.

Deviation: fairseq's decoder begins with </s>, ours with <s>. Both get the same row in the target
embedding, but not in the output matrix: here the two matrices are never tied.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import ValidationError
from torch import Tensor

from nmtkit.config.model import PAPERS_DECODING, ModelConfig
from nmtkit.corpus.bpe_subword import CONTINUES, BpeSubword, read_codes
from nmtkit.corpus.sentencepiece_subword import SentencePieceSubword
from nmtkit.corpus.subword import Subword
from nmtkit.corpus.vocabulary import MAX_DIGITS, MAX_FILE_BYTES
from nmtkit.interchange.imported import ImportedModel, TextPreparation
from nmtkit.interchange.names import NORMS, part_names
from nmtkit.interchange.restricted_load import Placeholder, load
from nmtkit.model.weights import Description, shapes
from nmtkit.store.records import DamagedError, file_sha256, first_problem, read_bytes, read_utf8
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language
from nmtkit.utils.text import quote

# In a dictionary, these four precede the lines of the file. Ours are in another order.
SYMBOLS = ("<s>", "<pad>", "</s>", "<unk>")

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

# Settings of which our model supports one value. A checkpoint with such a setting must have it.
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

# Maximum share of pieces in a dictionary that the codes cannot form, such as added placeholders.
MAX_FOREIGN = 0.01
FILLER = re.compile(r"madeupword\d{4}")  # fills the dictionary up to a multiple of 8
HYPHEN = "@-@"  # a hyphen between words, as `tokenizer.perl -a` writes it


def import_fairseq(
    checkpoint: Path, codes: Path, langs: tuple[Language, Language], preparation: TextPreparation
) -> ImportedModel:
    """Read a model of fairseq, whose dictionaries are next to its checkpoint.

    Args:
        checkpoint: A checkpoint of fairseq-train.
        codes: BPE codes of subword-nmt or fastBPE, or a sentencepiece model.
        langs: The languages of source and target.
        preparation: The text processing before subwords.

    Raises:
        UserError: A file cannot be read or imported, or the files do not belong together.
    """
    src_dictionary, tgt_dictionary = (checkpoint.with_name(f"dict.{lang}.txt") for lang in langs)
    # To open a pipe or a device could wait forever.
    for path in (checkpoint, codes, src_dictionary, tgt_dictionary):
        if path.exists() and not path.is_file():
            raise UserError(f"{path} is not a regular file; copy it to one")
    description, weights = read_model(checkpoint, [lang.tag for lang in langs])
    pieces, n_rows = read_dictionary(src_dictionary)
    if read_dictionary(tgt_dictionary) != (pieces, n_rows):
        raise UserError(
            f"{src_dictionary} and {tgt_dictionary} differ; only a model with one dictionary for "
            "both sides (--joined-dictionary) can be imported"
        )
    # The pieces have the ids of the dictionary, whatever the codes could form in addition.
    subword = read_subword(codes, pieces)
    if n_rows != description.n_rows:
        raise UserError(
            f"{src_dictionary} has {n_rows:,} entries including the four special tokens, but the "
            f"model in {checkpoint} has {description.n_rows:,}; copy the dictionaries of its "
            "training to its folder"
        )

    # A checkpoint does not record how its text was tokenized.
    tokenizer: Literal["moses", "none"] = "moses" if isinstance(subword, BpeSubword) else "none"
    tokenizations = preparation.tokenizations(langs, tokenizer, HYPHEN in pieces)
    files = {checkpoint, codes, src_dictionary, tgt_dictionary}
    hashes = {path.name: file_sha256(path) for path in files}
    return ImportedModel(
        "fairseq", description, weights, subword, tokenizations, PAPERS_DECODING, hashes
    )


def read_dictionary(path: Path) -> tuple[dict[str, int], int]:
    """Read a dictionary of fairseq.

    Returns:
        The pieces in the order of their ids, with their counts, and the number of rows that the
        embeddings have for them, including the four symbols and fillers.

    Raises:
        UserError: The file cannot be read, or a line is not a new piece and its count.
    """
    pieces: dict[str, int] = {}
    try:
        lines = read_utf8(path, MAX_FILE_BYTES).removesuffix("\n").split("\n")
    except DamagedError as error:
        raise UserError(
            f"{error.reason}; copy or link the dictionaries to the folder of the checkpoint"
        ) from None
    for number, line in enumerate(lines, start=1):
        piece, _, count = line.rstrip().rpartition(" ")
        is_new = piece and piece not in pieces and piece not in SYMBOLS
        if not is_new or not count.isdecimal() or len(count) > MAX_DIGITS:
            raise UserError(
                f"{path}, line {number:,}: expected a new piece and its count, got {quote(line)}"
            )
        pieces[piece] = int(count)
    # Fillers have rows in the matrices, but are never used.
    n_rows = len(SYMBOLS) + len(pieces)
    while pieces and FILLER.fullmatch(next(reversed(pieces))):
        pieces.popitem()
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
            f"{quote(foreign[0])}, cannot result from {path}; with --codes, pass the codes that "
            "split the training text of the model"
        )
    return subword


def _foreign_sentencepieces(path: Path, counts: Mapping[str, int]) -> list[str]:
    """Return the pieces that are neither in the model nor a row of characters unknown to it."""
    model = SentencePieceSubword.read(path, None)
    own = set(model.pieces(range(model.n_tokens)))
    foreign = []
    for piece in counts:
        if len(piece) > 1 and piece not in own and piece not in model.split(piece):
            foreign.append(piece)
    return foreign


# The checkpoint


def read_model(path: Path, langs: Sequence[str]) -> tuple[Description, dict[str, Tensor]]:
    """Read the model and the weights of a checkpoint. It may come from a stranger.

    Args:
        path: A checkpoint of fairseq-train.
        langs: Tags of the languages of source and target.

    Returns:
        The model, and its weights by our names.

    Raises:
        UserError: The file is not a checkpoint, or our model does not compute its model.
    """
    with torch.no_grad():
        loaded = load(path, ALLOWED_NAMES, PACKAGES)
        state = loaded if type(loaded) is dict else {}
        tensors = state.get("model")
        settings = _settings(state)
        has_names = isinstance(tensors, dict) and all(type(name) is str for name in tensors)
        if not isinstance(tensors, dict) or not has_names or not settings:
            raise UserError(
                f"{path} is not a checkpoint of fairseq-train: it has no model or no settings"
            )
        _check_settings(path, settings, langs)
        named = dict(_renamed(path, tensors))
        model = _description(path, settings, named)

        # Without a matrix of its own, the output is tied to the embedding of the target.
        named.setdefault("decoder.output_projection.weight", named["decoder.embed_tokens.weight"])
        weights = {}
        for name, shape in shapes(model.config, model.n_rows):
            weights[name] = _weight(path, named, name, shape)
    # A weight that is left over means that our model would compute something else.
    for key in sorted(named):
        if not NO_WEIGHTS.fullmatch(key):
            raise UserError(
                f"{path} has the unexpected key {quote(key)}; only models without additional "
                "parameters can be imported"
            )
    return model, weights


def _settings(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flat settings of the model: a Namespace or, since 2020, a part of `cfg`."""
    settings = _plain(state.get("args"))
    if settings is None:
        config = _plain(state.get("cfg"))
        settings = _plain(config.get("model")) if type(config) is dict else None
    if type(settings) is not dict:
        return {}
    return {key: _plain(value) for key, value in settings.items()}


def _plain(value: Any) -> Any:
    """Return the value that an object of omegaconf or argparse holds."""
    if type(value) is Placeholder and type(value.state) is dict:
        return value.state.get("_content", value.state.get("_val", value.state))
    return value


def _check_settings(path: Path, settings: Mapping[str, Any], langs: Sequence[str]) -> None:
    """Check that the settings describe a model that ours can compute, for these languages.

    Args:
        path: The checkpoint, for messages.
        langs: Tags of the languages of source and target.
    """
    required = dict(FIXED)
    # Our encoder and decoder share these values.
    for key in BOTH_SIDES:
        required[f"decoder_{key}"] = settings.get(f"encoder_{key}", False)
    for key, value in required.items():
        if settings.get(key, value) != value:
            raise UserError(
                f"{path} has a model with {key} = {quote(settings[key])}; only {key} = "
                f"{quote(value)} can be imported"
            )
    # With wrong languages, the model would run and translate nonsense.
    trained = [settings.get(f"{side}_lang") for side in ("source", "target")]
    if None not in trained and trained != list(langs):
        raise UserError(
            f"{path} translates {quote(trained[0])} to {quote(trained[1])}, not {langs[0]} to "
            f"{langs[1]}; change --lang"
        )


def _renamed(path: Path, model: Mapping[str, Any]) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights under the names that fairseq has had since 2019.

    Args:
        path: The checkpoint, for messages.
        model: Its weights. Projections of attention may be merged.
    """
    for key, weight in model.items():
        if not isinstance(weight, Tensor) or not weight.is_floating_point() or not weight.dim():
            raise UserError(f"{path}: {quote(key)} is not a tensor of floating-point numbers")
        match key.split("."):
            case [("encoder" | "decoder") as side, "layers", layer, "layer_norms", number, kind]:
                norms = dict(zip("012", NORMS[side], strict=False))
                norm = norms.get(number, number)  # an unknown number is refused later
                yield f"{side}.layers.{layer}.{norm}.{kind}", weight
            case [*place, ("in_proj_weight" | "in_proj_bias") as merged]:
                prefix = ".".join(place)
                kind = merged.removeprefix("in_proj_")
                for part, third in zip("qkv", weight.tensor_split(3), strict=True):
                    yield f"{prefix}.{part}_proj.{kind}", third
            case ["decoder", "embed_out"]:
                yield "decoder.output_projection.weight", weight
            case _:
                yield key, weight


def _count_layers(named: Mapping[str, Tensor], side: str) -> int:
    """Return the number of layers of the encoder or the decoder.

    Args:
        named: The weights by fairseq's names.
        side: "encoder" or "decoder".
    """
    n_layers = 0
    while f"{side}.layers.{n_layers}.fc1.weight" in named:
        n_layers += 1
    return n_layers


def _description(
    path: Path, settings: Mapping[str, Any], named: Mapping[str, Tensor]
) -> Description:
    """Describe the model, by the shapes of its weights where they are enough.

    Args:
        path: The checkpoint, for messages.
        named: Its weights by fairseq's names.
    """
    n_rows, d_model = _shape(path, named, "decoder.embed_tokens.weight")
    d_ff, _ = _shape(path, named, "encoder.layers.0.fc1.weight")
    n_layers = _count_layers(named, "encoder")
    n_decoder_layers = _count_layers(named, "decoder")
    learned = bool(settings.get("encoder_learned_pos", False))
    max_positions = [settings.get(f"max_{side}_positions", 1024) for side in ("source", "target")]
    if learned:
        max_positions = []
        for side in ("encoder", "decoder"):
            table_rows, _ = _shape(path, named, f"{side}.embed_positions.weight")
            max_positions.append(table_rows - FIRST_POSITION)
    n_heads = settings.get("encoder_attention_heads")
    if type(n_heads) is not int or n_heads < 1 or d_model % n_heads:
        raise UserError(
            f"{path} has {quote(n_heads)} attention heads for d_model = {d_model:,}; d_model must "
            "be a multiple of the number of heads"
        )
    values = {
        "n_layers": n_layers,
        "n_decoder_layers": None if n_decoder_layers == n_layers else n_decoder_layers,
        "d_model": d_model,
        "d_ff": d_ff,
        "n_heads": n_heads,
        "d_k": d_model // n_heads,
        "d_v": d_model // n_heads,
        "attention_bias": True,
        "dropout": settings.get("dropout", 0.1),
        "attention_dropout": settings.get("attention_dropout", 0.0),
        "positions": "learned" if learned else "fairseq",
        # -1 for a setting that is not a number: it is refused
        "max_positions": min(max_positions, key=lambda n: n if type(n) is int else -1),
        "norm": "pre" if settings.get("encoder_normalize_before") else "post",
        "layer_norm_epsilon": 1e-5,
        "tie_embeddings": False,
        # For any smaller vocabulary, `embedding_rows` returns this number of rows: the recipe of a
        # fine-tuning has the fillers, too.
        "vocabulary_multiple": n_rows,
    }
    try:
        return Description(config=ModelConfig.model_validate(values), n_rows=n_rows)
    except ValidationError as error:
        raise UserError(
            f"{path} has a model that cannot be imported ({first_problem(error)})"
        ) from None


def _shape(path: Path, named: Mapping[str, Tensor], key: str) -> tuple[int, int]:
    """Return the shape of a matrix of a checkpoint.

    Args:
        path: The checkpoint, for messages.
        named: Its weights by fairseq's names.
        key: Name of the matrix.

    Raises:
        UserError: It does not exist, or is not a matrix.
    """
    weight = named.get(key)
    if weight is None or weight.dim() != 2 or not weight.numel():
        raise UserError(f"{path} is not a Transformer of fairseq: it has no matrix {key}")
    return weight.shape[0], weight.shape[1]


def _weight(path: Path, named: dict[str, Tensor], name: str, shape: tuple[int, ...]) -> Tensor:
    """Return one of our weights, and remove its parts from the weights of a checkpoint.

    Args:
        path: The checkpoint, for messages.
        named: Its weights by fairseq's names.

    Raises:
        UserError: A part is missing, or has another shape.
    """
    parts = []
    for part_name in part_names(name):
        if part_name not in named:
            raise UserError(f"{path} is not a Transformer of fairseq: it has no {part_name}")
        parts.append(named.pop(part_name))
    if name in SYMBOL_ROWS:
        # The four symbols are in another order; all further rows are the same.
        (matrix,) = parts
        parts = [matrix[row : row + 1] for row in SYMBOL_ROWS[name]]
        parts.append(matrix[len(SYMBOLS) :])
    elif name.endswith(".positions"):
        parts = [parts[0][FIRST_POSITION:]]
    n_rows = sum(len(part) for part in parts)
    if n_rows != shape[0] or any(part.shape[1:] != shape[1:] for part in parts):
        found = " and ".join(str(tuple(part.shape)) for part in parts)
        raise UserError(
            f"{path} is not a Transformer of the paper: {name} would have shape {found}, not "
            f"{shape}"
        )
    return torch.cat(parts).float()
