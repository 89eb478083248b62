"""Gradients of bins, compiled and captured, equal those of the plain model up to rounding."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from graphs import RecordedGraph, record_graphs
from models import BFLOAT16
from test_loop import losses, run
from torch import Tensor
from torch._dynamo.utils import counters
from trainers import CPU, config_of, corpus, model_of, trainer_of

from nmtkit.config.model import DecodingConfig
from nmtkit.corpus.special_tokens import EOS_ID
from nmtkit.decoding.torch_engine import TorchEngine
from nmtkit.fast.accelerate import accelerate
from nmtkit.model.transformer import Transformer
from nmtkit.training.acceleration import Acceleration, Level
from nmtkit.training.batches import Pairs
from nmtkit.training.bins import MAX_SHAPES, BinShape, fill_bins, pack_bins, trial_bins
from nmtkit.training.distributed import Group
from nmtkit.training.gradients import Gradients, batch_losses
from nmtkit.training.loop import perplexity
from nmtkit.training.loss import CHUNK_TOKENS
from nmtkit.training.micro_batches import pack

# Torch's compiler causes warnings, and fails if a filter turns these into errors.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
]
CUDA = torch.device("cuda")
SHAPE = BinShape(15, 16)  # more bins than the 30 pairs below need
FASTEST = Acceleration(torch.bfloat16, Level.CAPTURED)


@pytest.fixture
def recorded_graphs(monkeypatch: pytest.MonkeyPatch) -> list[RecordedGraph]:
    """Record graphs on the CPU."""
    return record_graphs(monkeypatch)


@pytest.fixture
def without_code(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the compiler trace and differentiate, but not generate code, because that is slow."""
    genuine: Callable[..., Any] = torch.compile
    monkeypatch.setattr(
        torch, "compile", lambda model, **options: genuine(model, backend="aot_eager", **options)
    )
    monkeypatch.setattr(
        torch.nn.Module,
        "compile",
        lambda module, **options: setattr(
            module,
            "_compiled_call_impl",
            genuine(module._call_impl, backend="aot_eager", **options),
        ),
    )
    counters.clear()
    yield
    torch.compiler.reset()


