"""Weights of a model in 16 bits, cast once per update instead of at each use."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.func import functional_call

from nmtkit.model.transformer import LayerNorm, Linear, Transformer


class WeightCopies:
    """Copies of a model's float32 weights in the precision of its layers.

    A backward pass leaves its gradient at the copies. `add_gradients` adds it to that of the
    weights, all at once: on a GPU, one by one would take 200 small kernels. The copies keep their
    addresses, which CUDA graphs need.
    """

    def __init__(self, model: Transformer, dtype: torch.dtype) -> None:
        """Copy the present weights of projections and LayerNorms.

        Args:
            model: A model whose embeddings have the data type `dtype`.
            dtype: Data type of the copies.
        """
        self._model = model
        named_weights = dict(_layer_weights(model))
        self.weights = list(named_weights.values())
        self._copies: dict[str, Tensor] = {}
        for name, weight in named_weights.items():
            self._copies[name] = weight.detach().to(dtype).requires_grad_()
        self.output_matrix = model.output_matrix.detach().to(dtype)  # (V, D), without a gradient

    @torch.no_grad()
    def refresh(self) -> None:
        """Copy the weights again. To be called before each update."""
        copies = [*self._copies.values(), self.output_matrix]
        torch._foreach_copy_(copies, [*self.weights, self._model.output_matrix])

    def forward(self, *arguments: object) -> Tensor:
        """Call the model with the copies in place of its weights."""
        hidden: Tensor = functional_call(self._model, self._copies, arguments, tie_weights=False)
        return hidden

    def add_gradients(self, flat: Tensor | None) -> None:
        """Add the gradients of the copies to those of the weights, and clear them.

        Args:
            flat: The gradients of all `weights`, one after the other (N,) float32; None: each
                weight has its own, or none yet.
        """
        copies = list(self._copies.values())
        gradients = [copy.grad for copy in copies if copy.grad is not None]
        for copy in copies:
            copy.grad = None
        if flat is not None:
            flat.add_(torch.cat([gradient.flatten() for gradient in gradients]))
            return
        for weight, gradient in zip(self.weights, gradients, strict=True):
            if weight.grad is None:
                weight.grad = gradient.float()
            else:
                weight.grad.add_(gradient)


def _layer_weights(model: Transformer) -> Iterator[tuple[str, Tensor]]:
    """Yield the names and weights of all projections and LayerNorms."""
    for name, module in model.named_modules():
        if isinstance(module, Linear | LayerNorm):
            for weight_name, weight in module.named_parameters():
                yield f"{name}.{weight_name}", weight
