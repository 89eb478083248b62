"""The chunked loss against torch's."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from nmtkit.training import loss
from nmtkit.training.loss import NO_TARGET, smoothed_cross_entropy

T = 11
D = 5
V = 17


@pytest.fixture(params=[1, 4, 11, 512])
def chunk_tokens(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Chunks of one token, with a remainder, as long as the batch, and longer than it."""
    monkeypatch.setitem(loss.CHUNK_TOKENS, "cpu", request.param)
    return int(request.param)


def example(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    hidden = torch.randn(T, D, dtype=dtype, generator=generator).requires_grad_()
    matrix = torch.randn(V, D, dtype=dtype, generator=generator).requires_grad_()
    return hidden, matrix, torch.randint(V, (T,), generator=generator)


def gradients(loss: Tensor, *leaves: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss, leaves)


@pytest.mark.usefixtures("chunk_tokens")
@pytest.mark.parametrize("eps", [0.0, 0.1])
def test_loss_equals_torch(eps: float) -> None:
    hidden, matrix, targets = example()
    expected = F.cross_entropy(hidden @ matrix.t(), targets, label_smoothing=eps, reduction="sum")
    losses = smoothed_cross_entropy(hidden, matrix, targets, eps)
    torch.testing.assert_close(losses.smoothed, expected, rtol=1e-12, atol=1e-12)
    for ours, theirs in zip(
        gradients(losses.smoothed, hidden, matrix), gradients(expected, hidden, matrix), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.usefixtures("chunk_tokens")
@pytest.mark.parametrize("eps", [0.0, 0.1])
def test_bias_equals_torch(eps: float) -> None:
    hidden, matrix, targets = example()
    bias = torch.randn(V, dtype=torch.float64).mul(3).requires_grad_()
    logits = hidden @ matrix.t() + bias
    expected = F.cross_entropy(logits, targets, label_smoothing=eps, reduction="sum")
    filler = hidden.new_full((3, D), 2.0)
    filled = torch.cat([hidden, filler])
    with_filler = torch.cat([targets, targets.new_full((3,), NO_TARGET)])
    losses = smoothed_cross_entropy(filled, matrix, with_filler, eps, bias=bias)
    torch.testing.assert_close(losses.smoothed, expected, rtol=1e-12, atol=1e-12)
    leaves = hidden, matrix, bias
    ours = gradients(losses.smoothed, *leaves)
    for our_gradient, gradient in zip(ours, gradients(expected, *leaves), strict=True):
        torch.testing.assert_close(our_gradient, gradient, rtol=1e-12, atol=1e-12)


def test_gradient_of_tied_matrix() -> None:
    weight = example()[1].detach().requires_grad_()
    targets = torch.arange(V) * 3 % V
    smoothed_cross_entropy(weight, weight, targets, 0.1).smoothed.backward()  # type: ignore[no-untyped-call]
    expected = F.cross_entropy(weight @ weight.t(), targets, label_smoothing=0.1, reduction="sum")
    assert weight.grad is not None
    torch.testing.assert_close(weight.grad, *gradients(expected, weight), rtol=1e-12, atol=1e-12)


def test_huge_logits_are_finite() -> None:
    hidden = torch.eye(2).mul(1e4).requires_grad_()
    matrix = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]], requires_grad=True)
    losses = smoothed_cross_entropy(hidden, matrix, torch.tensor([0, 2]), 0.0)
    assert losses.nll.item() == pytest.approx(2e4)  # 0 for the first token, 1e4 + 1e4 for the other
    assert all(grad.isfinite().all() for grad in gradients(losses.smoothed, hidden, matrix))


@pytest.mark.usefixtures("chunk_tokens")
def test_padding_has_no_loss() -> None:
    hidden, matrix, targets = example()
    padded = torch.cat([hidden, torch.randn(4, hidden.shape[1], dtype=torch.float64)])
    padded_targets = torch.cat([targets, targets.new_full((4,), NO_TARGET)])
    found = []
    for rows, row_targets in ((hidden, targets), (padded, padded_targets)):
        leaves = rows.detach().requires_grad_(), matrix.detach().requires_grad_()
        losses = smoothed_cross_entropy(*leaves, row_targets, 0.1)
        found.append([*losses, *torch.autograd.grad(losses.smoothed, leaves)])
    plain, with_more = found
    for mine, theirs in zip(with_more, plain, strict=True):
        torch.testing.assert_close(mine[: len(theirs)] if theirs.ndim else mine, theirs)
    assert (with_more[2][len(hidden) :] == 0).all()


def test_bfloat16_loss_is_close() -> None:
    """Logits are rounded to 8 bits: by at most 0.4 %, up and down equally often."""
    torch.manual_seed(1)
    hidden = torch.randn(700, 40)
    matrix = torch.randn(91, 40) / 4
    targets = torch.randint(91, (700,))
    z = hidden.double() @ matrix.double().t()
    log_p = z - z.exp().sum(1, keepdim=True).log()
    by_hand = -(0.9 * log_p.gather(1, targets[:, None]).sum() + 0.1 * log_p.mean(1).sum())
    rounded = hidden.bfloat16().requires_grad_()
    weights = matrix.requires_grad_()
    losses = smoothed_cross_entropy(rounded, weights, targets, 0.1)
    assert losses.smoothed.item() == pytest.approx(by_hand.item(), rel=1e-3)
    losses.smoothed.backward()  # type: ignore[no-untyped-call]
    assert rounded.grad is not None
    assert weights.grad is not None
    assert (rounded.grad.dtype, weights.grad.dtype) == (torch.bfloat16, torch.float32)
    target = torch.full_like(z, 0.1 / 91).scatter_add_(
        1, targets[:, None], torch.full((700, 1), 0.9, dtype=torch.float64)
    )
    exact = (log_p.exp() - target).t() @ hidden.double()
    assert (weights.grad - exact).norm() < 0.01 * exact.norm()


def test_float16_gradient_of_frequent_target() -> None:
    """30,000 tokens of one target, before any loss scale: their sum would be infinite."""
    hidden = torch.full((30_000, D), 4.0, dtype=torch.float16)
    matrix = torch.zeros(V, D, requires_grad=True)
    targets = torch.zeros(len(hidden), dtype=torch.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(loss.CHUNK_TOKENS, "cpu", loss.CHUNK_TOKENS["cuda"])
        (gradient,) = gradients(
            smoothed_cross_entropy(hidden, matrix, targets, 0.0).smoothed, matrix
        )
    expected = torch.full((V, D), 4.0 * len(hidden) / V)
    expected[0] -= 4.0 * len(hidden)
    torch.testing.assert_close(gradient, expected, rtol=2e-3, atol=0.0)