def build_model(
    n_layers: int = 2,
    dtype: torch.dtype = torch.float32,
    device: torch.device = CPU,
    d_model: int = 16,
    **changes: Any,
) -> Transformer:
    values = {"n_layers": n_layers, "d_model": d_model, "d_k": d_model // 2, "d_v": d_model // 2}
    config = model_of().config.model_copy(update={**values, **changes})
    torch.manual_seed(1)
    return Transformer(config, 23, dtype).to(device)


def scalar(value: float, device: torch.device = CPU) -> Tensor:
    return torch.full((), value, dtype=torch.float64, device=device)


def micro_batch(first: int = 0, device: torch.device = CPU) -> Tensor:
    chosen = np.arange(first, first + 30)
    bins = pack_bins(corpus(), chosen, SHAPE.length)
    assert len(bins) < SHAPE.n_bins
    return fill_bins(corpus(), bins, SHAPE).to(device)


def plain_gradients(model: Transformer, first: int = 0) -> tuple[Tensor, list[Tensor]]:
    """Losses and gradients of the plain model of section 3, for a packed sequence."""
    batch = pack(corpus(), np.arange(first, first + 30), model.output_matrix.device)
    found = batch_losses(model, batch, 0.1)
    found.smoothed.backward()  # type: ignore[no-untyped-call]
    return torch.stack(found).detach(), gradients_of(model)


def gradients_of(model: Transformer) -> list[Tensor]:
    found = []
    for parameter in model.parameters():
        assert parameter.grad is not None
        found.append(parameter.grad.detach().cpu().clone())
    return found


def assert_close(ours: list[Tensor], expected: list[Tensor], atol: float = 2e-5) -> None:
    assert len(ours) == len(expected) > 0
    for mine, theirs in zip(ours, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=atol)


CONFIGS: list[dict[str, Any]] = [
    {},
    {"norm": "pre"},
    {"neighbourhood": 3},
    {"positions": "learned", "tie_embeddings": False},
    {"d_v": 6, "attention_bias": False},
    {"activation": "swish", "output_bias": True},
]


@pytest.mark.parametrize("changes", CONFIGS)
def test_bins_equal_plain_model(changes: dict[str, Any]) -> None:
    expected_losses, expected = plain_gradients(build_model(**changes))
    model = accelerate(build_model(**changes))
    gradients = Gradients(model, 0.1, Level.EAGER)
    gradients.start_update()
    found = gradients.add(micro_batch(), scalar(1.0))
    torch.testing.assert_close(found, expected_losses, rtol=1e-6, atol=0.0)
    assert_close(gradients_of(model), expected)


def test_bins_with_dropout_equal_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """With masks that depend only on the dropped values, which are the same in both layouts."""

    def scale(x: Tensor, p: float) -> Tensor:
        keep = (x.detach() * 1e6).round().long() % 10 >= round(10 * p)
        return keep / (1 - p)

    def drop(x: Tensor, p: float, training: bool = True, inplace: bool = False) -> Tensor:
        assert not inplace
        return x * scale(x, p) if training else x

    monkeypatch.setattr("torch.nn.functional.dropout", drop)
    monkeypatch.setattr("nmtkit.fast.cpu.random_scale", scale)
    changes: dict[str, Any] = {"dtype": torch.float64, "dropout": 0.3}
    expected_losses, expected = plain_gradients(build_model(**changes).double())
    model = accelerate(build_model(**changes).double())
    gradients = Gradients(model, 0.1, Level.EAGER)
    gradients.start_update()
    found = gradients.add(micro_batch(), scalar(1.0))
    without_dropout, _ = plain_gradients(build_model(dtype=torch.float64).double())
    assert (expected_losses - without_dropout).abs().max() > 1.0
    torch.testing.assert_close(found, expected_losses, rtol=1e-9, atol=0.0)
    assert_close(gradients_of(model), expected)


@pytest.mark.parametrize("dtype", [torch.float32, BFLOAT16])
def test_bins_in_half_precision_agree(dtype: torch.dtype) -> None:
    expected_losses, expected = plain_gradients(build_model(d_model=64))
    model = accelerate(build_model(dtype=dtype, d_model=64))
    gradients = Gradients(model, 0.1, Level.EAGER)
    gradients.start_update()
    found = gradients.add(micro_batch(), scalar(1.0))
    assert not torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
    torch.testing.assert_close(found, expected_losses, rtol=2e-3, atol=0.0)
    for mine, theirs in zip(gradients_of(model), expected, strict=True):
        assert torch.cosine_similarity(mine.flatten(), theirs.flatten(), dim=0) > 0.99
        assert mine.norm() == pytest.approx(float(theirs.norm()), rel=0.03)


def test_padding_changes_nothing() -> None:
    """Losses and gradients do not depend on the tokens in the padding."""
    found = []
    for token in (0, 7):
        bins = micro_batch()
        bins[0][bins[1] == 0] = token
        bins[3][bins[5] == 0] = token
        model = accelerate(build_model())
        gradients = Gradients(model, 0.1, Level.EAGER)
        gradients.start_update()
        found.append([gradients.add(bins, scalar(1.0)), *gradients_of(model)])
    # Padding adds nothing to the gradients of the two tokens either.
    for mine, theirs in zip(*found, strict=True):
        assert torch.equal(mine, theirs)


def test_micro_batches_are_added() -> None:
    model = accelerate(build_model())
    gradients = Gradients(model, 0.1, Level.EAGER)
    for _ in range(2):  # the second update must not contain the first one's gradients
        gradients.start_update()
        gradients.add(micro_batch(), scalar(0.5))
        gradients.add(micro_batch(30), scalar(0.5))
    plain = build_model()
    plain_gradients(plain)
    _, summed = plain_gradients(plain, 30)
    assert_close(gradients_of(model), [0.5 * gradient for gradient in summed])


# Compiled


@pytest.mark.slow
@pytest.mark.usefixtures("without_code")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_all_shapes_compile(dtype: torch.dtype) -> None:
    """Beyond its limit, the compiler would raise, because nothing may run uncompiled."""
    model = accelerate(build_model(2, dtype, neighbourhood=3))
    gradients = Gradients(model, 0.1, Level.COMPILED)
    gradients.start_update()
    for n_bins in range(1, MAX_SHAPES + 1):
        shape = BinShape(n_bins, 16 * n_bins)
        bins = pack_bins(corpus(), np.arange(30), shape.length)[:n_bins]
        losses = gradients.add(fill_bins(corpus(), bins, shape), scalar(1.0))
        assert losses.isfinite().all()
    assert not counters["graph_break"]


@pytest.mark.usefixtures("without_code")
def test_compiled_graphs_are_few() -> None:
    """Layers of encoder and decoder, embedding, keys and values, softmax of the loss, 3 masks."""
    model = accelerate(build_model(n_layers=3))
    gradients = Gradients(model, 0.1, Level.COMPILED)
    for first in (0, 30):
        gradients.start_update()
        gradients.add(micro_batch(first), scalar(1.0))
    assert counters["stats"]["unique_graphs"] <= 8
    assert not counters["graph_break"]
    assert_close(gradients_of(model), plain_gradients(build_model(n_layers=3), 30)[1])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, BFLOAT16])
