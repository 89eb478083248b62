"""Matrices of a model in 16 bits, cast once per update instead of at each use."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx
from torch.func import functional_call

from nmtkit.model.transformer import Linear, Transformer


class WeightCopies:
    """Copies of the float32 matrices that a model multiplies with, in the precision of its layers.

    The gradients are those of the float32 matrices. The copies keep their addresses, which CUDA
    graphs need. Vectors are cast where they are used, because that costs next to nothing.
    """

    def __init__(self, model: Transformer, dtype: torch.dtype) -> None:
        """Copy the present weights.

        Args:
            model: A model whose embeddings have the data type `dtype`.
            dtype: Data type of the copies.
        """
        self._model = model
        self._weights = dict(_matrices(model))
        self._copies = {}
        for name, weight in self._weights.items():
            self._copies[name] = weight.detach().to(dtype)
        self.output_matrix = model.output_matrix.detach().to(dtype)  # (V, D)

    @torch.no_grad()
    def refresh(self) -> None:
        """Copy the weights again. To be called before each update."""
        copies = [*self._copies.values(), self.output_matrix]
        torch._foreach_copy_(copies, [*self._weights.values(), self._model.output_matrix])

    def forward(self, *arguments: object) -> Tensor:
        """Call the model with the copies in place of its matrices."""
        matrices = {}
        for name, weight in self._weights.items():
            matrices[name] = _UseCopy.apply(weight, self._copies[name])  # type: ignore[no-untyped-call]
        hidden: Tensor = functional_call(self._model, matrices, arguments, tie_weights=False)
        return hidden


class _UseCopy(torch.autograd.Function):
    """A cast of a weight whose result is there already."""

    @staticmethod
    def forward(_ctx: FunctionCtx, _weight: Tensor, copy: Tensor) -> Tensor:
        return copy.view_as(copy)

    @staticmethod
    def backward(_ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient.float(), None


def _matrices(model: Transformer) -> Iterator[tuple[str, Tensor]]:
    """Yield the names and weights of all projections."""
    for name, module in model.named_modules():
        if isinstance(module, Linear):
            yield f"{name}.weight", module.weight
