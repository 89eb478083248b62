"""What makes a model fast on a GPU: flash attention over packed rows, and CUDA graphs."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from nmtkit.fast.packing import PackedMask

MAX_FLASH_WIDTH = 256  # maximum head width of flash attention 2
WARM_UP = 3  # runs before the capture: they compile, and allocate what is allocated once

Result = TypeVar("Result")


def has_flash_attention(
    device: torch.device, dtype: torch.dtype, d_k: int, d_v: int, dropout: float
) -> bool:
    """Return whether torch's kernel supports these inputs; its gradient is not deterministic."""
    is_wide_enough = d_k == d_v <= MAX_FLASH_WIDTH and d_k % 8 == 0
    is_supported = dtype == torch.bfloat16 and is_wide_enough and dropout == 0.0
    return device.type == "cuda" and is_supported


def flash_attention(q: Tensor, k: Tensor, v: Tensor, mask: PackedMask) -> Tensor:
    """Compute equation 1 for queries (T, H, K), keys (S, H, K) and values (S, H, K): (T, H, K)."""
    from torch.nn.attention.varlen import varlen_attn  # imports torch's compiler

    before, after = mask.window
    attended = varlen_attn(
        q,
        k,
        v,
        mask.queries.cu_seqlens,
        mask.keys.cu_seqlens,
        mask.queries.max_seqlen,
        mask.keys.max_seqlen,
        window_size=(-1 if before is None else before, -1 if after is None else after),
    )
    assert isinstance(attended, Tensor)
    return attended


def capture(computations: Sequence[Callable[[], Result]]) -> list[Callable[[], Result]]:
    """Capture each computation in a CUDA graph, and return what replays each.

    A result keeps its addresses. The graphs share memory: a replay spoils the results of the
    others. What they read must keep its place in memory and its shape. They must not ask the device
    for a value. Random generators stay as they are.
    """
    graphs: list[tuple[torch.cuda.CUDAGraph, Result]] = []
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    # cuBLAS has a workspace for each stream, so the warm-up takes that of the captures. It comes
    # before all of them, whose memory it cannot use.
    with torch.random.fork_rng([torch.cuda.current_device()]), torch.cuda.stream(stream):
        for compute in WARM_UP * [*computations]:
            compute()
        for compute in computations:
            graph = torch.cuda.CUDAGraph()
            pool = graphs[0][0].pool() if graphs else None
            # Other threads may copy batches, or a checkpoint, at the same time.
            with torch.cuda.graph(graph, pool, stream, capture_error_mode="thread_local"):
                graphs.append((graph, compute()))
    torch.cuda.current_stream().wait_stream(stream)
    return [partial(_replay, *each) for each in graphs]


def _replay(graph: torch.cuda.CUDAGraph, result: Result) -> Result:
    graph.replay()
    return result
