"""A CUDA graph: operations that the host launches as one."""

from collections.abc import Callable
from typing import Generic, TypeVar

import torch

from nmtkit.errors import is_out_of_memory

WARM_UP = 3  # runs before the capture: they compile, and allocate what is allocated once

Result = TypeVar("Result")


class Graph(Generic[Result]):
    """A computation on the current CUDA device, captured once and replayed many times.

    Each replay reads and writes the same addresses: what `compute` reads must keep its place in
    memory, and its shape. `compute` must not ask the device for a value.
    """

    def __init__(self, compute: Callable[[], Result]) -> None:
        """Run `compute` `WARM_UP` times, then capture it. Random generators stay as they are.

        Raises:
            RuntimeError: As `compute`, also if only its capture fails.
        """
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
