"""The gradient of a micro-batch, eager, compiled or replayed from CUDA graphs."""

import warnings
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from nmtkit.fast.graphs import capture, warm_up
from nmtkit.fast.weight_copies import WeightCopies
from nmtkit.model.transformer import Transformer
from nmtkit.training.acceleration import Level
from nmtkit.training.bins import MAX_SHAPES, bin_batch
from nmtkit.training.loss import Losses, Softmax, smoothed_cross_entropy, softmax_
from nmtkit.training.micro_batches import Batch

MAX_ERROR = 0.02  # of a replayed gradient, relative to its norm: rounding is far below


class Gradients:
    """Computes the gradients of micro-batches, which are added up in `grad` of the parameters."""

    def __init__(
        self, model: Transformer, label_smoothing: float, level: Level, *, is_flat: bool = True
    ) -> None:
        """Compile what `level` allows; nothing is compiled before the first micro-batch.

        Args:
            model: An accelerated model.
            label_smoothing: Of section 5.4.
            level: How the operations are run. Above EAGER, micro-batches are filled bins of a few
                shapes.
            is_flat: Keep all gradients in one tensor, which CUDA graphs and sums over processes
                need. Without it, the first micro-batch of an update writes its gradient instead of
                adding it to zeros, which is faster on a CPU.
        """
        self.model = model
        self.parameters = list(model.parameters())
        self.label_smoothing = label_smoothing
        self.level = level
        dtype = model.tgt_embedding.dtype
        self.copies = None if dtype == torch.float32 else WeightCopies(model, dtype)
        self._softmax: Softmax = None
        self._graphs: dict[torch.Size, _Graph] = {}  # by the shape of the filled bins
        self.flat: Tensor | None = None  # all gradients, of which those of parameters are views
        self._flat_of_copies: Tensor | None = None  # its end: those of weights that have copies
        if is_flat:
            copied = [] if self.copies is None else self.copies.weights
            copied_ids = set(map(id, copied))
            others = [weight for weight in self.parameters if id(weight) not in copied_ids]
            self.flat = nn.utils.parameters_to_vector([*others, *copied]).detach().zero_()
            end = 0
            for parameter in [*others, *copied]:
                begin = end
                end += parameter.numel()
                parameter.grad = self.flat[begin:end].view_as(parameter)
            self._flat_of_copies = self.flat[sum(weight.numel() for weight in others) :]
        if level >= Level.COMPILED:
            torch.compiler.reset()  # code for other models would count against a limit
            # A function is compiled for each shape. Of each, there are up to three masks; the loss
            # has a last chunk of another size.
            torch._dynamo.config.recompile_limit = 3 * MAX_SHAPES
            # The compiler suggests TF32, but float32 shall be exact.
            warnings.filterwarnings("ignore", "TensorFloat32 tensor cores")
            self._softmax = torch.compile(softmax_, fullgraph=True, dynamic=False)
            model.mask = torch.compile(model.mask, fullgraph=True, dynamic=False)
            # Layers of one kind share their code. What goes from one compiled module to another is
            # dense: for a view with gaps, the compiler copies the gradient to a tensor with the
            # same gaps. So keys and values leave their projection as one tensor.
            modules = [model.src_embedding, model.tgt_embedding, *model.encoder, *model.decoder]
            modules += [layer.cross_attention.kv for layer in model.decoder]
            for module in modules:
                module.compile(fullgraph=True, dynamic=False)
        # Partial sums over the 25,000 tokens of an update must not be rounded to 16 bits.
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False

    def start_update(self) -> None:
        """Set the gradient to zero, and copy the weights to 16 bits.

        A process without a micro-batch of the update calls this function, too.
        """
        if self.copies is not None:
            self.copies.refresh()
        if self.flat is not None:
            # Graphs only ever add. Zeroing, and reading the zeros, moves 8 bytes per weight.
            self.flat.zero_()
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
        if isinstance(batch, Tensor) and batch.shape in self._graphs:
            return self._graphs[batch.shape].replay(batch, scale)
        return self._compute(batch, scale)

    def capture(self, batches: Sequence[Tensor]) -> None:
        """Capture CUDA graphs, and compare their results with those of the code that was captured.

        The graphs share their memory, so the largest micro-batch should be the first.

        Args:
            batches: Filled bins (7, B, L) on the GPU, one micro-batch of each shape.

        Raises:
            RuntimeError: The replayed loss or gradient differs by more than rounding.
        """
        # All of this comes before the first graph, which keeps its memory. Gradients to compare
        # wait on the host.
        expected = [self._trial(bins) for bins in batches]
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        unit_scale = torch.ones((), dtype=torch.float64, device=batches[0].device)
        for bins in batches:
            warm_up(partial(self._compute, bins, unit_scale), stream)
        pool = None
        graphs: dict[torch.Size, _Graph] = {}
        for bins in batches:
            graph = _Graph(self._compute, bins, stream, pool)
            pool = graph.pool
            graphs[bins.shape] = graph
        self._graphs = graphs

        for bins, (expected_losses, expected_gradient) in zip(batches, expected, strict=True):
            losses, gradient = self._trial(bins)
            # A replay may add in another order, so that its gradient differs by rounding.
            error = ((gradient - expected_gradient).norm() / expected_gradient.norm()).item()
            if not (torch.allclose(losses, expected_losses, rtol=1e-3) and error < MAX_ERROR):
                n_bins, length = bins.shape[1:]
                raise RuntimeError(
                    f"the CUDA graph of {n_bins} x {length} tokens computes a loss of "
                    f"{losses[0].item():.6g} instead of {expected_losses[0].item():.6g}, and its "
                    f"gradient is {error:.1%} off"
                )

    def _trial(self, bins: Tensor) -> tuple[Tensor, Tensor]:
        """Return the losses (2,) of filled bins and their gradient, flat, both on the host.

        The random numbers of dropout are the same in all calls.
        """
        assert self.flat is not None
        self.start_update()
        torch.manual_seed(0)
        losses = self.add(bins, torch.ones((), dtype=torch.float64, device=bins.device))
        return losses.cpu(), self.flat.to("cpu", copy=True)

    def _compute(self, batch: Batch | Tensor, scale: Tensor) -> Tensor:
        """Run both passes on a micro-batch; `scale` is a scalar on the device."""
        losses = batch_losses(self.model, batch, self.label_smoothing, self._softmax, self.copies)
        # The loss is scaled through its gradient, so that the returned losses are not.
        losses.smoothed.backward(scale)  # type: ignore[no-untyped-call]
        if self.copies is not None:
            self.copies.add_gradients(self._flat_of_copies)
        return torch.stack(losses).detach()


