"""nmtkit selftest --gpu: prove each device, then several processes, by what they compute.

What trains or is timed is the command that a user types, in processes of its own.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
from torch import Tensor, nn

from nmtkit.cli import selftest
from nmtkit.cli.selftest import LOSSES, TOLERANCE, Check, Figures, Seen, attempt, failed, held
from nmtkit.cli.trial import text_of
from nmtkit.corpus.chunks import call_apart, map_chunks
from nmtkit.errors import UserError
from nmtkit.fast.gpu import flash_attention
from nmtkit.fast.packing import PackedLayout, PackedMask
from nmtkit.fast.peak import measured_peak
from nmtkit.fast.rectangles import attend_in_rectangles
from nmtkit.machine import Machine
from nmtkit.model.attention import window_of
from nmtkit.recipe_file import load_recipe
from nmtkit.stages.chain import Chain
from nmtkit.training.acceleration import Acceleration
from nmtkit.training.distributed import Group
from nmtkit.training.metrics import CHECKPOINTS, METRICS, read_metrics
from nmtkit.training.setup import Setup

# Relative errors that are rounding. Products in TensorFloat-32 would be off by 1e-3.
OF_PRODUCTS = {torch.float32: 1e-5, torch.bfloat16: 1e-2}
OF_ATTENTION, OF_TECHNIQUES = 2e-2, 2e-2
# Sentences of odd lengths, and an update of the paper's: 25,000 tokens in sentences of WMT14.
TEXTS = ([1, 2, 31, 256, 1, 70], 800 * [31])
HEADS, WIDTH = 8, 64  # of the base model
MAX_TOKENS, DROPOUT = 2_048, 0.3  # of a training, per side of a micro-batch
PEAK_SECONDS, N_TIMED = 0.5, 5
SUMMED = {"cuda": 2**28, "cpu": 2**24}  # bytes; as many as gradients of the base model, or fewer
N_STEPS, EARLY = 50, max(LOSSES)  # differences of early losses are rounding; later ones have grown
OF_BFLOAT16 = 1e-2  # rounding of an early loss
PATIENCE_S, PAUSE_S = 300.0, 0.02
SHARED, LEAST_SHARED = Path("/dev/shm"), 1e9  # noqa: S108 - memory that NCCL uses; bytes
MAX_LINES = 20  # of nvidia-smi
CHILDREN = "/proc/{0}/task/{0}/children"
SPEEDS = {"base": "wmt14-en-de-base", "big": "wmt14-en-de-big"}


def gpu_checks(machine: Machine) -> Iterator[Check]:
    """Yield each check as soon as it is made; without several GPUs, processes share the CPU."""
    yield from selftest.environment(machine)
    n_devices = torch.cuda.device_count()
    if n_devices:
        yield attempt("connections", connections)
    peak = 0.0
    with ThreadPoolExecutor() as threads:  # each waits for a process
        for check in (each for made in threads.map(_apart, range(n_devices)) for each in made):
            peak = max(peak, check.figures.get("peak_flops", 0.0))
            yield check
    counts = sorted({n for n in (1, 2, 4, n_devices) if 0 < n <= n_devices})
    device, several = ("cuda", counts[1:]) if n_devices > 1 else ("cpu", [2, 3])
    for n in several:
        yield attempt(f"sum, {n} x {device}", partial(all_reduce, n, device))
    with TemporaryDirectory(prefix="nmtkit-selftest-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        yield from trainings(folder, n_devices, device, several)
        lost = partial(lost_process, folder, _on(device, several[-1]))
        yield attempt(f"kill -9, {several[-1]} x {device}", lost)
        for model, recipe in SPEEDS.items():
            for n in counts:
                timed = partial(speed, folder, recipe, n, peak)
                yield attempt(f"{model}, {n} x cuda", timed)


def connections() -> Seen:
    """Name what lies between PyTorch and the devices, and how these are connected."""
    nccl = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
    shared = shutil.disk_usage(SHARED).total if SHARED.is_dir() else 0
    said = [f"CUDA {torch.version.cuda}, NCCL {nccl}, {shared / 1e9:.1f} GB in {SHARED}"]
    if command := shutil.which("nvidia-smi"):
        for asked in (("--query-gpu=driver_version", "--format=csv"), ("topo", "-m")):
            printed = _printed(command, *asked)
            lines = re.sub(r"\x1b\[\d*m", "", printed).split("\n")
            said += [" ".join(line.split()) for line in lines[:MAX_LINES]]
    return "held" if shared >= LEAST_SHARED else "noted", "; ".join(said), {}


# One device


def _apart(index: int) -> list[Check]:
    """Check a device from a process of its own, which an illegal access spoils."""
    try:
        return call_apart(device_checks, index, if_killed="the process that used it was killed")
    except Exception as error:  # noqa: BLE001 - whatever it is
        return [failed(f"cuda:{index}", error)]


def device_checks(index: int) -> list[Check]:
    """Check a CUDA device from this process."""
    torch.cuda.set_device(index)
    return [*checks_of(torch.device("cuda", index))]


def checks_of(device: torch.device) -> Iterator[Check]:
    """Yield what a device computes, in the ways in which it trains the demo's model."""
    dtype = Machine(Path()).torch_dtype(device)
    how = Acceleration.of(load_recipe("demo").model, device, dtype, deterministic=False)
    yield attempt(f"{device} products", partial(products, device, dtype))
    if how.static:
        yield attempt(f"{device} attention", partial(attention, device))
    if how.compiled:
        compiled = partial(technique, device, replace(how, captured=False), 0.0)
        yield attempt(f"{device} compile", compiled)
    if how.captured:
        captured = partial(technique, device, replace(how, compiled=False), DROPOUT)
        yield attempt(f"{device} capture", captured)
    yield Check(f"{device} trains", "held" if how.captured else "noted", f"with {how}")


