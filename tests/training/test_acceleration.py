"""What makes a GPU fast changes a gradient by rounding alone; what needs one is marked `gpu`."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from graphs import RecordedGraph, attend, record_graphs
from hypothesis import given
from hypothesis import strategies as st
from test_loop import ALONE, CPU, config_of, corpus, losses, model_of, run
from torch import Tensor
from torch._dynamo.utils import counters

from nmtkit.decoding.torch_engine import TorchEngine
from nmtkit.fast import accelerate as fast
from nmtkit.fast.accelerate import accelerate, fast_attention
from nmtkit.fast.gpu import has_flash_attention
from nmtkit.fast.packing import Capacity, PackedLayout, PackedMask
from nmtkit.model.attention import window_of
from nmtkit.model.transformer import Transformer
from nmtkit.recipe import DecodingConfig
from nmtkit.symbols import BOS_ID, EOS_ID
from nmtkit.training import acceleration
from nmtkit.training.acceleration import Acceleration, Backward
from nmtkit.training.batches import Batch, Pairs, micro_batches, pack, updates
from nmtkit.training.distributed import GradientSums, Group
from nmtkit.training.loop import perplexity
from nmtkit.training.loss import CHUNK_TOKENS, FILLER
from nmtkit.training.setup import agreed
from nmtkit.training.trainer import Trainer

# Torch's compiler warns of itself, and fails where a filter turns warnings into errors.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),
]
MAX_TOKENS, LONGEST = 120, 9
CAPACITY = Capacity.of(MAX_TOKENS, LONGEST, 15.0)  # for fewer sentences than an update has
CAPTURED = Acceleration(static=True, captured=True)
EVERYTHING = Acceleration(torch.bfloat16, static=True, compiled=True, captured=True)
CUDA = torch.device("cuda")


@pytest.fixture
def fused_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the path of the GPU on a CPU, with a kernel of ours in the place of torch's."""
    monkeypatch.setattr(fast, "has_flash_attention", lambda *_: True)
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", attend)


@pytest.fixture
def recorded_graphs(monkeypatch: pytest.MonkeyPatch, fused_kernel: None) -> list[RecordedGraph]:
    """Record graphs on the CPU, in which only the kernel makes a gradient without asking."""
    del fused_kernel
    return record_graphs(monkeypatch)


