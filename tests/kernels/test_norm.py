"""Layer normalization of a sum against torch in float64."""

import pytest
import torch
from torch.nn.functional import layer_norm

from nmtkit.kernels.norm import add_norm


@pytest.mark.usefixtures("kernels_or_torch")
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.bfloat16, 0.03)])
@pytest.mark.parametrize("width", [1, 5, 16, 37, 128])
@pytest.mark.parametrize("epsilon", [1e-6, 0.3])
def test_the_sum_is_normalized(
    dtype: torch.dtype, tolerance: float, width: int, epsilon: float
) -> None:
    torch.manual_seed(width)
    x, y = (3 * torch.randn(4, 3, width) + 2).to(dtype), torch.randn(4, 3, width).to(dtype)
    weight, bias = torch.randn(width).to(dtype), torch.randn(width).to(dtype)
    found = add_norm(x, y, weight, bias, epsilon)
    assert found.dtype == dtype
    expected = layer_norm(
        x.double() + y.double(), (width,), weight.double(), bias.double(), epsilon
    )
    torch.testing.assert_close(found.double(), expected, atol=tolerance, rtol=tolerance)


@pytest.mark.usefixtures("kernels")
def test_tensors_need_not_be_contiguous() -> None:
    x, y = torch.randn(6, 7).t(), torch.randn(7, 12)[:, ::2]
    weight, bias = torch.randn(2, 6)
    expected = layer_norm(x + y, (6,), weight, bias, 1e-5)
    torch.testing.assert_close(add_norm(x, y, weight, bias, 1e-5), expected)
