"""Measurements of training on a GPU: gradients against a CPU, speed, memory and kernels."""

import json
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from rich.filesize import decimal
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.profiler import ProfilerActivity, profile

from nmtkit.benchmark import selftest
from nmtkit.benchmark.selftest import Check, failed_check
from nmtkit.benchmark.speed import flops_per_second, peak_memory, time_steps
from nmtkit.benchmark.trial import TrialText, trial_text
from nmtkit.config.loading import load_recipe
from nmtkit.config.settings import Settings
from nmtkit.fast.bins import ATTENTION_KERNELS, BinLayout, bin_mask
from nmtkit.fast.peak import measured_peak
from nmtkit.model.attention import attention_window
from nmtkit.stages.pipeline import Pipeline
from nmtkit.stages.training_setup import choose_setup, new_trainer, root_cause, start_trainer
from nmtkit.training.acceleration import Acceleration, Level
from nmtkit.training.batches import Ints
from nmtkit.training.bins import Bins, fill_bins, pack_bins
from nmtkit.training.distributed import Group
from nmtkit.training.micro_batches import Batch, pack
from nmtkit.training.step import Setup, Trainer
from nmtkit.utils.errors import RestartNeeded, UserError
from nmtkit.utils.interrupts import AGENT
from nmtkit.utils.processes import nmtkit_command
from nmtkit.utils.text import shorten

CPU = torch.device("cpu")
PLAIN = Acceleration(torch.float32, Level.EAGER)  # no optimization: the reference

# Tokens per side whose gradient is compared: a CPU computes that of the base model in seconds.
COMPARED_TOKENS = 4_096
# Maximum relative errors of the loss and of the gradient, by the precision of activations. On a
# CPU, the gradient of base is off by 2e-4 in float32, 2e-2 in float16 and 6e-2 in bfloat16.
MAX_ERRORS = {
    torch.float32: (1e-5, 1e-3),
    torch.bfloat16: (2e-3, 0.15),
    torch.float16: (2e-3, 0.05),
}
SPEED_SECONDS = {"cuda": 8.0, "cpu": 3.0}
PEAK_SECONDS = 1.0
ATTENTION_TOKENS = {"cuda": 25_600, "cpu": 1_024}  # per side
N_ATTENTIONS = 5  # the first is the slowest
N_PROFILED_STEPS = 3
N_KERNELS = 10
MAX_KERNEL_LENGTH = 80  # characters of a name


def _open(name: str, settings: Settings, overrides: Sequence[str] = ()) -> tuple[Setup, TrialText]:
    """Return the setup and the text of a recipe on one device.

    Args:
        settings: The device and the precision.
        overrides: Values of the recipe, as for `--set`.
    """
    pipeline = Pipeline(load_recipe(name, overrides), settings, name, overrides)
    setup = choose_setup(pipeline, Group(0, 1, settings.torch_device()))
    return setup, trial_text(pipeline)


def compare_gradients(name: str, settings: Settings, levels: Sequence[Level]) -> Iterator[Check]:
    """Compare the loss and the gradient of a micro-batch in bins with those of a CPU in float32.

    The micro-batch has the shape of training. Some sentences are spread over its bins; the rest is
    padding. Dropout is off, since its random numbers differ between devices. Kernels in float32
    are compared too, since rounding to 16 bits hides small errors.

    Args:
        settings: The device and the precision.
        levels: The levels to compare, from the lowest.
    """
    setup, text = _open(name, settings, ("model.dropout=0.0",))
    n_rows = setup.model.embedding_rows(text.n_tokens)
    accelerations = [replace(setup.acceleration, level=level) for level in levels]
    if PLAIN not in accelerations:
        accelerations.insert(0, PLAIN)
    expected = None
    for acceleration in accelerations:
        what = f"{name}, {acceleration}: loss and gradient"
        try:
            bins_setup = replace(setup, acceleration=acceleration, use_bins=True)
            trainer = new_trainer(bins_setup, text.pairs, n_rows)
            bins = _sparse_bins(trainer)
            if expected is None:
                chosen = np.concatenate([np.array(pairs, np.int64) for pairs in bins])
                expected = _reference(setup, text, chosen)
            batch = fill_bins(text.pairs, bins, trainer.bin_shapes[0]).to(setup.group.device)
            if acceleration.level == Level.CAPTURED:
                trainer.gradients.capture([batch])
            yield _compare(what, trainer, _loss_and_gradient(trainer, batch), expected)
            del trainer
        except Exception as error:  # noqa: BLE001 - compilers raise errors of many kinds
            yield failure(what, error)


