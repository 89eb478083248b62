"""A stand-in on the CPU for CUDA graphs, which record every operation of torch.

As with a real graph, a replay runs no Python, reads and writes the tensors of the capture, and
draws new random numbers. What a capture forbids fails here too: reading a value from the device,
copying one to it, and shapes that depend on values.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

FORBIDDEN = (
    torch.ops.aten._local_scalar_dense.default,
    torch.ops.aten.nonzero.default,
    torch.ops.aten.lift_fresh.default,  # torch.tensor
    torch.ops.aten.repeat_interleave.Tensor,
    torch.ops.aten.masked_select.default,
)


class RecordedGraph(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A graph of operations on the CPU."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], list[Any]]] = []
        self.n_replays = 0
        self.captured_in: tuple[Any, ...] = ()  # pool and stream

    def pool(self) -> int:
        """Return a name for the memory of this graph."""
        return id(self)

    def __torch_dispatch__(
        self, func: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run an operation and record it."""
        indices = [leaf for leaf in tree_leaves(args[1:2]) if isinstance(leaf, Tensor)]
        by_mask = "index" in func.__name__ and any(index.dtype == torch.bool for index in indices)
        if func in FORBIDDEN or by_mask:
            raise RuntimeError(f"operation not permitted when stream is capturing: {func}")
        result = func(*args, **(kwargs or {}))
        self._calls.append((func, args, kwargs or {}, tree_leaves(result)))
        return result

    @property
    def results(self) -> list[Any]:
        """Return the results of the last operation."""
        return self._calls[-1][3]

    def replay(self) -> None:
        """Repeat the operations on the same tensors."""
        self.n_replays += 1
        with torch._C._AutoDispatchBelowAutograd():
            for func, args, kwargs, results in self._calls:
                for kept, new in zip(results, tree_leaves(func(*args, **kwargs)), strict=True):
                    if isinstance(kept, Tensor) and not _is_same(kept, new):
                        kept.copy_(new)


def _is_same(kept: Tensor, new: Tensor) -> bool:
    """Whether an operation returns one of its arguments, or a view of it."""
    if torch._C._has_storage(kept):
        return kept.data_ptr() == new.data_ptr()
    return kept is new


class _Stream:
    def wait_stream(self, _other: "_Stream") -> None:
        pass


def record_graphs(monkeypatch: pytest.MonkeyPatch) -> list[RecordedGraph]:
    """Let graphs be recorded on the CPU; return the list that they are added to."""
    recorded: list[RecordedGraph] = []

    def new_graph() -> RecordedGraph:
        recorded.append(RecordedGraph())
        return recorded[-1]

    @contextmanager
    def capture(graph: RecordedGraph, *pool_and_stream: Any, **_options: Any) -> Iterator[None]:
        graph.captured_in = pool_and_stream
        with graph:
            yield

    stand_ins = {
        "CUDAGraph": new_graph,
        "graph": capture,
        "Stream": _Stream,
        "stream": nullcontext,
        "current_stream": _Stream,
        "current_device": lambda: 0,
        "get_rng_state": lambda _device: None,
        "set_rng_state": lambda _state, _device: None,
    }
    for name, stand_in in stand_ins.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    return recorded
