"""The gradient of a micro-batch, eager, compiled or replayed from CUDA graphs."""

import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn

from nmtkit.fast.graphs import capture, warm_up
from nmtkit.fast.weight_copies import WeightCopies
from nmtkit.model.transformer import Transformer
from nmtkit.training.acceleration import Level
from nmtkit.training.bins import bin_batch
from nmtkit.training.loss import Losses, Softmax, smoothed_cross_entropy, softmax_
from nmtkit.training.micro_batches import Batch

MAX_ERROR = 0.02  # of a replayed gradient, relative to its norm: rounding is far below


class Gradients:
    """Computes the gradients of micro-batches, which are added up in `grad` of the parameters."""

    def __init__(self, model: Transformer, label_smoothing: float, level: Level) -> None:
        """Compile what `level` allows; nothing is compiled before the first micro-batch.

        Args:
            model: An accelerated model.
            label_smoothing: Of section 5.4.
            level: How the operations are run. Above EAGER, micro-batches are filled bins of one
                shape.
        """
        self.model = model
        self.parameters = list(model.parameters())
        self.label_smoothing = label_smoothing
        self.level = level
        dtype = model.tgt_embedding.dtype
        self.copies = None if dtype == torch.float32 else WeightCopies(model, dtype)
        self._softmax: Softmax = None
        self._graphs: _Graphs | None = None
        if level >= Level.COMPILED:
            torch.compiler.reset()  # code for other shapes would count against a limit
            # The compiler suggests TF32, but float32 shall be exact.
            warnings.filterwarnings("ignore", "TensorFloat32 tensor cores")
            self._softmax = torch.compile(softmax_, fullgraph=True, dynamic=False)
            model.keys_values = torch.compile(model.keys_values, fullgraph=True, dynamic=False)
            # Layers of one kind share their code.
            embeddings = [model.src_embedding, model.tgt_embedding]
            for module in [*embeddings, *model.encoder, *model.decoder]:
                module.compile(fullgraph=True, dynamic=False)
        # Partial sums over the 25,000 tokens of an update must not be rounded to 16 bits.
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False

    def clear(self) -> None:
        """Let the next micro-batch write its gradient, instead of adding it to zeros."""
        if self._graphs is not None:
            self._graphs.is_first = True
            return
        for parameter in self.parameters:
            parameter.grad = None

    def add(self, batch: Batch | Tensor, scale: Tensor) -> Tensor:
        """Add `scale` times the gradient of a micro-batch.

        Args:
            batch: Packed sentence pairs, or filled bins (7, B, L).
            scale: Factor of the gradient, a float64 scalar on the device.

        Returns:
            The smoothed loss and the negative log-likelihood, summed over target tokens: (2,)
            float64, not scaled. On a GPU they are still being computed.
        """
        if self._graphs is not None:
            assert isinstance(batch, Tensor)
            return self._graphs.replay(batch, scale)
        return self._compute(batch, scale)

    def capture(self, bins: Tensor) -> None:
        """Capture CUDA graphs, and compare their results with those of the code that was captured.

        Args:
            bins: Filled bins (7, B, L) on the GPU; those of all later micro-batches have this
                shape.

        Raises:
            RuntimeError: The replayed loss or gradient differs by more than rounding.
        """
        # The same seed twice: dropout must be the same in both.
        self.clear()
        torch.manual_seed(0)
        scale = torch.ones((), dtype=torch.float64, device=bins.device)
        expected_losses = self.add(bins, scale)
        expected = self._cloned()
        self.clear()
        self._graphs = _Graphs(self._compute, self.parameters, bins)
        self.clear()
        torch.manual_seed(0)
        losses = self.add(bins, scale)
        differences = []
        for gradient, expected_gradient in zip(self._cloned(), expected, strict=True):
            differences.append(gradient - expected_gradient)
        # A replay may add in another order, so that its gradient differs by rounding.
        norm = nn.utils.get_total_norm(expected)
        error = (nn.utils.get_total_norm(differences) / norm).item()
        if not (torch.allclose(losses, expected_losses, rtol=1e-3) and error < MAX_ERROR):
            raise RuntimeError(
                f"the CUDA graph computes a loss of {losses[0].item():.6g} instead of "
                f"{expected_losses[0].item():.6g}, and its gradient is {error:.1%} off"
            )

    def _cloned(self) -> list[Tensor]:
        """Return copies of the gradients, all of which must be there."""
        gradients = []
        for parameter in self.parameters:
            assert parameter.grad is not None
            gradients.append(parameter.grad.clone())
        return gradients

    def _compute(self, batch: Batch | Tensor, scale: Tensor) -> Tensor:
        """Run both passes on a micro-batch; `scale` is a scalar on the device."""
        losses = batch_losses(self.model, batch, self.label_smoothing, self._softmax, self.copies)
        # The loss is scaled through its gradient, so that the returned losses are not.
        losses.smoothed.backward(scale)  # type: ignore[no-untyped-call]
        return torch.stack(losses).detach()


class _Graphs:
    """Two CUDA graphs: of an update's first micro-batch, and of those that add to its gradient.

    The first writes gradients to memory that the others and the optimizer then use.
    """

    def __init__(
        self,
        compute: Callable[[Tensor, Tensor], Tensor],
        parameters: list[nn.Parameter],
        bins: Tensor,
    ) -> None:
        """Capture `compute(bins, scale)`, which adds to the gradients and returns (2,) losses."""
        self.is_first = True
        self._bins = bins.clone()  # replays read these two
        self._scale = torch.ones((), dtype=torch.float64, device=bins.device)
        self._losses: list[Tensor] = []

        def run() -> None:
            self._losses.append(compute(self._bins, self._scale))

        # The first capture must find no gradients, so that it writes instead of adding.
        stream = warm_up(run)
        self._losses.clear()
        for parameter in parameters:
            parameter.grad = None
        self._first = capture(run, stream)
        self._next = capture(run, stream, self._first.pool())

    def replay(self, bins: Tensor, scale: Tensor) -> Tensor:
        """Replay a graph on other bins of the same shape.

        Args:
            bins: Filled bins (7, B, L).
            scale: Factor of the gradient, a float64 scalar on the device.

        Returns:
            The losses (2,).
        """
        self._bins.copy_(bins)
        self._scale.copy_(scale)
        if self.is_first:
            self._first.replay()
            losses = self._losses[0]
        else:
            self._next.replay()
            losses = self._losses[1]
        self.is_first = False
        # The next replay overwrites them.
        return losses.clone()


def batch_losses(
    model: Transformer,
    batch: Batch | Tensor,
    label_smoothing: float,
    softmax: Softmax = None,
    copies: WeightCopies | None = None,
) -> Losses:
    """Compute the losses of a micro-batch, summed over target tokens.

    Args:
        model: The model, in training or in evaluation mode.
        batch: Packed sentence pairs, or filled bins (7, B, L).
        label_smoothing: Of section 5.4.
        softmax: `softmax_`, compiled; None: the softmax of torch.
        copies: Matrices of the model in 16 bits; None: they are cast at each use.
    """
    if isinstance(batch, Tensor):
        batch = bin_batch(batch)
    forward = model if copies is None else copies.forward
    hidden = forward(batch.src, batch.src_layout, batch.tgt_in, batch.tgt_layout)
    d_model = hidden.shape[-1]
    return smoothed_cross_entropy(
        hidden.reshape(-1, d_model),
        model.output_matrix,
        batch.tgt_out.reshape(-1),
        label_smoothing,
        softmax,
        model.output_bias,
        None if copies is None else copies.output_matrix,
    )