def test_compiled_code_equals_eager(dtype: torch.dtype) -> None:
    """With the code that inductor writes for this processor."""
    found = []
    for level in (Level.EAGER, Level.COMPILED):
        model = accelerate(build_model(dtype=dtype, d_model=64))
        gradients = Gradients(model, 0.1, level)
        gradients.start_update()
        found.append([gradients.add(micro_batch(), scalar(1.0)), *gradients_of(model)])
    torch.compiler.reset()
    for mine, theirs in zip(*found, strict=True):
        assert (mine - theirs).norm() <= (1e-5 if dtype == torch.float32 else 0.02) * theirs.norm()


def test_compiler_suggests_no_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU from the A100 on, torch's compiler would print a warning for float32."""
    from torch._inductor import compile_fx

    compile_fx._warn_tf32_disabled.cache_clear()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    with pytest.warns(UserWarning, match="TensorFloat32"):
        compile_fx._warn_tf32_disabled()
    compile_fx._warn_tf32_disabled.cache_clear()
    Gradients(accelerate(build_model()), 0.1, Level.COMPILED)
    compile_fx._warn_tf32_disabled()  # a warning is an error here


@pytest.mark.slow
def test_compiled_dropout_follows_seed() -> None:
    model = accelerate(build_model(n_layers=1, d_model=64, dropout=0.3))
    gradients = Gradients(model.train(), 0.1, Level.COMPILED)
    found = []
    for seed in (1, 1, 2):
        gradients.start_update()
        torch.manual_seed(seed)
        found.append(float(gradients.add(micro_batch(), scalar(1.0))[0]))
    torch.compiler.reset()
    assert found[0] == found[1] != found[2]
    without = float(batch_losses(model.eval(), micro_batch(), 0.1).smoothed.detach())
    assert found[0] == pytest.approx(without, rel=0.3)
    assert abs(found[0] - without) > 1e-3


# Captured


def capture(model: Transformer) -> Gradients:
    gradients = Gradients(accelerate(model), 0.1, Level.EAGER)
    gradients.capture([micro_batch(device=model.output_matrix.device)])
    return gradients


def test_graphs_equal_plain_model(recorded_graphs: list[RecordedGraph]) -> None:
    """All micro-batches of an update add to a gradient that was zero."""
    model = build_model()
    gradients = capture(model)
    for _ in range(2):
        gradients.start_update()
        found = gradients.add(micro_batch(), scalar(0.5))
        found += gradients.add(micro_batch(30), scalar(0.5))
    plain = build_model()
    expected_losses, _ = plain_gradients(plain)
    more_losses, summed = plain_gradients(plain, 30)
    torch.testing.assert_close(found, expected_losses + more_losses, rtol=1e-6, atol=0.0)
    assert_close(gradients_of(model), [0.5 * gradient for gradient in summed])
    (graph,) = recorded_graphs
    assert graph.n_replays == 1 + 4  # one replay is compared


@pytest.mark.usefixtures("recorded_graphs")
def test_dropout_in_graph_follows_seed() -> None:
    assert_dropout_follows_seed(CPU)


def assert_dropout_follows_seed(device: torch.device) -> None:
    gradients = capture(build_model(1, d_model=64, device=device, dropout=0.3).train())
    found = []
    for seed in (1, 1, 2):
        gradients.start_update()
        torch.manual_seed(seed)
        found.append(float(gradients.add(micro_batch(device=device), scalar(1.0, device))[0]))
    assert found[0] == found[1] != found[2]