class _Graph:
    """A CUDA graph that adds the gradient of a micro-batch of one shape."""

    def __init__(
        self,
        compute: Callable[[Tensor, Tensor], Tensor],
        bins: Tensor,
        stream: torch.cuda.Stream,
        pool: "torch.cuda._POOL_HANDLE | None",
    ) -> None:
        """Capture `compute(bins, scale)`, which adds to the gradients and returns (2,) losses.

        Args:
            compute: The computation, after its warm-up.
            bins: Filled bins (7, B, L) of the shape.
            stream: The stream of the warm-up.
            pool: The memory pool of another graph, to share.
        """
        self._bins = bins.clone()  # replays read these two
        self._scale = torch.ones((), dtype=torch.float64, device=bins.device)

        def run() -> None:
            self._losses = compute(self._bins, self._scale)

        self._graph = capture(run, stream, pool)
        self.pool = self._graph.pool()

    def replay(self, bins: Tensor, scale: Tensor) -> Tensor:
        """Add the gradient of other bins of the same shape.

        Args:
            bins: Filled bins (7, B, L).
            scale: Factor of the gradient, a float64 scalar on the device.

        Returns:
            The losses (2,).
        """
        self._bins.copy_(bins)
        self._scale.copy_(scale)
        self._graph.replay()
        return self._losses.clone()  # the next replay overwrites them


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
        copies: Weights of the model in 16 bits, which receive the gradients; None: they are cast
            at each use.
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