@pytest.fixture
def without_code(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the compiler trace and differentiate as ever, but write no code: that takes long."""
    genuine: Callable[..., Any] = torch.compile
    monkeypatch.setattr(
        torch, "compile", lambda what, **how: genuine(what, backend="aot_eager", **how)
    )
    counters.clear()
    yield
    torch.compiler.reset()


def gradients(model: Transformer, acceleration: Acceleration) -> tuple[Tensor, list[Tensor]]:
    """The sums of an update's losses, and its gradients."""
    backward = Backward(model, 0.1, acceleration)
    capacity = CAPACITY if acceleration.static else None
    device = model.output_matrix.device
    group = Group(0, 1, device)
    sums = GradientSums(model, group)
    sums.clear()
    (update,) = itertools.islice(
        updates(corpus(), seed=3, max_length=LONGEST, src_tokens=120, tgt_tokens=120), 1
    )
    scale = 1 / int(corpus().tgt_lengths[update.pairs].sum())
    batches = [
        pack(corpus(), chosen, capacity).to(device)
        for chosen in micro_batches(corpus(), update.pairs, MAX_TOKENS, capacity)
    ]
    backward.rehearse(batches[:1])
    of_batches = [backward.add(batch, scale).cpu() for batch in batches]
    found = [parameter.grad for parameter in model.parameters()]
    return torch.stack(of_batches).sum(0), [each.cpu() for each in found if each is not None]


def assert_same_gradients(ours: Acceleration, *, n_layers: int = 1, atol: float = 1e-6) -> None:
    with pytest.MonkeyPatch.context() as plain:
        plain.setattr(fast, "has_flash_attention", has_flash_attention)
        expected = gradients(layers_of(n_layers), Acceleration())
    actual = gradients(layers_of(n_layers), ours)
    torch.testing.assert_close(actual[0], expected[0], rtol=1e-6, atol=0.0)
    assert len(actual[1]) == len(expected[1]) > 0
    for mine, theirs in zip(actual[1], expected[1], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0.0, atol=atol)


def layers_of(
    n_layers: int, dtype: torch.dtype = torch.float32, device: torch.device = CPU, d_model: int = 16
) -> Transformer:
    changes = {"n_layers": n_layers, "d_model": d_model, "d_k": d_model // 2, "d_v": d_model // 2}
    config = model_of().config.model_copy(update=changes)
    torch.manual_seed(1)
    return accelerate(Transformer(config, 23, dtype).to(device))


# Constant shapes


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=13))
def test_batches_of_one_capacity_have_one_shape(lengths: list[tuple[int, int]]) -> None:
    src, tgt = (list(side) for side in zip(*lengths, strict=True))
    offsets = [np.cumsum([0, *side]) for side in (src, tgt)]
    ids = np.arange(4, 4 + max(map(sum, (src, tgt))), dtype=np.uint16)
    pairs = Pairs(ids, offsets[0], ids, offsets[1])
    chosen = np.lexsort((src, tgt))
    plain, filled = pack(pairs, chosen), pack(pairs, chosen, CAPACITY)
    assert [tuple(each.shape) for each in filled.tensors] == [
        *3 * [(CAPACITY.n_tokens,)],
        *2 * [(CAPACITY.n_sentences + 1,), (CAPACITY.n_tokens,)],
    ]
    for row, real in ((filled.src, plain.src), (filled.tgt_in, plain.tgt_in)):
        assert torch.equal(row[: len(real)], real)
        assert (row[len(real) :] == BOS_ID).all()
    assert torch.equal(filled.tgt_out[: sum(tgt)], plain.tgt_out)
    assert (filled.tgt_out[sum(tgt) :] == FILLER).all()
    for layout, side in ((filled.src_layout, src), (filled.tgt_layout, tgt)):
        assert layout.lengths[: len(side)].tolist() == [side[i] for i in chosen]
        fillers = layout.lengths[len(side) :][: CAPACITY.n_fillers]
        assert 1 <= fillers.min() <= fillers.max() <= layout.max_seqlen == LONGEST
        assert (layout.lengths[len(side) + CAPACITY.n_fillers :] == 0).all()
        assert (layout.positions < LONGEST).all()


def test_constant_shapes_change_gradients_by_rounding_alone() -> None:
    assert_same_gradients(Acceleration(static=True))


# Attention by offsets, compiled layers


