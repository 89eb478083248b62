"""The FLOPs of training.

Only matrix products are counted. A multiplication and an addition are two operations.
"""

from nmtkit.config.model import ModelConfig
from nmtkit.config.recipe import TrainingConfig
from nmtkit.model.weights import count_parameters

TYPICAL_LENGTH = 30  # subwords in a sentence of news; only attention's small share depends on it


def update_flops(
    config: ModelConfig, n_rows: int, src_tokens: int, tgt_tokens: int, length: int
) -> float:
    """Return the FLOPs of one update.

    The backward pass needs two matrix products for every one of the forward pass.

    Args:
        n_rows: Number of rows of its embeddings.
        src_tokens: Source tokens in the update.
        tgt_tokens: Target tokens in the update.
        length: Typical number of tokens of a sentence, on either side.
    """
    weights = count_parameters(config, n_rows)
    per_pair_of_tokens = 2 * config.n_heads * (config.d_k + config.d_v)  # Q K^T and the sum over V
    seen = min(length, config.neighbourhood or length)  # by self-attention
    # The decoder attends to the target, and to the source.
    encoder_pairs = config.n_layers * seen * src_tokens
    decoder_pairs = config.decoder_layers * (seen + length) * tgt_tokens
    attention = per_pair_of_tokens * (encoder_pairs + decoder_pairs)
    forward = (
        2 * (weights.encoder + weights.memory) * src_tokens
        + 2 * (weights.decoder + weights.output) * tgt_tokens
        + attention
    )
    return 3.0 * forward


def training_flops(config: ModelConfig, training: TrainingConfig, n_rows: int) -> float:
    """Return the FLOPs of a whole training, if its updates are full.

    Args:
        training: The number of updates, and their size.
        n_rows: Number of rows of the embeddings.
    """
    src_tokens, tgt_tokens = training.src_tokens_per_update, training.tgt_tokens_per_update
    update = update_flops(config, n_rows, src_tokens, tgt_tokens, TYPICAL_LENGTH)
    return update * training.max_steps
