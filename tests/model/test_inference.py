"""A model prepared for inference computes what it computed before."""

from typing import Any

import pytest
import torch
from models import BFLOAT16, needs_bfloat16, step_of, tiny
from nmtkit.model.inference import ROWS, FixedLinear, prepare_for_inference
from nmtkit.model.products import MIN_WIDTH, onednn_linear
from torch import Tensor

from nmtkit.fast.packing import Layout
from nmtkit.fast.step import IncrementalDecoder
from nmtkit.model import incremental, inference
from nmtkit.model.transformer import Linear, Transformer

V = 29


def random_model(**changes: Any) -> Transformer:
    torch.manual_seed(5)
    model = Transformer(tiny(**{"d_v": 7, "d_ff": 18, **changes}), V)
    for parameter in model.parameters():
        parameter.data.add_(torch.randn_like(parameter), alpha=0.1)
    return model.eval()


@torch.inference_mode()
def three_steps(model: Transformer) -> Tensor:
    """Log-probabilities (3, 2, V) of three steps of two sentences."""
    layout = Layout.of_lengths([3, 2])
    memory = model.encode(torch.tensor([9, 8, 2, 7, 2]), layout)
    decoder = IncrementalDecoder(model, memory, layout, torch.tensor([1]))
    steps = [step_of(decoder, torch.tensor([[id_], [8]]))[:, 0, :V] for id_ in (1, 5, 6)]
    return torch.stack(steps)


CONFIGS: list[dict[str, Any]] = [
    {},
    {"norm": "pre", "positions": "learned"},
    {"tie_embeddings": False, "attention_bias": True},
]


