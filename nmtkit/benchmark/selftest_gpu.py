"""The self-test of a GPU: gradients against a CPU, then the speed of training, level by level.

Results come one by one, the most important first. Every measurement runs in a process of its own:
it can be killed when the time is over, and an error of CUDA leaves the next measurement intact.
"""

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.resource_tracker import ensure_running
from pathlib import Path

import torch

from nmtkit.benchmark import selftest
from nmtkit.benchmark.gpu_measurements import (
    compare_attention,
    compare_gradients,
    failure,
    measure_training,
    measure_two_processes,
)
from nmtkit.benchmark.selftest import Check
from nmtkit.config.settings import Settings
from nmtkit.training.acceleration import Acceleration, Level, has_compiler
from nmtkit.utils import progress
from nmtkit.utils.processes import safe_spawning

GPU_RECIPES = ("wmt14-en-de-base", "wmt14-en-de-big")
CPU_RECIPES = ("demo",)
DRIVER_TIMEOUT_S = 20.0  # nvidia-smi may hang with a broken driver


@dataclass(frozen=True)
class Measurement:
    """Something to measure in a process of its own."""

    what: str
    run: Callable[[], Iterator[Check]]  # can be pickled
    # Measurements with the same name share a cache of the compiler, empty at first.
    cache: str


def gpu_checks(settings: Settings, seconds: float, folder: Path) -> Iterator[Check]:
    """Check and measure training on the GPU, or on the CPU if there is none.

    Args:
        settings: The folder of artifacts, the device and the precision.
        seconds: After this time, the measurement that runs is stopped, and no other one begins.
        folder: Folder for temporary files. The caller deletes it.

    Yields:
        Each result as soon as it is there. A measurement that fails is a result too.
    """
    deadline = time.monotonic() + seconds
    yield from selftest.environment(settings)
    device = settings.torch_device()
    if device.type == "cuda":
        yield _driver()
        if not has_compiler():
            seen = "no C compiler or Python headers; install gcc and python3-dev"
            yield Check("compiler", "noted", seen)

    skipped = []
    for measurement in measurements(settings, device):
        if time.monotonic() >= deadline:
            skipped.append(measurement.what)
            continue
        left = deadline - time.monotonic()
        progress.log(f"selftest: {measurement.what}, {left:.0f} s left")
        # In an empty cache, compilation takes as long as it does at the first training of a user.
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / measurement.cache)
        yield from run_in_process(measurement, deadline)
    if skipped:
        names = ", ".join(skipped)
        yield Check("time", "skipped", f"not measured within --seconds {seconds:g}: {names}")


def measurements(settings: Settings, device: torch.device) -> Iterator[Measurement]:
    """Yield the measurements for a device, the most important first."""
    recipes = GPU_RECIPES if device.type == "cuda" else CPU_RECIPES
    dtype = settings.torch_dtype(device)
    highest = Acceleration.choose(device, dtype).level
    levels = [level for level in reversed(Level) if level <= highest]
    first = recipes[0]
    # The speed of a wrong computation is worthless, so gradients come before speeds.
    yield Measurement(
        f"{first}: loss and gradient",
        partial(compare_gradients, first, settings, levels[::-1]),
        cache="comparison",
    )
    for recipe in recipes:
        for level in levels:
            # One list of kernels is enough: that of the level at which users train.
            is_first = recipe == first and level == highest
            yield Measurement(
                f"{recipe}, {level.name.lower()}",
                partial(measure_training, recipe, settings, level, with_kernels=is_first),
                cache=recipe,
            )
    yield Measurement(
        f"{first}, kernels of attention",
        partial(compare_attention, first, settings),
        cache=first,
    )
    if device.type == "cuda" and torch.cuda.device_count() > 1:
        yield Measurement(
            f"{first}, two processes",
            partial(measure_two_processes, first, settings),
            cache=first,
        )


def _driver() -> Check:
    """Return the versions of CUDA, NCCL and the driver, as far as they are known."""
    lines = [f"CUDA {torch.version.cuda}"]
    state: selftest.State = "passed"
    try:
        version = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]
        lines.append(f"NCCL {'.'.join(map(str, version))}")
        query = ["--query-gpu=driver_version,clocks.max.sm,power.limit", "--format=csv"]
        output = subprocess.run(  # noqa: S603 - nothing in it comes from outside
            [shutil.which("nvidia-smi") or "nvidia-smi", *query],
            capture_output=True,
            encoding="utf-8",
            timeout=DRIVER_TIMEOUT_S,
            check=True,
        ).stdout
        lines += output.strip().split("\n")
    except Exception as error:  # noqa: BLE001 - whatever is broken, training may work
        state = "noted"
        lines.append(f"{type(error).__name__}: {error}")
    return Check("driver", state, "; ".join(lines))


# Processes


def run_in_process(measurement: Measurement, deadline: float) -> Iterator[Check]:
    """Run a measurement in a process of its own, until `deadline` at the latest.

    Args:
        measurement: What to run.
        deadline: A time of `time.monotonic`.

    Yields:
        Its results as they come, then one of its failure if it fails, is killed or is stopped.
    """
    context = get_context("spawn")  # a process with CUDA cannot be forked
    ours, theirs = context.Pipe()
    is_quiet = progress.console.quiet
    process = context.Process(target=_measure, args=(theirs, measurement, is_quiet))
    with safe_spawning():
        ensure_running()  # it unblocks SIGINT as it starts
        # Ctrl-C reaches only this process; it ends the other one.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    theirs.close()  # now the pipe ends when the process does
    what = measurement.what
    try:
        while True:
            if not ours.poll(max(0.0, deadline - time.monotonic())):
                yield Check(what, "skipped", "stopped: the time limit (--seconds) was reached")
                return
            try:
                check = ours.recv()
            except (EOFError, OSError):
                process.join()
                yield Check(what, "failed", f"its process exited with code {process.exitcode}")
                return
            if check is None:  # all is measured
                return
            yield check
    finally:
        # It ends by itself once nothing can be sent, and is killed if it is in the middle of work.
        ours.close()
        process.kill()
        process.join()


def _measure(connection: Connection, measurement: Measurement, is_quiet: bool) -> None:
    """Send the results of a measurement, then None. The main function of the process.

    Args:
        connection: The end of the pipe to send to.
        is_quiet: Whether the user passed -q.
    """
    progress.console.quiet = is_quiet
    threading.Thread(target=_exit_with_parent, args=(connection,), daemon=True).start()
    try:
        for check in measurement.run():
            connection.send(check)
    except Exception as error:  # noqa: BLE001 - compilers and drivers raise errors of many kinds
        connection.send(failure(measurement.what, error))
    connection.send(None)
    # Destructors of CUDA may hang after an error.
    connection.close()
    os._exit(0)


def _exit_with_parent(connection: Connection) -> None:
    """Exit as soon as the other end of the pipe is closed, also if the parent was killed."""
    with suppress(EOFError, OSError):
        connection.recv()  # nothing is ever sent
    os._exit(1)
