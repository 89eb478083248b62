"""The order of the dimensions of the vectors between sublayers, which differs in Marian.

In the paper's table of positions, sines and cosines alternate; in Marian's, all sines precede all
cosines. Neither attention nor LayerNorm notices if the dimensions of all vectors between the
sublayers are reordered, so a model changes from one table to the other by reordering its weights.
"""

import re

import torch
from torch import Tensor

# Weights by our names.
EMBEDDINGS = ("src_embedding.weight", "tgt_embedding.weight", "_output")  # one row per token
READERS = re.compile(r"(qkv|\.q|\.kv|w1)\.weight$")  # their columns are those of the vectors
WRITERS = re.compile(r"(out|w2|norm)\.(weight|bias)$")  # their rows are those of the vectors


def sines_first_order(d_model: int) -> Tensor:
    """Return the dimensions of our vectors in Marian's order (d_model,)."""
    return torch.cat([torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)])


def alternating(d_model: int) -> Tensor:
    """Return the dimensions of Marian's vectors in our order (d_model,)."""
    return sines_first_order(d_model).argsort()


def reorder(name: str, weight: Tensor, order: Tensor) -> Tensor:
    """Return a weight whose vectors have their dimensions in another order.

    Args:
        name: Our name of the weight.
        weight: The weight, of any shape.
        order: The dimensions in the new order (d_model,).
    """
    if name in EMBEDDINGS or READERS.search(name):
        return weight[:, order]
    if WRITERS.search(name):
        return weight[order]
    return weight