def products(device: torch.device, dtype: torch.dtype) -> Seen:
    """Multiply matrices in float32 and in `dtype`, and compare with float64 on the CPU."""
    for each in dict.fromkeys((torch.float32, dtype)):
        generator = torch.Generator().manual_seed(1)
        x, w = (torch.randn(1_024, 1_024, generator=generator).to(each) for _ in range(2))
        error = _error((x.to(device) @ w.to(device)).cpu(), x.double() @ w.double())
        if not error <= OF_PRODUCTS[each]:
            return "failed", f"a product in {each} is off by {error:.1e}", {}
    peak = measured_peak(device, PEAK_SECONDS, dtype)
    return "held", f"as on the CPU; {peak / 1e12:.1f} TFLOP/s in {dtype}", {"peak_flops": peak}


def attention(device: torch.device) -> Seen:
    """Compare attention of variable length with that in rectangles, both passes, and time it."""
    errors: list[float] = []
    for lengths in TEXTS:
        layout = PackedLayout.of_lengths(lengths).to(device)
        mask = PackedMask(layout, layout, window_of(causal=True))
        qkv = torch.randn(3, sum(lengths), HEADS, WIDTH, device=device)
        exact = _both_passes(partial(attend_in_rectangles, dropout=0.0), qkv, mask)
        of_update = partial(_both_passes, flash_attention, qkv.to(torch.bfloat16), mask)
        errors += map(_error, of_update(), exact)
    seconds = _fastest(lambda: of_update()[1].sum().item())
    seen = f"off by {max(errors):.1e}; {sum(lengths):,} tokens in {1e3 * seconds:.2f} ms"
    return held(max(errors) <= OF_ATTENTION), seen, {"update_seconds": seconds}


def _both_passes(attend: Callable[..., Tensor], qkv: Tensor, mask: PackedMask) -> Sequence[Tensor]:
    """Return what attention computes for (3, T, H, K), and the gradients of its inputs."""
    q, k, v = (each.requires_grad_() for each in qkv.clone())
    out = attend(q, k, v, mask)
    return [out, *torch.autograd.grad(out.float().square().sum(), (q, k, v))]


