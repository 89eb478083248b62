"""The cost of training: parameters and FLOPs.

Only matrix products are counted. A multiplication and an addition are two operations.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from nmtkit.recipe import ModelConfig, TrainingConfig

TYPICAL_LENGTH = 30  # subwords in a sentence of news; only attention's small share depends on it


@dataclass(frozen=True)
class Parameters:
    """Number of weights, grouped by the tokens that are multiplied with them."""

    encoder: int  # matrices applied to each source token
    memory: int  # the same in the decoder: keys and values of cross-attention
    decoder: int  # matrices applied to each target token, without the output matrix
    output: int  # the pre-softmax matrix
    total: int  # all weights, including norms, biases and embeddings


def count_parameters(config: ModelConfig, n_rows: int) -> Parameters:
    """Count the weights of a model with `n_rows` embedding rows (last column of Table 3)."""
    d_model, n_layers = config.d_model, config.n_layers
    queries = d_model * config.n_heads * config.d_k
    keys_values = d_model * config.n_heads * (config.d_k + config.d_v)
    out = d_model * config.n_heads * config.d_v
    attention = queries + keys_values + out
    feed_forward = 2 * d_model * config.d_ff
    biases = 2 * (config.d_ff + d_model)
    if config.attention_bias:  # self-attention on both sides, and cross-attention
        biases += 3 * (config.n_heads * (2 * config.d_k + config.d_v) + d_model)
    norm = 2 * d_model
    encoder = n_layers * (attention + feed_forward)
    memory = n_layers * keys_values
    decoder = n_layers * (attention + queries + out + feed_forward)
    norms = n_layers * 5 + (2 if config.norm == "pre" else 0)
    matrices = 1 if config.tie_embeddings else 3
    positions = 0
    if config.positions == "learned":
        positions = 2 * config.max_positions * d_model  # one table for each side
    total = (
        encoder
        + memory
        + decoder
        + n_layers * biases
        + norms * norm
        + matrices * n_rows * d_model
        + positions
    )
    return Parameters(encoder, memory, decoder, n_rows * d_model, total)


def update_flops(
    config: ModelConfig, n_rows: int, src_tokens: int, tgt_tokens: int, length: int
) -> float:
    """Return the FLOPs of one update for sentences of about `length` tokens on each side.

    The backward pass needs two matrix products for each one of the forward pass.
    """
    weights = count_parameters(config, n_rows)
    per_pair_of_tokens = 2 * config.n_heads * (config.d_k + config.d_v)  # Q K^T and the sum over V
    seen = min(length, config.neighbourhood or length)  # by self-attention
    pairs = seen * (src_tokens + tgt_tokens) + length * tgt_tokens
    attention = config.n_layers * per_pair_of_tokens * pairs
    forward = (
        2 * (weights.encoder + weights.memory) * src_tokens
        + 2 * (weights.decoder + weights.output) * tgt_tokens
        + attention
    )
    return 3.0 * forward


def training_flops(config: ModelConfig, training: TrainingConfig, n_rows: int) -> float:
    """Return the FLOPs of a whole training, if its updates are full."""
    src_tokens, tgt_tokens = training.src_tokens_per_update, training.tgt_tokens_per_update
    update = update_flops(config, n_rows, src_tokens, tgt_tokens, TYPICAL_LENGTH)
    return update * training.max_steps


def translation_flops(
    config: ModelConfig,
    n_rows: int,
    src_lengths: Sequence[int],
    tgt_lengths: Sequence[int],
    beam_size: int,
) -> float:
    """Return the FLOPs of a beam search that takes one step for each token of its best hypothesis.

    Args:
        config: The model.
        n_rows: Number of rows of its output matrix.
        src_lengths: Number of tokens of each source, EOS included.
        tgt_lengths: Number of tokens of each best hypothesis, EOS included.
        beam_size: Number of beams, of which the first step has only one.
    """
    weights = count_parameters(config, n_rows)
    per_pair_of_tokens = 2 * config.n_layers * config.n_heads * (config.d_k + config.d_v)
    total = 0.0
    for n_src, n_tgt in zip(src_lengths, tgt_lengths, strict=True):
        n_tokens = 1 + (n_tgt - 1) * beam_size  # of all beams
        total += 2 * (weights.encoder + weights.memory) * n_src
        total += 2 * (weights.decoder + weights.output) * n_tokens
        total += per_pair_of_tokens * (n_src**2 + n_tokens * (n_src + n_tgt / 2))
    return total
