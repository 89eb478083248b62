"""How many tokens of a micro-batch fit into the memory of a device."""

import torch

from nmtkit.config.recipe import ModelConfig
from nmtkit.model.weights import count_parameters

CPU_MAX_TOKENS = 4_096  # per side of a micro-batch
GPU_SHARE = 0.8  # of its memory; the rest is for CUDA, and for what a pass holds for a moment
# Weights, gradients, moments; and weights in 16 bits, or a second gradient of the output matrix
PARAMETER_BYTES = 4 * 4 + 4


def tokens_that_fit(
    device: torch.device, config: ModelConfig, n_rows: int, dtype: torch.dtype
) -> int:
    """Estimate how many tokens per side one forward and backward pass can take at most.

    Args:
        device: Where the pass runs.
        config: The model.
        n_rows: Rows of the embedding matrix.
        dtype: Data type of activations.
    """
    if device.type == "cpu":
        return CPU_MAX_TOKENS
    n_bytes = GPU_SHARE * torch.cuda.get_device_properties(device).total_memory
    n_bytes -= PARAMETER_BYTES * count_parameters(config, n_rows).total
    return max(config.max_positions, int(n_bytes / token_bytes(config, n_rows, dtype)))


def token_bytes(config: ModelConfig, n_rows: int, dtype: torch.dtype) -> int:
    """Return the bytes of a source and a target token: what autograd keeps of them, and logits.

    Attention weights count as if a kernel kept them, which is so in float32 on some GPUs; the
    masks of attention are for the longest sentences.
    """
    heads, size = config.n_heads, dtype.itemsize
    layers = 10 * config.d_model + 6 * heads * (config.d_k + config.d_v) + 2 * config.d_ff
    if config.attention_dropout:
        layers += 3 * heads * config.max_positions
    dropout_masks = 5 * config.d_model if config.dropout else 0  # of bytes
    attention_masks = 3 * config.max_positions * (1 + size)  # once for all layers
    per_layer = layers * size + dropout_masks
    return config.n_layers * per_layer + attention_masks + (4 * config.d_model + n_rows) * size
