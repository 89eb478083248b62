"""The cost of training as the paper counts it."""

import pytest

from nmtkit.report.training_cost import training_cost

HOUR = 3_600.0
DAY = 86_400.0


@pytest.mark.parametrize(("seconds", "printed"), [(12 * HOUR, 3.3e18), (3.5 * DAY, 2.3e19)])
def test_cost_matches_table_2(seconds: float, printed: float) -> None:
    cost = training_cost(seconds, 8, "Tesla P100-SXM2-16GB", 1.0)
    assert cost.time_flops == pytest.approx(printed, rel=0.01)
    assert cost.rate_source == "the paper, section 6.1"


@pytest.mark.parametrize(
    ("device", "teraflops"),
    [
        ("Tesla K80", 2.8),
        ("Tesla V100-SXM2-32GB", 15.7),
        ("NVIDIA A100-SXM4-80GB", 19.5),
        ("NVIDIA A100 80GB PCIe", 19.5),
        ("NVIDIA L4", 30.3),
        ("NVIDIA GeForce RTX 3090", 35.6),
        ("NVIDIA H100 80GB HBM3", 66.9),
        ("NVIDIA H100 PCIe", 51.2),
    ],
)
def test_rates_match_data_sheets(device: str, teraflops: float) -> None:
    cost = training_cost(10.0, 3, device, 7.0)
    assert cost.rate is not None
    assert cost.rate / 1e12 == pytest.approx(teraflops, abs=0.06)
    assert cost.time_flops == 30.0 * cost.rate
    assert cost.product_flops == 7.0


@pytest.mark.parametrize(
    "device", ["CPU", "NVIDIA A10G", "NVIDIA L40", "NVIDIA GeForce RTX 3090 Ti"]
)
def test_unlisted_device_has_no_rate(device: str) -> None:
    cost = training_cost(10.0, 3, device, 7.0)
    assert (cost.rate, cost.time_flops) == (None, None)
    assert cost.rate_source == f"no rate of {device} is listed"