@pytest.fixture(params=["packed", "by columns"])
def layout_of_weights(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Store weights as oneDNN or as MKL reads them, whatever processor the test runs on."""
    monkeypatch.setattr(inference, "is_intel", lambda: request.param == "by columns")
    monkeypatch.setattr(inference, "is_avx2", lambda: False)
    monkeypatch.setattr(inference, "is_zen5", lambda: True)


@pytest.mark.usefixtures("layout_of_weights")
@pytest.mark.parametrize("changes", CONFIGS)
def test_outputs_are_those_of_the_plain_model(changes: dict[str, Any]) -> None:
    model = random_model(**changes)
    expected = three_steps(model)
    prepare_for_inference(model, torch.float32)
    torch.testing.assert_close(three_steps(model), expected, atol=1e-5, rtol=1e-5)
    assert not any(isinstance(module, Linear) for module in model.modules())


@needs_bfloat16
@pytest.mark.parametrize("changes", CONFIGS)
def test_outputs_in_bfloat16_are_near_those_in_float32(changes: dict[str, Any]) -> None:
    model = random_model(**changes)
    expected = three_steps(model).exp()
    prepare_for_inference(model, torch.bfloat16)
    found = three_steps(model)
    assert found.dtype == torch.float32
    difference = (found.exp() - expected).abs().max()
    assert 0 < difference < 0.02


@torch.inference_mode()
def test_rows_that_fill_up_the_output_matrix_have_no_probability() -> None:
    model = random_model()
    prepare_for_inference(model, torch.float32)
    logits = model.logits(torch.randn(4, model.config.d_model))
    assert logits.shape == (4, ROWS)
    assert (logits[:, V:] == -torch.inf).all()
    assert logits[:, :V].isfinite().all()


@torch.inference_mode()
def test_weights_are_used_unpacked_where_there_is_no_onednn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inference, "is_intel", lambda: False)
    monkeypatch.setattr(inference, "is_avx2", lambda: False)
    monkeypatch.setattr(inference, "is_zen5", lambda: True)
    linear = torch.nn.Linear(6, 5)
    x = torch.randn(2, 3, 6)
    packed = FixedLinear(linear.weight, linear.bias, torch.float32)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    plain = FixedLinear(linear.weight, linear.bias, torch.float32)
    assert packed.is_packed
    assert not plain.is_packed
    torch.testing.assert_close(packed(x), linear(x))
    torch.testing.assert_close(plain(x), linear(x))


@pytest.mark.parametrize(
    ("shape", "on_intel", "with_avx2", "with_avx512", "on_zen5"),
    [
        ((256, 320), False, False, False, True),
        ((256, 512), False, False, True, True),
        ((9_792, 128), False, True, True, True),
        ((MIN_WIDTH, MIN_WIDTH), True, False, True, True),
    ],
)
def test_weights_are_packed_where_the_processor_multiplies_them_faster(
    shape: tuple[int, ...],
    on_intel: bool,
    with_avx2: bool,
    with_avx512: bool,
    on_zen5: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for intel, avx2, zen5, packed in [
        (True, False, False, on_intel),
        (False, True, False, with_avx2),
        (False, True, True, with_avx2),  # a virtual machine that hides AVX-512
        (False, False, False, with_avx512),
        (False, False, True, on_zen5),
    ]:
        monkeypatch.setattr(inference, "is_intel", lambda intel=intel: intel)
        monkeypatch.setattr(inference, "is_avx2", lambda avx2=avx2: avx2)
        monkeypatch.setattr(inference, "is_zen5", lambda zen5=zen5: zen5)
        assert FixedLinear(torch.zeros(shape), None, torch.float32).is_packed == packed


@torch.inference_mode()
@pytest.mark.usefixtures("layout_of_weights")
def test_products_are_compiled_for_few_numbers_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled_for = set()

    def compiled(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        compiled_for.add(x.numel() // x.shape[-1])
        return onednn_linear(x, weight, bias)

    monkeypatch.setattr(inference, "onednn_linear", compiled)
    plain = torch.nn.Linear(6, 5)
    prepared = FixedLinear(plain.weight, plain.bias, torch.float32)
    for n_rows in range(1, 1_025):
        x = torch.randn(n_rows, 6)
        torch.testing.assert_close(prepared(x), plain(x))
        if prepared.is_packed:
            n_more = min(n for n in compiled_for if n >= n_rows) - n_rows
            assert n_more < max(16, n_rows / 8)
    assert len(compiled_for) == (32 if prepared.is_packed else 0)


@needs_bfloat16
@pytest.mark.parametrize("intel", [False, True])
def test_weights_in_bfloat16_are_packed(intel: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inference, "is_intel", lambda: intel)
    assert FixedLinear(torch.zeros(5, 6), None, torch.bfloat16).is_packed


@torch.inference_mode()
@pytest.mark.usefixtures("layout_of_weights")
@pytest.mark.parametrize("dtype", [None, torch.float32, BFLOAT16])
def test_logits_computed_in_parts_are_the_same(
    dtype: torch.dtype | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = random_model()
    if dtype is not None:
        prepare_for_inference(model, dtype)
    expected = three_steps(model)
    monkeypatch.setitem(incremental.LOGIT_ROWS, "cpu", 1)
    tolerance = 0.02 if dtype == torch.bfloat16 else 1e-6
    torch.testing.assert_close(three_steps(model), expected, atol=tolerance, rtol=tolerance)


@torch.inference_mode()
def test_logits_overwrite_former_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inference, "is_intel", lambda: True)  # oneDNN's product overwrites nothing
    model = random_model()
    prepare_for_inference(model, torch.float32)
    former, x = torch.randn(2, 4, model.config.d_model)
    expected = model.logits(x)
    out = model.logits(former)
    assert not torch.equal(out, expected)
    assert model.logits(x, out).data_ptr() == out.data_ptr()
    assert torch.equal(out, expected)


@needs_bfloat16
@torch.inference_mode()
def test_logits_have_the_precision_of_the_model() -> None:
    model = random_model()
    x = torch.randn(3, model.config.d_model)
    prepare_for_inference(model, torch.bfloat16)
    assert model.logits(x.bfloat16()).dtype == torch.bfloat16