def _error(found: Tensor, exact: Tensor) -> float:
    """Return the relative Euclidean norm of a difference."""
    return float((found.double() - exact.double()).norm() / exact.double().norm())


def _fastest(work: Callable[[], object]) -> float:
    """Return the seconds of the fastest of some calls of what waits for its device."""
    taken = []
    for _ in range(N_TIMED):
        begin = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begin)
    return min(taken)


def technique(device: torch.device, how: Acceleration, dropout: float) -> Seen:
    """Compare with the same rows, neither compiled nor captured, for the seeds 1, 1 and 2."""
    plain = replace(how, compiled=False, captured=False)
    ours, theirs = (_of_seeds(device, each, dropout) for each in (how, plain))
    error = float((ours / theirs - 1).abs().max())
    same, other = (bool(ours[0, 0] == ours[i, 0]) for i in (1, 2))
    is_right = error <= OF_TECHNIQUES and same and other is (dropout == 0.0)
    seen = f"losses and gradients off by {error:.1e}, dropout {'by' if is_right else 'not by'} seed"
    return held(is_right), seen, {"error": error}


def _of_seeds(device: torch.device, how: Acceleration, dropout: float) -> Tensor:
    """Return the loss and the norm of the gradient for each seed (3, 2)."""
    recipe = load_recipe("demo", [f"model.dropout={dropout}"])
    text = text_of(Chain(recipe, Machine(Path()), "demo", []))
    setup = Setup(recipe.model, recipe.training, Group(0, 1, device), how, MAX_TOKENS)
    trainer = setup.trainer(text.pairs, recipe.model.rows_for(text.n_tokens))
    (work,) = trainer.coming(1)
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        trainer.optimizer.zero_grad(set_to_none=False)
        loss = trainer.backward.add(work.batches[0][1], 1.0)[0]
        gradients = [each.grad for each in trainer.model.parameters() if each.grad is not None]
        found.append([float(loss), float(nn.utils.get_total_norm(gradients))])
    return torch.tensor(found, dtype=torch.float64)


# Several processes


def all_reduce(n: int, device: str) -> Seen:
    """Sum numbers of `n` processes, as training does with gradients."""
    with TemporaryDirectory() as name:
        work = partial(_sum, n, device, f"file://{name}/store")
        rate = min(map_chunks(work, range(n), workers=n))
    return "held", f"{rate / 1e9:.2f} GB/s on each link of a ring", {"bytes_per_second": rate}


