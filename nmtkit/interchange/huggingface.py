"""A model as `transformers.MarianMTModel`, the post-norm Transformer among Hugging Face's classes.

Its LayerNorm has the fixed epsilon 1e-5. A LayerNorm of s z with epsilon s^2 e equals that of z
with epsilon e. So all vectors between the sublayers are multiplied by s, the weights that read them
are divided by s, and the model computes the same, but for rounding.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from nmtkit.corpus.sentencepieces import SentencePieceSubword
from nmtkit.files import share_file, write_json
from nmtkit.interchange.names import check_runs, parts_of
from nmtkit.model.transformer import Transformer
from nmtkit.model.weights import shapes
from nmtkit.recipe import DecodingConfig
from nmtkit.symbols import BOS_ID, EOS_ID, PAD_ID, SPECIALS, UNK_ID
from nmtkit.tensors import save_tensors

MARIAN_EPSILON = 1e-5
SYMBOLS = {
    "bos_token_id": BOS_ID,
    "eos_token_id": EOS_ID,
    "pad_token_id": PAD_ID,
    "decoder_start_token_id": BOS_ID,
}
READERS = re.compile(r"(qkv|\.q|\.kv|w1)\.weight$|^_output$")  # of vectors between sublayers
UNSCALED = re.compile(r"(qkv|\.q|\.kv|w1)\.bias$")


def write_model(
    folder: Path, model: Transformer, n_tokens: int, decoding: DecodingConfig, n_positions: int
) -> None:
    """Write what `MarianMTModel.from_pretrained` loads of a `model` on the CPU.

    Rows of its embeddings beyond the vocabulary, `n_tokens`, are never produced. `generate` divides
    by length ** length_penalty.
    """
    config, n_rows = model.config, len(model.output_matrix)
    check_runs("Hugging Face's Marian", config, ("post",))
    described = {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "activation_function": "relu",
        "d_model": config.d_model,
        "dropout": config.dropout,
        "forced_eos_token_id": None,
        "max_position_embeddings": n_positions,
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": config.tie_embeddings,
        "tie_word_embeddings": config.tie_embeddings,
        "vocab_size": n_rows,
        **SYMBOLS,
    }
    for side in ("encoder", "decoder"):
        described[f"{side}_layers"] = config.n_layers
        described[f"{side}_ffn_dim"] = config.d_ff
        described[f"{side}_attention_heads"] = config.n_heads
    write_json(folder / "config.json", described)
    generation = {
        "length_penalty": decoding.length_penalty,
        "max_length": n_positions,
        "num_beams": decoding.beam_size,
        "suppress_tokens": [PAD_ID, BOS_ID, UNK_ID, *range(n_tokens, n_rows)],
        **SYMBOLS,
    }
    write_json(folder / "generation_config.json", generation)
    weights = {name: tensor.contiguous() for name, tensor in _weights(model, n_positions)}
    save_tensors(weights, folder / "model.safetensors", {"format": "pt"})


def write_tokenizer(
    folder: Path, subword: SentencePieceSubword, langs: tuple[str, str], max_subwords: int
) -> None:
    """Write what `MarianTokenizer.from_pretrained` loads: its ids are those of the model."""
    (model,) = subword.save(folder)
    for name in ("source.spm", "target.spm"):
        share_file(model, folder / name)
    pieces = subword.pieces(range(subword.n_tokens))
    write_json(folder / "vocab.json", {piece: id_ for id_, piece in enumerate(pieces)})
    ids = {"bos": BOS_ID, "eos": EOS_ID, "pad": PAD_ID, "unk": UNK_ID}
    described = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": langs[0],
        "target_lang": langs[1],
        "model_max_length": max_subwords,  # of a source, EOS included
        **{f"{name}_token": SPECIALS[id_] for name, id_ in ids.items()},
    }
    write_json(folder / "tokenizer_config.json", described)


@torch.no_grad()
def _weights(model: Transformer, n_positions: int) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights under their names in MarianMTModel, which has biases everywhere."""
    config, n_rows = model.config, len(model.output_matrix)
    scale = (MARIAN_EPSILON / config.layer_norm_epsilon) ** 0.5
    yield "final_logits_bias", torch.zeros(1, n_rows)
    positions = torch.arange(n_positions)
    for side, embedding in (("encoder", model.src_embedding), ("decoder", model.tgt_embedding)):
        table = embedding.position(positions, n_positions)
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
        parts = parts_of(name)
        for part, chunk in zip(parts, weight.chunk(len(parts)), strict=True):
            yield marians.get(part, f"model.{part}"), chunk
