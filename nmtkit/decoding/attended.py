"""What a model attends to in a sentence and in its translation.

The weights are computed again from the queries and keys of each layer: the model is left alone.
Dimensions: N layers, H heads, Ls source and Lt target tokens; width K = d_k.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nmtkit.model.attention import attention_weights, self_attention_mask
from nmtkit.model.packing import Layout
from nmtkit.model.transformer import CrossAttention, SelfAttention, Transformer, split_heads


@dataclass(frozen=True)
class Attended:
    """The weights of all attention; those of a query (second to last dimension) sum to 1."""

    encoder: Tensor  # (N, H, Ls, Ls)
    decoder: Tensor  # (N, H, Lt, Lt)
    cross: Tensor  # (N, H, Lt, Ls), of the decoder to the encoder's output


@torch.inference_mode()
def attended(model: Transformer, src: Sequence[int], tgt_in: Sequence[int]) -> Attended:
    """Run a model on one sentence and return its weights.

    Args:
        model: The model.
        src: The token ids of a sentence, with the EOS.
        tgt_in: What its decoder reads: the BOS and the token ids of a translation.
    """
    model.eval()
    device = model.output_matrix.device
    src_layout, tgt_layout = (Layout.of_lengths([len(ids)]).to(device) for ids in (src, tgt_in))
    with _inputs(model) as inputs:
        memory = model.encode(torch.tensor(src, device=device), src_layout)
        model.decode(torch.tensor(tgt_in, device=device), tgt_layout, memory, src_layout)
    found: dict[str, list[Tensor]] = {"encoder": [], "decoder": [], "cross": []}
    for module, x in inputs:
        if isinstance(module, CrossAttention):
            q, k = split_heads(module.q(x), module.heads), module.keys_values(memory)[0]
            kind, mask = "cross", None
        else:
            assert isinstance(module, SelfAttention)
            q, k, _ = module.project(x)
            kind = "decoder" if module.causal else "encoder"
            mask = self_attention_mask(
                len(x), causal=module.causal, neighbourhood=module.neighbourhood, device=device
            )
        q, k = q.float().transpose(0, 1), k.float().transpose(0, 1)  # (H, L, K)
        found[kind].append(attention_weights(q, k, mask).cpu())
    return Attended(*(torch.stack(found[kind]) for kind in ("encoder", "decoder", "cross")))


@contextmanager
def _inputs(model: Transformer) -> Iterator[list[tuple[nn.Module, Tensor]]]:
    """Record what all attention reads meanwhile, in the order of the layers."""
    inputs: list[tuple[nn.Module, Tensor]] = []
    hooks = [
        module.register_forward_pre_hook(lambda module, args: inputs.append((module, args[0])))
        for module in model.modules()
        if isinstance(module, SelfAttention | CrossAttention)
    ]
    try:
        yield inputs
    finally:
        for hook in hooks:
            hook.remove()