def _sum(n: int, device: str, store: str, rank: int) -> float:
    """Be one of `n` processes; return the bytes/s of a link."""
    if device == "cuda":
        torch.cuda.set_device(rank)
    backend, patience = {"cuda": "nccl", "cpu": "gloo"}[device], timedelta(seconds=PATIENCE_S)
    dist.init_process_group(backend, store, patience, n, rank)
    values = torch.full((SUMMED[device] // 4,), float(rank), device=device)
    dist.all_reduce(values)
    if not bool((values == n * (n - 1) / 2).all()):
        raise UserError(f"the sum of 0 to {n - 1} is {values.min()} to {values.max()}")
    seconds = _fastest(lambda: (dist.all_reduce(values), values[0].item()))
    dist.destroy_process_group()
    return 2 * (n - 1) / n * SUMMED[device] / seconds


def _on(device: str, n: int) -> list[str]:
    return [f"--device={device}", f"--processes={n}"]


def trainings(folder: Path, n_devices: int, device: str, several: list[int]) -> Iterator[Check]:
    """Train the demo in several ways: first as on other machines, then as on one CPU process."""
    ways = {"1 x cpu": _on("cpu", 1)}
    if n_devices:
        ways["cuda, plain"] = ["--device=cuda:0", "--accelerate=none", "--dtype=float32"]
        ways["1 x cuda"] = _on("cuda", 1)
    ways |= {f"{n} x {device}": _on(device, n) for n in several}
    expected: Figures = {f"loss_{step}": loss for step, loss in LOSSES.items()}
    for name, options in ways.items():
        check = attempt(f"demo, {name}", partial(train_demo, folder, options, expected))
        yield check
        expected = {**check.figures, **expected}


def train_demo(folder: Path, options: list[str], expected: Figures) -> Seen:
    """Train the demo anew, and compare its losses with those `expected`."""
    shutil.rmtree(folder / "train", ignore_errors=True)
    _printed(*_nmtkit("prepare", "demo", f"--runs-dir={folder}"))
    _printed(*_train(folder, N_STEPS, options))
    (path,) = folder.glob(f"train/*/{METRICS}")
    losses = {f"loss_{line['step']}": line["loss"] for line in read_metrics(path)}
    off = [abs(losses[step] - loss) for step, loss in expected.items()]
    most = OF_BFLOAT16 if "--device=cuda" in options else TOLERANCE
    seen = f"loss {losses[f'loss_{N_STEPS}']:.4f} at the end; off by at most "
    seen += f"{max(off[:EARLY]):.0e} in {EARLY} steps, {max(off):.0e} in {N_STEPS}"
    return held(max(off[:EARLY]) <= most), seen, losses


def _train(folder: Path, n_steps: int, options: list[str]) -> list[str]:
    how = [f"--set=training.max_steps={n_steps}", "--set=averaging.n_checkpoints=1"]
    return _nmtkit("train", "demo", f"--runs-dir={folder}", *how, *options)


def _nmtkit(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "nmtkit", "--quiet", *arguments]


def _printed(*command: str) -> str:
    """Return what a command prints; raise a UserError with its last words if it fails."""
    ended = subprocess.run(  # noqa: S603 - nothing in it comes from outside
        command, capture_output=True, encoding="utf-8", timeout=PATIENCE_S, check=False
    )
    if ended.returncode:
        raise UserError(ended.stderr.strip().split("\n")[-1])
    return ended.stdout


def lost_process(folder: Path, options: list[str]) -> Seen:
    """Kill the last process of a training, and wait until its steps go on."""
    if not Path(CHILDREN.format(os.getpid())).exists():
        return "skipped", "only Linux says which processes these are", {}
    command, nowhere = _train(folder, 100_000, options), subprocess.DEVNULL
    with subprocess.Popen(command, stdout=nowhere, stderr=nowhere) as process:  # noqa: S603
        try:
            _wait_for_step(EARLY, folder, process)
            children = Path(CHILDREN.format(process.pid)).read_text(encoding="utf-8").split()
            os.kill(max(map(int, children)), signal.SIGKILL)
            begin = time.monotonic()
            # One step may have been under way.
            _wait_for_step(_last_step(folder) + 2, folder, process)
            seconds = time.monotonic() - begin
        finally:
            process.terminate()
            process.wait(PATIENCE_S)
    return "held", f"steps go on after {seconds:.0f} s", {"seconds": seconds}


def _last_step(folder: Path) -> int:
    files = folder.glob(f"train/*.partial/{CHECKPOINTS}/{METRICS}")
    return max((line["step"] for file in files for line in read_metrics(file, 4_096)), default=0)


def _wait_for_step(step: int, folder: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while _last_step(folder) < step:
        if process.poll() is not None or time.monotonic() > deadline:
            raise UserError(f"no step {step} in {PATIENCE_S:.0f} s; exit code {process.returncode}")
        time.sleep(PAUSE_S)


def speed(folder: Path, recipe: str, n: int, peak: float) -> Seen:
    """Time the training of a model on `n` devices of this peak, in FLOP/s."""
    on = [f"--runs-dir={folder}", *_on("cuda", n)]
    plan = json.loads(_printed(*_nmtkit("plan", recipe, "--json", *on)))
    rate = plan["tgt_tokens_per_second"]
    per_token = plan["update_flops"] / load_recipe(recipe).training.tgt_tokens_per_update
    share = rate * per_token / (n * peak) if peak else 0.0  # 0: the products failed
    seen = f"{rate:,.0f} target tokens/s, {share:.1%} of the measured peak"
    return "held", seen, {"tgt_tokens_per_second": rate, "mfu": share}
