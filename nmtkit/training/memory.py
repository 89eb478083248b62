"""The number of tokens of a micro-batch that fit into the memory of a device."""

import torch

from nmtkit.config.model import ModelConfig
from nmtkit.model.weights import count_parameters
from nmtkit.training.bins import bin_lengths

CPU_MAX_TOKENS = 4_096  # per side of a micro-batch
GPU_SHARE = 0.8  # of its memory; the rest is for CUDA and for temporary tensors of a pass
# A weight, its gradient and two moments in 32 bits; and 4 bytes for the copy of a matrix in 16 bits
# and for the gradient of the output matrix, before it is added to the others.
PARAMETER_BYTES = 4 * 4 + 4
NCCL_BYTES = 10**9  # of the library that sums over processes: an allowance, not measured


def max_fitting_tokens(
    device: torch.device,
    config: ModelConfig,
    n_rows: int,
    dtype: torch.dtype,
    n_processes: int = 1,
) -> int:
    """Estimate the maximum number of tokens per side of one forward and backward pass.

    Args:
        device: Device of the pass. The estimate is for an empty GPU; a CPU has a constant.
        n_rows: Rows of the embedding matrix.
        dtype: Data type of activations.
        n_processes: Number of processes that train together.
    """
    if device.type == "cpu":
        return CPU_MAX_TOKENS
    n_bytes = GPU_SHARE * torch.cuda.get_device_properties(device).total_memory
    n_bytes -= PARAMETER_BYTES * count_parameters(config, n_rows).total
    if n_processes > 1:
        n_bytes -= NCCL_BYTES
    return max(config.max_positions, int(n_bytes / token_bytes(config, n_rows, dtype)))


def token_bytes(config: ModelConfig, n_rows: int, dtype: torch.dtype) -> int:
    """Return the bytes that a pair of a source and a target token needs until its backward pass.

    These are the activations that autograd keeps, and the logits. Attention weights are counted if
    they have dropout, as if the kernel kept them, as some do in float32. Attention masks are
    counted for the longest sentences.

    Args:
        n_rows: Rows of the embedding matrix.
        dtype: Data type of activations.
    """
    # Counted in the source of the model; a trial step corrects an estimate that is too high.
    size = dtype.itemsize
    d_heads = config.n_heads * (config.d_k + config.d_v)
    # Sublayers of attention and feed-forward sublayers, by the layers that have them.
    n_attention = config.n_layers + 2 * config.decoder_layers
    n_feed_forward = config.n_layers + config.decoder_layers
    attention_values = 2 * config.d_model + 2 * d_heads
    if config.attention_dropout:
        attention_values += config.n_heads * config.max_positions
    feed_forward_values = 2 * config.d_model + config.d_ff
    layer_bytes = size * (n_attention * attention_values + n_feed_forward * feed_forward_values)
    if config.dropout:
        # Masks of a byte per value
        layer_bytes += (n_attention + n_feed_forward) * config.d_model
    # Three masks, shared by all layers.
    mask_bytes = 3 * bin_lengths(config.max_positions)[-1] * size
    embedding_bytes = 4 * config.d_model * size
    logit_bytes = n_rows * size
    return layer_bytes + mask_bytes + embedding_bytes + logit_bytes
