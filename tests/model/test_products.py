"""Products with wide weights against torch's own, and how many of them oneDNN keeps."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from nmtkit.model.products import MIN_WIDTH, MIN_WORK, is_intel, is_zen5, linear
from torch.nn import functional as F  # noqa: N812

from nmtkit.model import products


@pytest.fixture
def on_avx512(monkeypatch: pytest.MonkeyPatch) -> None:
    """Multiply as where MKL is slow, whatever processor the test runs on."""
    monkeypatch.setattr(products, "is_avx2", lambda: False)


@pytest.mark.usefixtures("on_avx512")
@pytest.mark.parametrize("d_out", [MIN_WIDTH, MIN_WIDTH + 8])
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("shape", [(7,), (3, 5)])
def test_a_wide_product_equals_torchs_forward_and_backward(
    shape: tuple[int, ...], has_bias: bool, d_out: int
) -> None:
    x, weight = torch.randn(*shape, MIN_WIDTH + 16), torch.randn(d_out, MIN_WIDTH + 16)
    bias = torch.randn(d_out) if has_bias else None
    inputs = [each.requires_grad_() for each in (x, weight, bias) if each is not None]
    grad = torch.randn(*shape, d_out)
    actual, expected = (each(x, weight, bias) for each in (linear, F.linear))
    assert type(actual.grad_fn) is not type(expected.grad_fn)
    torch.testing.assert_close(actual, expected, atol=1e-3, rtol=1e-5)
    found = (torch.autograd.grad(each, inputs, grad) for each in (actual, expected))
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-3, rtol=1e-5)


@pytest.mark.parametrize(
    ("intel", "avx2", "expected"), [(True, True, True), (False, True, False), (False, False, True)]
)
def test_wide_products_are_onednns_where_the_processor_multiplies_faster(
    intel: bool, avx2: bool, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "is_intel", lambda: intel)
    monkeypatch.setattr(products, "is_avx2", lambda: avx2)
    weight = torch.randn(MIN_WIDTH, MIN_WIDTH, requires_grad=True)
    computed = linear(torch.randn(3, MIN_WIDTH), weight)
    assert ("OneDNN" in type(computed.grad_fn).__name__) == expected


@pytest.mark.usefixtures("on_avx512")
@pytest.mark.parametrize("zen5", [True, False])
def test_narrow_products_of_much_work_are_onednns_on_zen5(
    zen5: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "is_intel", lambda: False)
    monkeypatch.setattr(products, "is_zen5", lambda: zen5)
    weight = torch.randn(96, 64, requires_grad=True)
    n_rows = MIN_WORK // weight.numel()
    for rows, expected in (n_rows, False), (n_rows + 1, zen5):
        x = torch.randn(rows, 64, requires_grad=True)
        actual, theirs = linear(x, weight), F.linear(x, weight)
        assert ("OneDNN" in type(actual.grad_fn).__name__) == expected
        torch.testing.assert_close(actual, theirs, atol=1e-4, rtol=1e-5)
        grad = torch.randn_like(actual)
        found = (torch.autograd.grad(each, [x, weight], grad) for each in (actual, theirs))
        for mine, others in zip(*found, strict=True):
            torch.testing.assert_close(mine, others, atol=1e-2, rtol=1e-4)


@pytest.mark.usefixtures("on_avx512")
def test_other_products_are_torchs() -> None:
    x, weight = torch.randn(7, MIN_WIDTH), torch.randn(MIN_WIDTH - 8, MIN_WIDTH)
    assert torch.equal(linear(x, weight), F.linear(x, weight))
    half = torch.randn(MIN_WIDTH, MIN_WIDTH, requires_grad=True).bfloat16()
    actual, expected = (each(x.bfloat16(), half) for each in (linear, F.linear))
    assert type(actual.grad_fn) is type(expected.grad_fn)


MANY = """
import torch
from nmtkit.model import products
from nmtkit.model.products import MIN_WIDTH, linear
products.is_avx2 = lambda: False
weight = torch.zeros(MIN_WIDTH, MIN_WIDTH)
for n_rows in [*range(1, 101), 1]:
    linear(torch.zeros(n_rows, MIN_WIDTH), weight)
"""


@pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(),  # type: ignore[no-untyped-call]
    reason="this torch is built without oneDNN",
)
def test_few_compiled_products_are_kept() -> None:
    environment = {k: v for k, v in os.environ.items() if k != "ONEDNN_PRIMITIVE_CACHE_CAPACITY"}
    done = subprocess.run(
        [sys.executable, "-c", MANY],
        env=environment | {"ONEDNN_VERBOSE": "profile_create"},
        check=True,
        capture_output=True,
        text=True,
    )
    # The first of 100 numbers of rows has to be compiled again.
    assert done.stdout.count("create:cache_miss") == 101


INTEL = b"processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 26\nmodel name\t: Xeon\xff\n"
ZEN_4 = b"processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 26\n"
ZEN_5 = b"processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 26\nmodel\t\t: 2\n"
ARM = b"processor\t: 0\nCPU implementer\t: 0x41\n"


@pytest.mark.parametrize(
    ("cpuinfo", "intel", "zen5"),
    [
        (INTEL, True, False),
        (ZEN_4, False, False),
        (ZEN_5, False, True),
        (ARM, False, False),
        (None, False, False),
    ],
)
def test_processors_are_told_from_others(
    cpuinfo: bytes | None, intel: bool, zen5: bool, tmp_path: Path
) -> None:
    path = tmp_path / "cpuinfo"
    if cpuinfo is not None:
        path.write_bytes(cpuinfo)
    assert is_intel(path) == intel
    assert is_zen5(path) == zen5