@pytest.mark.usefixtures("recorded_graphs")
@pytest.mark.parametrize("fault", ["gradient", "loss"])
def test_wrong_graph_is_refused(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = RecordedGraph.replay

    def replay(graph: RecordedGraph) -> None:
        genuine(graph)
        if fault == "loss":
            graph.results[-1].mul_(1.01)
        else:
            next(iter(model.parameters())).grad.mul_(3.0)  # type: ignore[union-attr]

    monkeypatch.setattr(RecordedGraph, "replay", replay)
    model = build_model()
    with pytest.raises(RuntimeError, match="CUDA graph"):
        capture(model)


def test_gradient_never_waits_for_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a graph could not be captured. Waiting for a value fails on the meta device."""
    meta = torch.device("meta")
    monkeypatch.setitem(CHUNK_TOKENS, "meta", 50)
    model = accelerate(build_model(dtype=torch.bfloat16, device=meta))
    with pytest.raises(RuntimeError, match="meta"):
        torch.ones((), device=meta).item()
    gradients = Gradients(model, 0.1, Level.EAGER)
    gradients.start_update()
    assert gradients.add(micro_batch(device=meta), scalar(0.1, meta)).device == meta
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert (parameter.grad.device, parameter.grad.dtype) == (meta, torch.float32)


@pytest.mark.parametrize("device", [CPU, pytest.param(CUDA, marks=pytest.mark.gpu)])
def test_evaluation_moves_no_tensor(device: torch.device) -> None:
    """A graph uses the addresses that parameters, gradients and buffers had when captured."""
    model = accelerate(build_model(1, device=device))
    gradients = Gradients(model, 0.1, Level.EAGER)
    gradients.add(micro_batch(device=device), scalar(1.0, device))

    def addresses() -> list[int]:
        parameters = list(model.parameters())
        tensors = [*parameters, *(parameter.grad for parameter in parameters), *model.buffers()]
        return [tensor.data_ptr() for tensor in tensors if tensor is not None]

    before = addresses()
    longest = model.config.max_positions
    longer = [[*range(4, 4 + longest), EOS_ID]]  # longer than any sentence of the training data
    ids = np.array(longer[0], np.uint16)
    offsets = np.array([0, longest + 1])
    perplexity(model, Pairs(ids, offsets, ids, offsets), device=device, max_tokens=120)
    decoding = DecodingConfig(beam_size=2, length_penalty=0.6, max_extra_tokens=3)
    TorchEngine([model], 23).translate(longer, decoding, 1, lambda _: None)
    assert addresses() == before


# On a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("level", Level)
def test_gpu_gradients_equal_cpu(dtype: torch.dtype, level: Level) -> None:
    expected_losses, expected = plain_gradients(build_model(d_model=64))
    model = accelerate(build_model(2, dtype, CUDA, d_model=64))
    gradients = Gradients(model, 0.1, level)
    if level == Level.CAPTURED:
        gradients.capture([micro_batch(device=CUDA)])
    gradients.start_update()
    found = gradients.add(micro_batch(device=CUDA), scalar(1.0, CUDA))
    torch.testing.assert_close(found.cpu(), expected_losses, rtol=2e-3, atol=0.0)
    for mine, theirs in zip(gradients_of(model), expected, strict=True):
        assert torch.cosine_similarity(mine.flatten(), theirs.flatten(), dim=0) > 0.99


@pytest.mark.gpu
def test_gpu_dropout_follows_seed() -> None:
    assert_dropout_follows_seed(CUDA)


@pytest.mark.parametrize(
    "device",
    [pytest.param(CPU, marks=pytest.mark.slow), pytest.param(CUDA, marks=pytest.mark.gpu)],
)
def test_compiled_training_has_curve_of_packed(device: torch.device, tmp_path: Path) -> None:
    config = config_of(max_steps=50, warmup_steps=200)
    run(tmp_path / "packed", build_model(1), config)
    acceleration = Acceleration(torch.bfloat16, Level.COMPILED)
    run(
        tmp_path / "bins",
        build_model(1, acceleration.dtype, device),
        config,
        acceleration=acceleration,
        group=Group(0, 1, device),
        use_bins=True,
    )
    torch.compiler.reset()
    curves = []
    for name in ("packed", "bins"):
        curves.append([line["loss"] for line in losses(tmp_path / name)])
    np.testing.assert_allclose(curves[0], curves[1], rtol=5e-3)


@pytest.mark.gpu
def test_gpu_step_never_waits_for_device() -> None:
    model = build_model(1, FASTEST.dtype, CUDA)
    group = Group(0, 1, CUDA)
    trainer = trainer_of(model, corpus(), config_of(), group, FASTEST, max_tokens=75, use_bins=True)
    updates = trainer.prepared_updates()
    bins = [trial_bins(trainer.pairs, shape, 9).to(CUDA) for shape in trainer.bin_shapes]
    trainer.gradients.capture(bins)
    for _ in range(3):
        trainer.train_step(next(updates)).wait()
    following = [next(updates) for _ in range(5)]
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        queued = [trainer.train_step(prepared) for prepared in following]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert all(not step.wait().metrics.skipped for step in queued)