def _sparse_bins(trainer: Trainer) -> Bins:
    """Spread some pairs of an update over the bins of the largest micro-batch.

    The other bins stay empty.
    """
    shape = trainer.bin_shapes[0]
    pairs = next(trainer.updates()).pairs
    sizes = np.maximum(trainer.pairs.src_lengths[pairs], trainer.pairs.tgt_lengths[pairs])
    pairs = pairs[sizes <= shape.length]
    sizes = sizes[sizes <= shape.length]
    chosen = pairs[sizes.cumsum() <= COMPARED_TOKENS]
    filled = pack_bins(trainer.pairs, chosen, shape.length)[: shape.n_bins]
    bins: Bins = [[] for _ in range(shape.n_bins)]
    # Empty bins between full ones show whether padding changes the gradient.
    for number, indices in enumerate(filled):
        bins[number * shape.n_bins // len(filled)] = indices
    return bins


def _reference(setup: Setup, text: TrialText, chosen: Ints) -> tuple[float, list[Tensor]]:
    """Return the loss and the gradient of some pairs, by a CPU in float32.

    It computes packed sequences, not bins.

    Args:
        chosen: Indices of the pairs (N,).
    """
    cpu_setup = replace(setup, group=Group(0, 1, CPU), acceleration=PLAIN, use_bins=False)
    trainer = new_trainer(cpu_setup, text.pairs, setup.model.embedding_rows(text.n_tokens))
    return _loss_and_gradient(trainer, pack(text.pairs, chosen))


def _loss_and_gradient(trainer: Trainer, batch: Batch | Tensor) -> tuple[float, list[Tensor]]:
    """Return the smoothed loss of a micro-batch, and its gradient in float32 on the CPU."""
    trainer.model.train()
    trainer.gradients.start_update()
    device = trainer.group.device
    losses = trainer.gradients.add(batch, torch.ones((), dtype=torch.float64, device=device))
    gradient = []
    for parameter in trainer.gradients.parameters:
        assert parameter.grad is not None
        gradient.append(parameter.grad.detach().float().cpu())
    return losses[0].item(), gradient


def _compare(
    what: str,
    trainer: Trainer,
    actual: tuple[float, list[Tensor]],
    expected: tuple[float, list[Tensor]],
) -> Check:
    """Return whether a loss and a gradient differ from the expected ones by rounding only.

    Args:
        what: The name of the check.
        actual: The loss, and the gradient of each parameter.
        expected: Likewise, by the reference.
    """
    loss_error = abs(actual[0] / expected[0] - 1)
    norms = []
    differences = []
    for gradient, expected_gradient in zip(actual[1], expected[1], strict=True):
        norms.append(expected_gradient.norm())
        differences.append((gradient - expected_gradient).norm())
    gradient_error = (torch.stack(differences).norm() / torch.stack(norms).norm()).item()
    max_loss_error, max_gradient_error = MAX_ERRORS[trainer.setup.acceleration.dtype]
    # A comparison with NaN is false.
    is_close = loss_error <= max_loss_error and gradient_error <= max_gradient_error
    shape = trainer.bin_shapes[0]
    seen = (
        f"relative errors of {loss_error:.1e} (maximum {max_loss_error:g}) and "
        f"{gradient_error:.1e} (maximum {max_gradient_error:g}) against a CPU in float32; "
        f"micro-batch of {shape.n_bins} x {shape.length}"
    )
    figures = {"loss_error": loss_error, "gradient_error": gradient_error}
    return Check(what, "passed" if is_close else "failed", seen, figures)


def measure_training(
    name: str, settings: Settings, level: Level, *, with_kernels: bool
) -> Iterator[Check]:
    """Measure the training of a recipe at one level.

    Args:
        settings: The device and the precision.
        level: The level. A fallback to a lower one is a failure.
        with_kernels: List the kernels by time too.
    """
    setup, text = _open(name, settings)
    setup = replace(setup, acceleration=replace(setup.acceleration, level=level))
    what = f"{name}, {setup.acceleration}"
    device = setup.group.device
    n_rows = setup.model.embedding_rows(text.n_tokens)
    dtype = setup.acceleration.dtype
    peak = measured_peak(device, PEAK_SECONDS, dtype)
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)

    begin = time.perf_counter()
    try:
        trainer = start_trainer(setup, text.pairs, n_rows)
    except RestartNeeded as restart:
        yield Check(what, "failed", str(restart))
        return
    start_seconds = time.perf_counter() - begin
    if trainer.setup.acceleration.level < level:
        seen = f"trains with {trainer.setup.acceleration}; a warning above names the cause"
        yield Check(what, "failed", seen)
        return
    start_figures = {"start_seconds": start_seconds}
    seen = f"{start_seconds:.1f} s before step 1"
    if trainer.setup.max_tokens < setup.max_tokens:
        seen += f"; memory was short for {setup.max_tokens:,} tokens per micro-batch"
    yield Check(f"{what}: start", "passed", seen, start_figures)

    timed = time_steps(trainer, SPEED_SECONDS[device.type])
    ms_per_step = 1e3 * timed.seconds / timed.n_steps
    speed = timed.tgt_tokens / timed.seconds
    n_bytes = peak_memory(device)
    # The speed of a shared machine varies, so its peak is measured before and after.
    peak = max(peak, measured_peak(device, PEAK_SECONDS, dtype))
    share = flops_per_second(trainer, timed) / peak
    figures = {
        "ms_per_step": ms_per_step,
        "tgt_tokens_per_second": speed,
        "peak_bytes": float(n_bytes),
        "mfu": share,
        "peak_flops": peak,
    }
    seen = (
        f"{ms_per_step:,.1f} ms per step, {speed:,.0f} target tokens/s, {decimal(n_bytes)}, "
        f"{share:.1%} of a measured peak of {peak / 1e12:,.1f} TFLOP/s"
    )
    yield Check(f"{what}: speed", "passed", seen, figures)
    if with_kernels:
        yield from _kernels(what, trainer)


