"""CUDA graphs: the kernels of a computation, launched as one."""

from collections.abc import Callable

import torch

WARM_UP_RUNS = 3  # before a capture: they compile, and allocate what is allocated once


def warm_up(compute: Callable[[], object], stream: torch.cuda.Stream) -> None:
    """Run a computation on the stream on which it will be captured.

    cuBLAS has a workspace for each stream: the warm-up allocates that of the captures. The random
    generators stay as they are.
    """
    stream.wait_stream(torch.cuda.current_stream())
    with torch.random.fork_rng([torch.cuda.current_device()]), torch.cuda.stream(stream):
        for _ in range(WARM_UP_RUNS):
            compute()
    torch.cuda.current_stream().wait_stream(stream)


def capture(
    compute: Callable[[], object],
    stream: torch.cuda.Stream,
    pool: "torch.cuda._POOL_HANDLE | None" = None,
) -> torch.cuda.CUDAGraph:
    """Capture a computation in a CUDA graph without running it.

    A replay reads and writes the tensors that the capture read and wrote. The computation must not
    wait for the device.

    Args:
        compute: The computation, after a `warm_up`.
        stream: The stream of the warm-up.
        pool: Memory pool of an earlier graph to share, if the two are never replayed at a time.
    """
    graph = torch.cuda.CUDAGraph()
    # Another thread may copy a batch or a checkpoint at the same time: its calls are allowed.
    with torch.cuda.graph(graph, pool, stream, capture_error_mode="thread_local"):
        compute()
    return graph
