"""A model as `transformers.MarianMTModel`, the post-norm Transformer among Hugging Face's classes.

Its LayerNorm has the fixed epsilon 1e-5. A LayerNorm of s z with epsilon s^2 e equals that of z
with epsilon e. So all vectors between the sublayers are multiplied by s, the weights that read them
are divided by s, and the model computes the same, but for rounding.

Programs that read Marian's models begin with a vector of zeros at their last row, `<pad>`, which
they may cut off. So such a row is added, and the decoder's first position contains our `<s>`.
"""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from nmtkit.corpus.subword import Subword
from nmtkit.errors import UserError
from nmtkit.files import write_json
from nmtkit.interchange.names import check_runs, parts_of
from nmtkit.model.transformer import Transformer
from nmtkit.model.weights import shapes
from nmtkit.recipe import DecodingConfig
from nmtkit.symbols import BOS_ID, EOS_ID, PAD_ID, SPECIALS, UNK_ID
from nmtkit.tensors import save_tensors

MARIAN_EPSILON = 1e-5
# What the files contain whatever the model, and the two pipelines of tokenizers.
FILES: dict[str, Any] = json.loads(Path(__file__).with_name("huggingface.json").read_bytes())
NEVER = -1e9  # a logit
BYTE = re.compile("<0x..>$")  # a piece
EMBEDDINGS = ("src_embedding.weight", "tgt_embedding.weight", "_output")  # one row a token
READERS = re.compile(r"(qkv|\.q|\.kv|w1)\.weight$|^_output$")  # of vectors between sublayers
UNSCALED = re.compile(r"(qkv|\.q|\.kv|w1)\.bias$")


def write_model(
    folder: Path,
    model: Transformer,
    n_tokens: int,
    decoding: DecodingConfig,
    max_subwords: int,
    n_positions: int,
) -> None:
    """Write what `MarianMTModel.from_pretrained` loads of a `model` on the CPU.

    Its ids are ours, but for `<pad>`, the last one. Rows of the embeddings beyond the vocabulary,
    `n_tokens`, are never produced. `generate` divides by length ** length_penalty, and ends where
    the translation of a source of `max_subwords` would.
    """
    config, n_rows = model.config, len(model.output_matrix)
    check_runs("Hugging Face's Marian", config, ("post",))
    symbols = {"eos": EOS_ID, "pad": n_rows, "decoder_start": n_rows}
    symbol_ids = {f"{name}_token_id": id_ for name, id_ in symbols.items()}
    described = {
        **FILES["config.json"],
        "d_model": config.d_model,
        "dropout": config.dropout,
        "max_position_embeddings": n_positions,
        "share_encoder_decoder_embeddings": config.tie_embeddings,
        "tie_word_embeddings": config.tie_embeddings,
        "vocab_size": n_rows + 1,
        **symbol_ids,
    }
    for side in ("encoder", "decoder"):
        described[f"{side}_layers"] = config.n_layers
        described[f"{side}_ffn_dim"] = config.d_ff
        described[f"{side}_attention_heads"] = config.n_heads
    write_json(folder / "config.json", described)
    generation = {
        "length_penalty": decoding.length_penalty,
        "max_length": min(n_positions, max_subwords + decoding.max_extra_tokens + 1),
        "num_beams": decoding.beam_size,
        "suppress_tokens": [PAD_ID, BOS_ID, UNK_ID, *range(n_tokens, n_rows + 1)],
        **symbol_ids,
    }
    write_json(folder / "generation_config.json", generation)
    weights = {name: tensor.contiguous() for name, tensor in _weights(model, n_positions)}
    save_tensors(weights, folder / "model.safetensors", {"format": "pt"})


def write_tokenizer(folder: Path, subword: Subword, n_rows: int, max_subwords: int) -> None:
    """Write what `AutoTokenizer.from_pretrained` loads, with the ids of the model.

    Of our sentencepieces, it reads what `Tokenization.tokenize` makes, or raw text if that only
    collapses spaces; else the subwords, separated by spaces. "</s>" in a text is no symbol.
    """
    pieces = [*subword.pieces(range(subword.n_tokens)), *[""] * (n_rows - subword.n_tokens)]
    for id_ in (PAD_ID, BOS_ID, *range(subword.n_tokens, n_rows)):
        pieces[id_] = f"<unused {id_}>"
    ids = {piece: id_ for id_, piece in enumerate([*pieces, SPECIALS[PAD_ID]])}
    if len(ids) <= n_rows:
        raise UserError(
            f"a subword is called like one of the symbols {' '.join(SPECIALS)}; tokenizers of "
            "Hugging Face cannot tell the two apart"
        )
    described = {**FILES["tokenizer_config.json"], "model_max_length": max_subwords}
    write_json(folder / "tokenizer_config.json", described)
    tokenizer = FILES["subwords" if subword.counts else "sentencepiece"]
    merges = {} if subword.counts else {"merges": _merges(pieces)}
    model = {**tokenizer["model"], **merges, "vocab": ids}
    write_json(folder / "tokenizer.json", {**tokenizer, "model": model})


def _merges(pieces: Sequence[str]) -> list[str]:
    """Return the pairs that sentencepiece merges: first those that make the piece learned first."""
    known = {piece for piece in pieces[len(SPECIALS) :] if not BYTE.match(piece)}
    return [
        f"{piece[:k]} {piece[k:]}"
        for piece in pieces
        for k in range(1, len(piece))
        if known.issuperset((piece, piece[:k], piece[k:]))
    ]


@torch.no_grad()
def _weights(model: Transformer, n_positions: int) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights under their names in MarianMTModel, which has biases everywhere."""
    config, n_rows = model.config, len(model.output_matrix)
    scale = (MARIAN_EPSILON / config.layer_norm_epsilon) ** 0.5
    yield "final_logits_bias", torch.zeros(1, n_rows + 1).index_fill(1, torch.tensor(n_rows), NEVER)
    positions = torch.arange(n_positions)
    for side, embedding in (("encoder", model.src_embedding), ("decoder", model.tgt_embedding)):
        table = embedding.position(positions, n_positions)
        if side == "decoder":
            table[0] += embedding.weight[BOS_ID] * config.d_model**0.5
        yield f"model.{side}.embed_positions.weight", table * scale
    ours = dict(model.named_parameters())
    marians = {"decoder.output_projection.weight": "lm_head.weight"}
    if config.tie_embeddings:
        marians["decoder.embed_tokens.weight"] = "model.shared.weight"
    # The last norm is read by the output matrix, which is `scale` times ours if it is tied.
    last = f"decoder.{config.n_layers - 1}.residuals.2." if config.tie_embeddings else "none"
    biased = config.model_copy(update={"attention_bias": True, "positions": "sinusoid"})
    for name, shape in shapes(biased, n_rows):
        weight = ours.get(name, torch.zeros(shape))
        if READERS.search(name) or name.startswith(last):
            weight = weight / scale
        elif not UNSCALED.search(name):
            weight = weight * scale
        if name in EMBEDDINGS:
            weight = pad(weight, (0, 0, 0, 1))
        parts = parts_of(name)
        for part, chunk in zip(parts, weight.chunk(len(parts)), strict=True):
            yield marians.get(part, f"model.{part}"), chunk
