"""What makes a model fast on a GPU: flash attention over packed rows, and CUDA graphs."""

from collections.abc import Callable
from typing import Generic, TypeVar

import torch
from torch import Tensor

from nmtkit.errors import is_out_of_memory
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


class Graph(Generic[Result]):
    """A computation on the current CUDA device, captured once and replayed many times.

    What `compute` reads must keep its place in memory and its shape. It must not ask the device for
    a value. Random generators stay as they are.
    """

    def __init__(self, compute: Callable[[], Result]) -> None:
        self._graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        # cuBLAS has a workspace for each stream, so the warm-up takes that of the capture.
        with torch.random.fork_rng([torch.cuda.current_device()]), torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                compute()
            try:
                # Other threads may copy batches, or a checkpoint, at the same time.
                with torch.cuda.graph(
                    self._graph, stream=stream, capture_error_mode="thread_local"
                ):
                    self._result = compute()
            except RuntimeError as error:
                # To end a failed capture fails too, and hides that memory ran out.
                if error.__context__ is not None and is_out_of_memory(error.__context__):
                    raise error.__context__ from None
                raise
        torch.cuda.current_stream().wait_stream(stream)

    def replay(self) -> Result:
        """Compute again; the result is at the same addresses as before."""
        self._graph.replay()
        return self._result
