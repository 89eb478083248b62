"""The self-test: the environment, and the first steps of training against known losses."""

import json
import math
import os
import platform
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Literal

from rich.filesize import decimal

from nmtkit import __version__
from nmtkit.config.loading import load_recipe
from nmtkit.config.settings import Settings
from nmtkit.stages.pipeline import Pipeline
from nmtkit.store.files import sync
from nmtkit.store.links import no_follow
from nmtkit.utils.errors import Stopped, UserError
from nmtkit.utils.text import shorten

CONSTRAINTS = "constraints.txt"
MIN_FREE_BYTES = 10e9  # Multi30k needs less and WMT14 more; `nmtkit plan` estimates the size
# Losses of the demo by step. A wrong gradient changes them within a few steps.
LOSSES = {1: 8.3535, 10: 7.4909, 20: 6.9920}
TOLERANCE = 1e-3  # rounding in float32 differs between processors
MAX_ERROR_LENGTH = 200  # characters
NEWLINE = b"\n"
MAX_READ_BYTES = 2**20  # of a file of results, to recognize it

State = Literal["passed", "noted", "skipped", "failed"]  # noted: not as expected, but it works


@dataclass(frozen=True)
class Check:
    """The result of a check or of a measurement."""

    what: str
    state: State
    seen: str
    figures: Mapping[str, float] = field(default_factory=dict)  # those in `seen`, for programs


def failed_check(what: str, error: BaseException) -> Check:
    """Return the result of a check that raised `error`."""
    message = str(error).strip().split("\n")[0]
    if not isinstance(error, UserError):
        message = f"{type(error).__name__}: {message}"
    return Check(what, "failed", shorten(message, MAX_ERROR_LENGTH))


def checks(settings: Settings, folder: Path) -> Iterator[Check]:
    """Check the environment, then train the demo for some steps.

    Args:
        settings: The folder of artifacts, whose disk is checked.
        folder: Folder for the artifacts of the demo. The caller deletes it.

    Raises:
        Stopped: A signal stopped the training.
    """
    yield from environment(settings)
    try:
        yield demo(folder)
    except Stopped as stop:  # nothing of it is kept
        raise Stopped("stopped", exit_code=stop.exit_code) from None
    except Exception as error:  # noqa: BLE001 - any failure is a result
        yield failed_check("demo", error)


def environment(settings: Settings) -> Iterator[Check]:
    """Check versions, processors, memory and disk space."""
    import torch

    system = f"Python {platform.python_version()}, {platform.platform()}"
    yield Check("nmtkit", "passed", f"{__version__}, torch {torch.__version__}, {system}")
    yield _versions()
    capability = torch.backends.cpu.get_cpu_capability()
    yield Check("CPU", "passed", f"{settings.n_workers()} cores, {capability}")
    if not torch.cuda.is_available():
        yield Check("GPU", "skipped", "torch detects none")
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        precision = "bfloat16" if properties.major >= 8 else "float32"
        size = decimal(properties.total_memory)
        yield Check(f"GPU {index}", "passed", f"{properties.name}, {size}, computes in {precision}")
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    yield Check("memory", "passed", decimal(memory))

    # The folder of artifacts need not exist yet.
    runs_dir = settings.runs_dir
    folders = (runs_dir, *runs_dir.absolute().parents)
    existing = next(path for path in folders if path.is_dir())
    n_free = shutil.disk_usage(existing).free
    state: State = "passed" if n_free >= MIN_FREE_BYTES else "noted"
    yield Check("disk", state, f"{decimal(n_free)} free in {existing}")


def _versions() -> Check:
    """Compare the installed packages with those that nmtkit is tested with."""
    differing = []
    for name, pinned in pinned_versions().items():
        with suppress(metadata.PackageNotFoundError):  # part of an extra
            version = metadata.version(name)
            if version.split("+")[0] != pinned:  # builds of torch end in +cpu, +cu130, ...
                differing.append(f"{name} {version} (tested: {pinned})")
    if differing:
        return Check("versions", "noted", f"differ from {CONSTRAINTS}: {', '.join(differing)}")
    return Check("versions", "passed", f"as in {CONSTRAINTS}")


def pinned_versions() -> dict[str, str]:
    """Return the versions that nmtkit is tested with, by package."""
    # The file is in the package if nmtkit is installed, and next to the package in a clone.
    package = Path(__file__).resolve().parents[1]
    path = package / CONSTRAINTS
    if not path.is_file():
        path = package.parent / CONSTRAINTS
    versions = {}
    for line in path.read_text(encoding="utf-8").split("\n"):
        name, is_pin, version = line.partition("==")
        if is_pin and not line.startswith("#"):
            versions[name] = version
    return versions


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
            seen = f"step {step} has a loss of {loss}, expected {expected}"
            return Check("demo", "failed", seen)
    return Check("demo", "passed", f"{max(LOSSES)} steps of training end with a loss of {loss:.4f}")


def as_json_line(check: Check) -> str:
    """Return a result as one line of JSON, with the time."""
    record = asdict(check)
    for name, figure in check.figures.items():
        if not math.isfinite(figure):  # JSON has no such numbers
            record["figures"][name] = None
    time = datetime.now(UTC).isoformat(timespec="seconds")
    return json.dumps({"time": time, **record}, ensure_ascii=False)


def check_results(path: Path) -> None:
    """Refuse to append results to a file that has none.

    Raises:
        UserError: The file is not empty, and no line of it is a result.
    """
    if not path.exists() or path.stat().st_size == 0:
        return
    with path.open("rb") as file:
        # A power failure may have cut off a line.
        for line in file.read(MAX_READ_BYTES).split(NEWLINE):
            with suppress(ValueError, RecursionError):
                record = json.loads(line)
                if isinstance(record, dict) and {"time", "what", "state", "seen"} <= record.keys():
                    return
    raise UserError(
        f"{path} was not written by `nmtkit selftest --gpu`; pass the path of a new file as "
        "--output"
    )


def append_line(path: Path, line: str) -> None:
    """Append a line to a file, and wait until it is on disk.

    A line that a full disk or a power failure cut off is left alone, and a new one begins.

    Raises:
        UserError: The file is a link.
    """
    with open(path, "a+b", opener=no_follow) as file:
        content = line.encode("utf-8") + NEWLINE
        if file.tell() > 0:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != NEWLINE:
                content = NEWLINE + content
        file.write(content)
    sync(path)
