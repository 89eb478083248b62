"""nmtkit selftest --gpu: prove each device, then several processes, by what they compute.

What trains or is timed is the command that a user types, in processes of its own.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from itertools import product
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.benchmark import Timer

from nmtkit.cli import selftest
from nmtkit.cli.selftest import LOSSES, Check, Figures, Seen, attempt
from nmtkit.config.loading import load_recipe
from nmtkit.config.settings import Settings
from nmtkit.corpus.chunks import call_apart, map_chunks
from nmtkit.fast.bins import BinLayout, bin_attention, bin_mask
from nmtkit.model.attention import attention as equation_1
from nmtkit.model.attention import window_of
from nmtkit.training.acceleration import Acceleration
from nmtkit.training.metrics import METRICS, read_metrics
from nmtkit.utils.child_processes import nmtkit_command
from nmtkit.utils.errors import UserError

# Relative errors that are rounding. Products in TensorFloat-32 would be off by 1e-3.
OF_PRODUCTS = {torch.float32: 1e-5, torch.bfloat16: 1e-2}
OF_ATTENTION = 2e-2
OF_LOSSES, OF_BFLOAT16 = 1e-4, 2e-3
# An update of the paper: 25,000 tokens in bins, with sentences of about the length of WMT14.
N_BINS, BIN_LENGTH, SENTENCE_LENGTH = 98, 256, 31
HEADS, WIDTH = 8, 64  # of the base model
N_TIMED = 5
SUMMED = {"cuda": 2**28, "cpu": 2**24}  # bytes; as many as gradients of the base model, or fewer
N_STEPS = 50
EARLY = max(LOSSES)  # until when differences of losses are rounding alone
PATIENCE_S = 300.0
SPEEDS = ("wmt14-en-de-base", "wmt14-en-de-big")


def gpu_checks(settings: Settings, folder: Path) -> Iterator[Check]:
    """Yield each check as soon as it is made; without several GPUs, processes share the CPU."""
    yield from selftest.environment(settings)
    n_devices = torch.cuda.device_count()
    peak = 0.0
    if n_devices:
        yield attempt("connections", connections)
        with ThreadPoolExecutor(n_devices) as threads:  # each waits for its processes
            for checks in threads.map(lambda index: [*device_checks(index)], range(n_devices)):
                yield from checks
                peak = max(peak, *(check.figures.get("peak_flops", 0.0) for check in checks))
    counts = sorted({n for n in (1, 2, 4, n_devices) if 0 < n <= n_devices})
    device, several = ("cuda", counts[1:]) if n_devices > 1 else ("cpu", [2, 3])
    for n in several:
        yield attempt(f"sum, {n} x {device}", all_reduce, folder, n, device)
    yield from trainings(folder, n_devices, device, several)
    for recipe, n in product(SPEEDS, counts):
        yield attempt(f"{recipe}, {n} x cuda", speed, folder, recipe, n, peak)


def connections() -> Seen:
    """Name what lies between PyTorch and the devices, and how these are connected."""
    nccl = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
    shared = shutil.disk_usage("/dev/shm").total / 1e9  # noqa: S108 - memory that NCCL needs
    said = [f"CUDA {torch.version.cuda}, NCCL {nccl}, {shared:.1f} GB of /dev/shm"]
    for asked in (("--query-gpu=driver_version", "--format=csv"), ("topo", "-m")):
        if command := shutil.which("nvidia-smi"):
            printed = re.sub(r"\x1b\[\d*m", "", _printed(command, *asked)).strip()
            said += [" ".join(line.split()) for line in printed.split("\n\n")[0].split("\n")]
    return "; ".join(said), {"shared_gigabytes": shared}


# One device


def device_checks(index: int) -> Iterator[Check]:
    """Make each check in a process of its own, which an illegal access spoils."""
    device = torch.device("cuda", index)
    dtype = Settings(Path()).torch_dtype(device)
    how = Acceleration.choose(device, dtype)
    looks: dict[str, Callable[[torch.device], Seen]] = {"products": partial(products, dtype=dtype)}
    looks["attention"] = attention
    for what, look in looks.items():
        there = partial(call_apart, partial(_on_current, look), if_killed="its process was killed")
        yield attempt(f"{device} {what}", there, device)
    yield attempt(f"{device} training", rehearsal, device, how)


def _on_current(look: Callable[[torch.device], Seen], device: torch.device) -> Seen:
    torch.cuda.set_device(device)
    return look(device)


def products(device: torch.device, dtype: torch.dtype) -> Seen:
    """Multiply matrices in float32 and in `dtype`, and compare with float64 on the CPU."""
    for each in (torch.float32, dtype):
        generator = torch.Generator().manual_seed(1)
        x, w = (torch.randn(1_024, 1_024, generator=generator).to(each) for _ in range(2))
        exact = x.double() @ w.double()
        _check_near((x.to(device) @ w.to(device)).cpu(), exact, OF_PRODUCTS[each])
    return f"as on the CPU, in float32 and {dtype}", {}


def _check_near(found: Tensor, exact: Tensor, most: float) -> None:
    """Raise a UserError if the relative norm of a difference exceeds `most`, or is no number."""
    error = float((found.double() - exact.double()).norm() / exact.double().norm())
    if not error <= most:
        raise UserError(f"off by {error:.1e}; rounding would be at most {most:.0e}")


def attention(device: torch.device) -> Seen:
    """Compare the attention of bins with equation 1 in float32, both passes, and time it."""
    sentences = torch.arange(N_BINS * BIN_LENGTH, device=device).view(N_BINS, BIN_LENGTH)
    sentences = sentences % BIN_LENGTH // SENTENCE_LENGTH + 1
    positions = torch.arange(BIN_LENGTH, device=device).expand(N_BINS, -1) % SENTENCE_LENGTH
    layout = BinLayout(sentences, positions)
    mask = bin_mask(layout, layout, window_of(causal=True))
    qkv = torch.randn(3, N_BINS, HEADS, BIN_LENGTH, WIDTH, device=device)
    exact = _both_passes(equation_1, qkv, mask)
    both = partial(_both_passes, bin_attention, qkv.to(torch.bfloat16), mask)
    for found, expected in zip(both(), exact, strict=True):
        _check_near(found, expected, OF_ATTENTION)
    ms = 1e3 * Timer("both()", globals={"both": both}).timeit(N_TIMED).mean
    seen = f"as equation 1; both passes of {N_BINS:,} bins of {BIN_LENGTH}: {ms:.2f} ms"
    return seen, {"attention_ms": ms}


def _both_passes(attend: Callable[..., Tensor], qkv: Tensor, mask: Tensor) -> Sequence[Tensor]:
    """Return what attention computes for (3, B, H, L, K), and the gradients of its inputs."""
    q, k, v = (tensor.requires_grad_() for tensor in qkv.clone())
    out = attend(q, k, v, mask, 0.0)
    return [out.detach(), *torch.autograd.grad(out.float().square().sum(), (q, k, v))]


def rehearsal(device: torch.device, how: Acceleration) -> Seen:
    """Train with dropout, which must do without none of its techniques.

    Training compares the graphs with what they were captured from, under one seed; losses of the
    demo are compared below.
    """
    command = ("bench", "train", "demo", f"--device={device}", "--set=model.dropout=0.3")
    (found,) = json.loads(_printed(*_nmtkit(*command, "--seconds=1", "--json")))
    if found["way"] != str(how):
        why = f"`nmtkit {' '.join(command)}` says why"
        raise UserError(f"trains with {found['way']} in place of {how}; {why}")
    peak = found["peak_flops"]
    return f"trains with {how}; products at {peak / 1e12:.1f} TFLOP/s", {"peak_flops": peak}


# Several processes


def all_reduce(folder: Path, n: int, device: str) -> Seen:
    """Sum numbers of `n` processes, as training does with gradients."""
    work = partial(_sum, n, device, f"file://{folder}/store-{n}")
    rate = min(map_chunks(work, range(n), workers=n))
    return f"{rate / 1e9:.2f} GB/s on each link of a ring", {"bytes_per_second": rate}


def _sum(n: int, device: str, store: str, rank: int) -> float:
    if device == "cuda":
        torch.cuda.set_device(rank)
    backend, patience = {"cuda": "nccl", "cpu": "gloo"}[device], timedelta(seconds=PATIENCE_S)
    dist.init_process_group(backend, store, patience, n, rank)
    values = torch.full((SUMMED[device] // 4,), float(rank), device=device)
    dist.all_reduce(values)
    _check_near(values, torch.full_like(values, n * (n - 1) / 2), 0.0)
    work = {"sum": dist.all_reduce, "values": values}
    seconds = Timer("sum(values)", globals=work).timeit(N_TIMED).mean
    dist.destroy_process_group()
    return 2 * (n - 1) / n * SUMMED[device] / seconds


def trainings(folder: Path, n_devices: int, device: str, several: list[int]) -> Iterator[Check]:
    """Train the demo in several ways: first as on other machines, then as on one CPU process."""
    ways = {"1 x cpu": _on("cpu", 1)}
    if n_devices:
        ways["plain"] = [*_on("cuda", 1), "--accelerate=none", "--dtype=float32"]
        ways["1 x cuda"] = _on("cuda", 1)
    ways |= {f"{n} x {device}": _on(device, n) for n in several}
    expected: Figures = {f"loss_{step}": loss for step, loss in LOSSES.items()}
    for name, options in ways.items():
        most = OF_BFLOAT16 if name.endswith("cuda") else OF_LOSSES
        check = attempt(f"demo, {name}", train_demo, folder, options, expected, most)
        yield check
        expected = {**check.figures, **expected}


def _on(device: str, n: int) -> list[str]:
    return [f"--device={device}", f"--processes={n}"]


def train_demo(folder: Path, options: list[str], expected: Figures, most: float) -> Seen:
    """Train the demo from its first step, and compare its losses with those `expected`."""
    shutil.rmtree(folder / "train", ignore_errors=True)
    runs_dir = f"--runs-dir={folder}"
    steps = (f"--set=training.max_steps={N_STEPS}", "--set=averaging.n_checkpoints=1")
    _printed(*_nmtkit("prepare", "demo", runs_dir))
    _printed(*_nmtkit("train", "demo", *steps, runs_dir, *options))
    (path,) = folder.glob(f"train/*/{METRICS}")
    losses = {f"loss_{line['step']}": line["loss"] for line in read_metrics(path)}
    early = [name for name in losses if name in expected][:EARLY]
    ours, theirs = (torch.tensor([of[name] for name in early]) for of in (losses, expected))
    _check_near(ours, theirs, most)
    shown = (f"{losses[f'loss_{step}']:.4f}" for step in (*LOSSES, N_STEPS))
    return f"losses of steps {', '.join(map(str, (*LOSSES, N_STEPS)))}: {', '.join(shown)}", losses


def _nmtkit(*arguments: str) -> list[str]:
    return nmtkit_command("--quiet", *arguments)


def _printed(*command: str) -> str:
    """Return what a command prints; raise a UserError with its last words if it fails."""
    ended = subprocess.run(  # noqa: S603 - nothing in it comes from outside
        command, capture_output=True, encoding="utf-8", timeout=PATIENCE_S, check=False
    )
    if ended.returncode:
        raise UserError(ended.stderr.strip().split("\n")[-1])
    return ended.stdout


def speed(folder: Path, recipe: str, n: int, peak: float) -> Seen:
    """Time the training of a model on `n` devices of this peak, in FLOP/s."""
    on = [f"--runs-dir={folder}", *_on("cuda", n)]
    plan = json.loads(_printed(*_nmtkit("plan", recipe, "--json", *on)))
    rate = plan["tgt_tokens_per_second"]
    per_token = plan["update_flops"] / load_recipe(recipe).training.tgt_tokens_per_update
    share = rate * per_token / (n * peak) if peak else 0.0  # 0: its measurement failed
    seen = f"{rate:,.0f} target tokens/s, {share:.1%} of the measured peak"
    return seen, {"tgt_tokens_per_second": rate, "mfu": share}
