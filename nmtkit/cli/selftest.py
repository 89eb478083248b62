"""nmtkit selftest: check nmtkit on this machine, what it finds and what it computes."""

import os
import platform
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Literal

from rich.filesize import decimal

from nmtkit import __version__
from nmtkit.cli.options import command, flag
from nmtkit.config.loading import load_recipe
from nmtkit.config.settings import Settings
from nmtkit.reporting.grid import Grid
from nmtkit.reporting.show import Form, show
from nmtkit.stages.pipeline import Pipeline
from nmtkit.store.files import temporary_folder
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import shorten

CONSTRAINTS = "constraints.txt"
LEAST_FREE = 10e9  # bytes; a Multi30k run takes less, WMT14 more: `nmtkit plan` says how much
# What the demo loses in some steps of its training: a wrong gradient shows within a few.
LOSSES = {1: 8.3535, 10: 7.4909, 20: 6.9920}
TOLERANCE = 1e-3  # float32 rounds otherwise on every processor
MAX_SEEN = 200  # characters of an error

Figures = Mapping[str, float]
Seen = tuple[str, Figures]
State = Literal["held", "noted", "skipped", "failed"]  # noted: works, but is worth knowing


@dataclass(frozen=True)
class Check:
    what: str
    state: State
    seen: str
    figures: Figures = field(default_factory=dict)  # in `seen`, for machines


@command("nmtkit selftest")
def selftest(
    settings: Settings,
    form: Form,
    gpu: Annotated[
        bool, flag("Prove what trains here: each GPU, then several processes.", "--gpu")
    ] = False,
) -> None:
    if gpu:
        from nmtkit.benchmark.selftest_gpu import gpu_checks
    found = []
    with temporary_folder() as folder:
        for each in gpu_checks(settings, folder) if gpu else checks(settings, folder):
            progress.log(f"selftest: {each.what}: {each.state}")
            found.append(each)
    rows = [(each.state, each.what, each.seen) for each in found]
    show(form, found, [Grid.of("", ("state", "what", "seen"), rows, 3)])
    if failed := [each.what for each in found if each.state == "failed"]:
        raise UserError(f"{', '.join(failed)} failed, as said above")


def checks(settings: Settings, folder: Path) -> Iterator[Check]:
    yield from environment(settings)
    yield demo(folder)


def attempt(what: str, look: Callable[..., Seen], *of: Any) -> Check:
    """Make a check; one that raises has failed."""
    try:
        return Check(what, "held", *look(*of))
    except Exception as error:  # noqa: BLE001 - whatever it is
        kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
        return Check(what, "failed", shorten(kind + str(error).split("\n")[0], MAX_SEEN))


def environment(settings: Settings) -> Iterator[Check]:
    import torch

    where = f"Python {platform.python_version()}, {platform.platform()}"
    yield Check("nmtkit", "held", f"{__version__}, {where}")
    others = []
    for name, pinned in pins().items():
        with suppress(metadata.PackageNotFoundError):  # of an extra
            version = metadata.version(name)
            if version.split("+")[0] != pinned:  # torch's own builds end in +cpu, +cu130, ...
                others.append(f"{name} {version} (tested: {pinned})")
    seen = f"not those of {CONSTRAINTS}: {', '.join(others)}" if others else ""
    yield Check("versions", "noted" if others else "held", seen or f"those of {CONSTRAINTS}")
    capability = torch.backends.cpu.get_cpu_capability()
    yield Check("CPU", "held", f"{settings.n_workers()} cores, {capability}")
    if not torch.cuda.is_available():
        yield Check("GPU", "skipped", "torch sees none")
    for index in range(torch.cuda.device_count()):
        found = torch.cuda.get_device_properties(index)
        precision = "bfloat16" if found.major >= 8 else "float32"
        seen = f"{found.name}, {decimal(found.total_memory)}, computes in {precision}"
        yield Check(f"GPU {index}", "held", seen)
    yield Check("memory", "held", decimal(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")))
    runs = settings.runs_dir
    there = next(path for path in (runs, *runs.absolute().parents) if path.is_dir())
    free = shutil.disk_usage(there).free
    state: State = "held" if free >= LEAST_FREE else "noted"
    yield Check("disk", state, f"{decimal(free)} free in {there}")


def pins() -> dict[str, str]:
    """Return the versions that nmtkit is tested with, by package."""
    places = (folder / CONSTRAINTS for folder in Path(__file__).resolve().parents[1:3])
    lines = next(filter(Path.is_file, places)).read_text(encoding="utf-8").split("\n")
    named = [line.partition("==") for line in lines if not line.startswith("#")]
    return {name: version for name, is_pin, version in named if is_pin}


def demo(runs_dir: Path) -> Check:
    """Train the demo for some steps and compare its losses with those of other machines."""
    from nmtkit.stages import prepare, train
    from nmtkit.training.metrics import METRICS, read_metrics

    overrides = (f"training.max_steps={max(LOSSES)}", "averaging.n_checkpoints=1")
    settings = Settings(runs_dir, device="cpu", dtype="float32")
    pipeline = Pipeline(load_recipe("demo", overrides), settings, "demo", overrides)
    prepare.run(pipeline)
    metrics = read_metrics(train.run(pipeline).path / METRICS)
    for step, expected in LOSSES.items():
        loss = metrics[step - 1]["loss"]
        if loss is None or abs(loss - expected) > TOLERANCE:  # None: not finite
            seen = f"step {step} has a loss of {loss}, but of {expected} on other machines"
            return Check("demo", "failed", seen)
    return Check("demo", "held", f"{max(LOSSES)} steps of training end with a loss of {loss:.4f}")