def test_a_gradient_never_asks_the_device_for_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph could not be captured then. The meta device has no values and mixes with no other.

    On it, torch's own kernel checks what it is given.
    """
    meta = torch.device("meta")
    monkeypatch.setattr(fast, "has_flash_attention", lambda *_: True)
    monkeypatch.setitem(CHUNK_TOKENS, "meta", 50)
    model = layers_of(2, torch.bfloat16, meta)
    with pytest.raises(RuntimeError, match="meta"):
        torch.ones((), device=meta).item()
    backward = Backward(model, 0.1, Acceleration(torch.bfloat16, static=True))
    batch = pack(corpus(), np.arange(3), CAPACITY).to(meta)
    assert backward.add(batch, 0.1).device == meta
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert (parameter.grad.device, parameter.grad.dtype) == (meta, torch.float32)


@pytest.mark.usefixtures("fused_kernel", "without_code")
def test_what_is_compiled_is_four_graphs_whatever_the_number_of_layers() -> None:
    """Those of an embedding, an encoder layer, a decoder layer, and the softmax of the loss."""
    assert_same_gradients(Acceleration(static=True, compiled=True), n_layers=3)
    assert counters["stats"]["unique_graphs"] == 4
    assert not counters["graph_break"]


@pytest.mark.slow
@pytest.mark.usefixtures("fused_kernel")
def test_compiled_code_changes_gradients_by_rounding_alone() -> None:
    assert_same_gradients(Acceleration(static=True, compiled=True), n_layers=2)
    torch.compiler.reset()


# One graph


def rehearsed(device: torch.device, how: Acceleration) -> tuple[Backward, Batch]:
    """With dropout, and what it has rehearsed."""
    config = layers_of(1, d_model=64).config.model_copy(update={"dropout": 0.3})
    model = accelerate(Transformer(config, 23, how.dtype).to(device))
    GradientSums(model, Group(0, 1, device)).clear()
    backward, batch = Backward(model, 0.1, how), pack(corpus(), np.arange(10), CAPACITY).to(device)
    backward.rehearse([batch])
    assert not any(each.grad.any() for each in model.parameters() if each.grad is not None)
    return backward, batch


def assert_dropout_follows_the_seed(device: torch.device, how: Acceleration) -> None:
    backward, batch = rehearsed(device, how)
    losses = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        losses.append(float(backward.add(batch, 0.0)[0]))
    assert losses[0] == losses[1] != losses[2]


def test_dropout_in_a_graph_follows_the_seed(recorded_graphs: list[RecordedGraph]) -> None:
    assert_dropout_follows_the_seed(CPU, CAPTURED)
    assert [graph.n_replays for graph in recorded_graphs] == [1 + 3]  # one is compared


def test_a_graph_changes_no_gradient(recorded_graphs: list[RecordedGraph]) -> None:
    assert_same_gradients(CAPTURED, n_layers=2)
    assert [graph.n_replays for graph in recorded_graphs] == [1 + 2]  # one for each row


def test_each_capacity_has_a_graph(recorded_graphs: list[RecordedGraph]) -> None:
    """One that was not rehearsed has none, and is computed all the same."""
    capacities = [Capacity.of(MAX_TOKENS, LONGEST, mean_length) for mean_length in (6.0, 5.0, 4.0)]
    batches = [pack(corpus(), np.arange(i, i + 8), each) for i, each in enumerate(capacities)]
    expected, actual = layers_of(2), layers_of(2)
    plain, backward = (
        Backward(model, 0.1, how) for model, how in ((expected, Acceleration()), (actual, CAPTURED))
    )
    backward.rehearse(batches[:2])
    for batch in batches:
        sums = [each.add(batch, 0.1) for each in (plain, backward)]
        torch.testing.assert_close(*sums, rtol=1e-6, atol=0.0)
    for theirs, mine in zip(expected.parameters(), actual.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=0.0, atol=1e-6)
    first, second = recorded_graphs
    assert first.n_replays == second.n_replays == 1 + 1
    assert second.captured_in == (first.pool(), first.captured_in[1])  # one pool and stream


@pytest.mark.usefixtures("recorded_graphs")
@pytest.mark.parametrize("what", ["dropout", "gradient", "loss"])
def test_graphs_that_differ_from_what_they_were_captured_from_are_refused(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    genuine = RecordedGraph.replay

    def spoilt(graph: RecordedGraph) -> None:
        if what == "dropout":
            torch.manual_seed(99)
        genuine(graph)
        if what == "gradient":
            genuine(graph)
        if what == "loss":
            graph.results[-1].mul_(1.01)

    monkeypatch.setattr(RecordedGraph, "replay", spoilt)
    with pytest.raises(RuntimeError, match="gradients are"):
        rehearsed(CPU, CAPTURED)


@pytest.mark.parametrize("device", [CPU, pytest.param(CUDA, marks=pytest.mark.gpu)])
def test_an_evaluation_moves_nothing_that_a_graph_reads(device: torch.device) -> None:
    """A graph reads and writes where the parameters, their gradients and the buffers were."""
    model = layers_of(1, device=device)
    GradientSums(model, Group(0, 1, device)).clear()
    gradients(model, Acceleration())

    def places() -> list[int]:
        parameters = list(model.parameters())
        of_gradients = [each.grad for each in parameters if each.grad is not None]
        assert len(of_gradients) == len(parameters)
        return [each.data_ptr() for each in (*parameters, *of_gradients, *model.buffers())]

    before = places()
    assert len(before) > 2 * len(list(model.parameters()))
    longer = [[*range(4, 4 + LONGEST), EOS_ID]]  # than any position that is trained
    ids, offsets = np.array(longer[0], np.uint16), np.array([0, LONGEST + 1])
    perplexity(model, Pairs(ids, offsets, ids, offsets), device=device, max_tokens=MAX_TOKENS)
    decoding = DecodingConfig(beam_size=2, length_penalty=0.6, max_extra_tokens=3)
    TorchEngine([model], 23).translate(longer, decoding, 1, lambda _: None)
    assert places() == before


# bfloat16


def test_gradients_in_bfloat16_point_where_those_in_float32_do() -> None:
    sums, exact = gradients(layers_of(2, d_model=64), Acceleration())
    rounded_sums, rounded = gradients(
        layers_of(2, torch.bfloat16, d_model=64), Acceleration(torch.bfloat16)
    )
    assert not torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
    # Values are rounded to 8 bits, 0.4 %: sums of many are off by less, what came through several
    # layers by more.
    torch.testing.assert_close(rounded_sums, sums, rtol=2e-3, atol=0.0)
    for mine, theirs in zip(rounded, exact, strict=True):
        assert torch.cosine_similarity(mine.flatten(), theirs.flatten(), dim=0) > 0.99
        assert mine.norm() == pytest.approx(float(theirs.norm()), rel=0.03)


# What is taken where


def test_a_gpu_takes_all_that_its_model_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceleration, "has_compiler", lambda: True)
    config = model_of().config
    half = torch.bfloat16

    def of(device: torch.device, dtype: torch.dtype, **changes: Any) -> Acceleration:
        how: dict[str, Any] = {"config": config, "deterministic": False, **changes}
        return Acceleration.of(device=device, dtype=dtype, **how)

    assert of(CUDA, half) == EVERYTHING
    assert of(CUDA, half, most="compile") == replace(EVERYTHING, captured=False)
    assert of(CUDA, half, most="none") == Acceleration(half)
    assert of(CUDA, half, deterministic=True) == Acceleration(half)
    assert of(CUDA, half, config=config.model_copy(update={"d_v": 16})) == Acceleration(half)
    dropout = config.model_copy(update={"attention_dropout": 0.1})
    assert of(CUDA, half, config=dropout) == Acceleration(half)
    neighbourhood = config.model_copy(update={"neighbourhood": 9})
    assert of(CUDA, half, config=neighbourhood) == EVERYTHING
    assert of(CUDA, torch.float32) == Acceleration()
    assert of(CPU, half) == Acceleration(half)
    assert str(EVERYTHING) == "bfloat16, static, compiled, captured"
    assert agreed(EVERYTHING, ALONE) == EVERYTHING
    monkeypatch.setattr("torch.distributed.all_reduce", lambda values: values.add_(values.flip(0)))
    assert agreed(EVERYTHING, Group(0, 2, CUDA)) == replace(EVERYTHING, captured=False)


# What is done without, because it fails


def out_of_order(*_args: Any, **_how: Any) -> Any:
    raise RuntimeError("out of order\nsomewhere in C++")


def trainer_of(how: Acceleration, group: Group = ALONE, max_tokens: int = MAX_TOKENS) -> Trainer:
    return Trainer(layers_of(1), corpus(), config_of(), group, how, max_tokens)


def assert_same_steps(ours: Trainer, theirs: Trainer) -> None:
    for mine, other in zip(ours.coming(3), theirs.coming(3), strict=True):
        assert ours.step(mine).loss == theirs.step(other).loss
        assert len(mine.batches) == len(other.batches)


def compile_out_of_order(layer: torch.nn.Module, **how: Any) -> None:
    layer._compiled_call_impl = None if how["disable"] else out_of_order


@pytest.mark.usefixtures("recorded_graphs", "without_code")
@pytest.mark.parametrize(
    ("place", "fault", "left"),
    [
        ("torch.cuda.graph", out_of_order, Acceleration(static=True, compiled=True)),
        ("torch.nn.Module.compile", compile_out_of_order, Acceleration(static=True)),
        ("torch.nn.attention.varlen.varlen_attn", out_of_order, Acceleration()),
    ],
)
def test_a_technique_that_fails_is_left_out_before_the_first_step(
    monkeypatch: pytest.MonkeyPatch, place: str, fault: Callable[..., Any], left: Acceleration
) -> None:
    said: list[str] = []
    monkeypatch.setattr(place, fault)
    ours = trainer_of(Acceleration(static=True, compiled=True, captured=True))
    before = [torch.get_rng_state(), *(each.detach().clone() for each in ours.model.parameters())]
    ours.rehearse(3, warn=said.append)
    assert ours.acceleration == left
    (sentence,) = said
    assert "out of order" in sentence
    assert "\n" not in sentence
    assert all(map(torch.equal, before, [torch.get_rng_state(), *ours.model.parameters()]))
    assert_same_steps(ours, trainer_of(left))


class Scripted(Group):
    """A group of which another process answers `any` as the script says."""

    script: ClassVar[list[bool]] = []

    def any(self, flag: bool) -> bool:
        return self.script.pop(0) or flag


def test_what_fails_elsewhere_is_left_out_here_too(fused_kernel: None) -> None:
    """For the memory, then for the kernel of another process: whether it is short, or fails."""
    del fused_kernel
    said: list[str] = []
    ours = trainer_of(Acceleration(static=True), Scripted(0, 1, CPU))
    Scripted.script = [True, True, False, True, False, False]
    ours.rehearse(3, warn=said.append)
    assert (ours.acceleration, ours.max_tokens) == (Acceleration(), MAX_TOKENS // 2)
    assert len(said) == 1
    assert Scripted.script == []
    assert_same_steps(ours, trainer_of(Acceleration(), max_tokens=MAX_TOKENS // 2))


def test_a_failure_with_nothing_left_to_do_without_is_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours = trainer_of(Acceleration())
    monkeypatch.setattr(acceleration, "batch_losses", out_of_order)
    with pytest.raises(RuntimeError, match=r"^out of order"):
        ours.rehearse(3)


# On a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("neighbourhood", [None, 1, 8, 64])
def test_flash_attention_equals_rectangles(causal: bool, neighbourhood: int | None) -> None:
    layout = PackedLayout.of_lengths([1, 2, 31, 256, 1, 70]).to(CUDA)
    torch.manual_seed(1)
    qkv = [torch.randn(3, len(layout.positions), 64, device=CUDA) for _ in "qkv"]
    window = window_of(causal=causal, neighbourhood=neighbourhood)
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        q, k, v = (each.to(dtype).requires_grad_() for each in qkv)
        out = fast_attention(q, k, v, PackedMask(layout, layout, window))
        found.append([out, *torch.autograd.grad(out.float().square().sum(), (q, k, v))])
    for exact, rounded in zip(*found, strict=True):
        assert (rounded.float() - exact).norm() < 0.02 * exact.norm()


@pytest.mark.gpu
@pytest.mark.parametrize("techniques", [(True,), (True, True), (True, True, True)])
def test_each_technique_changes_gradients_by_rounding_alone(techniques: tuple[bool, ...]) -> None:
    how = Acceleration(torch.bfloat16, *techniques)
    expected, actual = (
        gradients(layers_of(2, each.dtype, CUDA, d_model=64), each)
        for each in (Acceleration(torch.bfloat16), how)
    )
    torch.testing.assert_close(actual[0], expected[0], rtol=2e-3, atol=0.0)
    for mine, theirs in zip(actual[1], expected[1], strict=True):
        assert torch.cosine_similarity(mine.flatten(), theirs.flatten(), dim=0) > 0.99


@pytest.mark.gpu
def test_dropout_in_a_genuine_graph_follows_the_seed() -> None:
    assert_dropout_follows_the_seed(CUDA, EVERYTHING)


@pytest.mark.gpu
def test_training_on_a_gpu_has_the_curve_of_the_cpu(tmp_path: Path) -> None:
    config = config_of(max_steps=50, warmup_steps=200)
    curves = []
    for each, device in ((Acceleration(), CPU), (EVERYTHING, CUDA)):
        directory = tmp_path / device.type
        model = layers_of(1, each.dtype, device)
        run(directory, model, config, how=each, group=Group(0, 1, device))
        curves.append([line["loss"] for line in losses(directory)])
    np.testing.assert_allclose(curves[0], curves[1], rtol=5e-3)


@pytest.mark.gpu
def test_a_step_never_makes_the_host_wait_for_what_was_queued() -> None:
    """But for the numbers of the step before, which an event tells of."""
    model, group = layers_of(1, EVERYTHING.dtype, CUDA), Group(0, 1, CUDA)
    trainer = Trainer(model, corpus(), config_of(), group, EVERYTHING, 75)
    steps = trainer.steps(trainer.coming(), is_due=lambda _: False)
    for _ in range(3):  # compile and capture
        next(steps)
    torch.cuda.set_sync_debug_mode("error")
    try:
        found = [next(steps) for _ in range(5)]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert [metrics.step for _, metrics, _ in found] == [4, 5, 6, 7, 8]
    assert {asked for _, _, asked in found} == {None}