def compare_attention(name: str, settings: Settings) -> Iterator[Check]:
    """Time both passes of one attention in bins, by each kernel of torch that takes a mask.

    Training uses only `ATTENTION_KERNELS`; the others show what this costs.

    Args:
        settings: The device and the precision.
    """
    model = load_recipe(name).model
    device = settings.torch_device()
    dtype = settings.torch_dtype(device, model.d_model)
    n_bins = ATTENTION_TOKENS[device.type] // model.max_positions
    # Sentences of 32 tokens, end to end.
    positions = torch.arange(model.max_positions, device=device).expand(n_bins, -1)
    layout = BinLayout(positions // 32 + 1, positions % 32)
    mask = bin_mask(layout, layout, attention_window(causal=False), dtype)
    shape = (n_bins, model.n_heads, model.max_positions, model.d_k)
    q, k, v = (torch.randn(shape, device=device).to(dtype).requires_grad_() for _ in range(3))
    for backend in (*ATTENTION_KERNELS, SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION):
        what = f"{name}: attention by {backend.name.lower()}"
        seconds = []
        try:
            for _ in range(N_ATTENTIONS):
                begin = time.perf_counter()
                with sdpa_kernel(backend):
                    out = scaled_dot_product_attention(q, k, v, attn_mask=mask)
                gradients = torch.autograd.grad(out.sum(), (q, k, v))
                is_finite = all(bool(gradient.isfinite().all()) for gradient in gradients)
                seconds.append(time.perf_counter() - begin)
        except RuntimeError as error:  # this kernel does not take a mask, or not on this device
            yield Check(what, "skipped", shorten(str(error).split("\n")[0], MAX_KERNEL_LENGTH))
            continue
        ms = 1e3 * min(seconds)
        seen = f"{ms:,.2f} ms" if is_finite else f"{ms:,.2f} ms, but its gradient is not finite"
        yield Check(what, "passed" if is_finite else "noted", seen, {"ms": ms})


def _kernels(what: str, trainer: Trainer) -> Iterator[Check]:
    """Yield the kernels that take most time, in milliseconds per step. On a CPU, operators."""
    is_gpu = trainer.group.device.type == "cuda"
    updates = trainer.prepared_updates()
    activity = ProfilerActivity.CUDA if is_gpu else ProfilerActivity.CPU
    # Without `acc_events`, torch 2.11 warns that it keeps the events of one cycle. There is only
    # one.
    with profile(activities=[activity], acc_events=True) as profiler:
        for _ in range(N_PROFILED_STEPS):
            trainer.train_step(next(updates)).wait()
    milliseconds: dict[str, float] = {}
    for event in profiler.key_averages():
        # Annotations and launches contain the time of kernels, but kernels are listed themselves.
        if event.is_user_annotation or (is_gpu and event.device_type.name != "CUDA"):
            continue
        microseconds = event.self_device_time_total if is_gpu else event.self_cpu_time_total
        before = milliseconds.get(event.key, 0.0)
        milliseconds[event.key] = before + microseconds / 1e3 / N_PROFILED_STEPS
    # A profiler that cannot read the GPU records no kernels: then the total is 0.
    total = sum(milliseconds.values())
    longest = sorted(milliseconds, key=lambda name: -milliseconds[name])[:N_KERNELS]
    lines = [f"{total:,.2f} ms per step in all; the longest:"]
    figures = {}
    for name in longest:
        figures[name] = milliseconds[name]
        lines.append(f"{milliseconds[name]:9,.2f} ms  {shorten(name, MAX_KERNEL_LENGTH)}")
    kind = "kernels" if is_gpu else "operators"
    state: selftest.State = "passed" if total > 0 else "failed"
    yield Check(f"{what}: {kind}", state, "\n".join(lines), figures)


def measure_two_processes(name: str, settings: Settings) -> Iterator[Check]:
    """Measure the speed of two processes, each on its own device, with `nmtkit plan`."""
    options = replace(settings, processes=2).options()
    command = nmtkit_command("--quiet", "plan", name, "--json", *options)
    # The command ends if this process is killed.
    variables = {**os.environ, AGENT: str(os.getpid())}
    ended = subprocess.run(  # noqa: S603 - nmtkit itself
        command, capture_output=True, encoding="utf-8", env=variables, check=False
    )
    if ended.returncode != 0:
        raise UserError(ended.stderr.strip().split("\n")[-1])
    speed = json.loads(ended.stdout)["tgt_tokens_per_second"]
    figures = {"tgt_tokens_per_second": speed}
    seen = f"{speed:,.0f} target tokens/s"
    yield Check(f"{name}, two processes: speed", "passed", seen, figures)


def failure(what: str, error: BaseException) -> Check:
    """Return the result of a measurement that raised `error`: a failure, by its root cause."""
    if isinstance(error, UserError):
        return failed_check(what, error)
    return Check(what, "failed", shorten(root_cause(error), selftest.MAX_ERROR_LENGTH))
