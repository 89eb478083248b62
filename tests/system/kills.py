"""Kill a stage with SIGKILL before each operation that changes a file, and run it again.

Every attempt is a fork of this process, which has imported everything and computed nothing. In it,
os.scandir and os.listdir list names in a given order, since a file system may list them in any, and
the n-th operation is a SIGKILL instead: a rename, unlink, rmdir, mkdir, link, truncate, fsync, or
an open for writing. What the next attempts leave must be what an undisturbed one leaves.

    PYTHONPATH=tests python -m system.kills [--stages prepare,train] [--orders sorted] [--points 20]
"""

import argparse
import http.server
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import safetensors.torch

from nmtkit import artifacts, progress
from nmtkit.corpus import tokenized
from nmtkit.machine import Machine
from nmtkit.model import weights
from nmtkit.recipe_file import load_recipe
from nmtkit.sources.catalog import RemoteFile
from nmtkit.sources.download import obtain
from nmtkit.stages import average, prepare, score, train, translate
from nmtkit.stages.chain import Chain
from system.command import RECIPE, contents
from system.conftest import TOML, write_texts

STAGES = {
    "prepare": prepare.run,
    "train": train.run,
    "average": average.run,
    "translate": translate.run,
    "score": score.run,
}
# Short stages with every kind of commit in them: parts of prepare, checkpoints that replace others.
SHORT = ["training.max_steps=8", "training.checkpoint_every_steps=2", "decoding.beam_size=1"]
LINES_PER_CHUNK, CHUNKS_PER_PART = 60, 2
PAYLOAD = bytes(range(256)) * 4_000  # of the download

Order = Callable[[list[str]], list[str]]


def shuffled(names: list[str]) -> list[str]:
    """Order names as a hash of them does, which is what ext4 does."""
    return sorted(names, key=lambda name: zlib.crc32(name.encode()))


ORDERS: dict[str, Order] = {
    "sorted": sorted,
    "reversed": lambda names: sorted(names, reverse=True),
    "shuffled": shuffled,
}


@dataclass
class Report:
    """What came of the kills in one stage under one order of names."""

    stage: str
    order: str
    operations: int  # of an undisturbed run
    kills: int = 0
    blocked: list[str] = field(default_factory=list)  # reruns that ended with an error
    different: list[str] = field(default_factory=list)  # reruns that left other files or bytes
    seconds: float = 0.0


# In the fork


class Listing:
    """os.scandir's result, in another order."""

    def __init__(self, entries: list[os.DirEntry[str]]) -> None:
        self._entries = iter(entries)

    def __enter__(self) -> "Listing":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __iter__(self) -> Iterator[os.DirEntry[str]]:
        return self._entries

    def __next__(self) -> os.DirEntry[str]:
        return next(self._entries)

    def close(self) -> None:
        """Close it, as scandir's iterator is closed."""


def list_in(order: Order) -> None:
    """Let every folder be listed in that order."""
    scandir, listdir = os.scandir, os.listdir

    def ordered_scandir(path: Any = ".") -> Listing:
        with scandir(path) as found:
            entries = {entry.name: entry for entry in found}
        return Listing([entries[name] for name in order(list(entries))])

    os.scandir = ordered_scandir  # type: ignore[assignment]
    os.listdir = lambda path=".": order(listdir(path))  # type: ignore[assignment]


CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate")
FOR_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Operations:
    """Counts the operations that change a file, and dies before the n-th."""

    def __init__(self, folder: Path, die_at: int | None) -> None:
        self.count = 0
        self._folder = str(folder)
        self._left = die_at

    def tick(self) -> None:
        """Count one, unless it is the last thing that this process sees."""
        self.count += 1
        if self.count == self._left:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(self) -> None:
        """See what Python does by audit events; fsync has none, and safetensors is no Python."""
        fsync, save_file = os.fsync, safetensors.torch.save_file

        def dying_fsync(descriptor: int) -> None:
            self.tick()
            fsync(descriptor)

        def dying_save_file(*arguments: Any, **options: Any) -> None:
            self.tick()
            save_file(*arguments, **options)

        os.fsync = dying_fsync  # type: ignore[assignment]
        for module in (safetensors.torch, weights):
            if hasattr(module, "save_file"):
                vars(module)["save_file"] = dying_save_file
        sys.addaudithook(self._see)

    def _see(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in CHANGES:
            self.tick()
        elif event == "open" and isinstance(arguments[2], int) and arguments[2] & FOR_WRITING:
            path = os.path.abspath(arguments[0]) if isinstance(arguments[0], str) else ""  # noqa: PTH100
            if path.startswith(self._folder):
                self.tick()


Work = Callable[[Path], object]


def attempt(work: Work, folder: Path, order: str, die_at: int | None = None) -> tuple[int, int]:
    """Fork and do `work` in `folder`: its exit code, or minus a signal, and its operations."""
    told, telling = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(told)
        _attempt(work, folder, order, die_at, telling)
    os.close(telling)
    with os.fdopen(told, encoding="utf-8") as pipe:
        count = int(pipe.read() or 0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), count


def _attempt(work: Work, folder: Path, order: str, die_at: int | None, telling: int) -> NoReturn:
    operations = Operations(folder, die_at)
    try:
        os.chdir(folder)
        list_in(ORDERS[order])
        operations.watch()
        work(folder)
        os.write(telling, str(operations.count).encode())
        os._exit(0)
    except BaseException:  # noqa: BLE001 - nothing may leave the fork
        traceback.print_exc()
        os._exit(1)


# What is done in it


def run_stage(stage: str, folder: Path) -> None:
    """Run one stage of the tiny recipe, quietly."""
    machine = Machine(Path("runs"), device="cpu", workers=1)
    STAGES[stage](Chain(load_recipe(str(folder / RECIPE), SHORT), machine, RECIPE))


def fetch(port: int, folder: Path) -> None:
    """Download a file of unknown length and hash."""
    file = RemoteFile(url=f"http://127.0.0.1:{port}/a.bin", n_bytes=None, sha256=None, md5=None)
    obtain(file, folder / "runs" / "downloads")


class Server(http.server.BaseHTTPRequestHandler):
    """Sends the payload, or the rest of it."""

    def do_GET(self) -> None:
        """Answer with a version, so that a cut download can be resumed."""
        start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        self.send_response(206 if start else 200)
        self.send_header("ETag", '"1"')
        self.send_header("Content-Length", str(len(PAYLOAD) - start))
        if start:
            end = f"{len(PAYLOAD) - 1}/{len(PAYLOAD)}"
            self.send_header("Content-Range", f"bytes {start}-{end}")
        self.end_headers()
        self.wfile.write(PAYLOAD[start:])

    def log_message(self, *_: object) -> None:
        """Say nothing."""


# All kills of a stage


def points(n_operations: int, n_points: int | None, seed: int) -> list[int]:
    """Return all moments to die at, or some, spread and then at random."""
    every = list(range(1, n_operations + 1))
    if n_points is None or n_points >= n_operations:
        return every
    return sorted(random.Random(seed).sample(every, n_points))


def kill_everywhere(stage: str, work: Work, base: Path, order: str, n_points: int | None) -> Report:
    """Kill `work` at each moment, every other time its rerun too, and compare what is left."""
    begin = time.monotonic()
    place = base.with_name(f"{base.name}.killed")
    whole = base.with_name(f"{base.name}.whole")
    shutil.copytree(base, whole)
    code, n_operations = attempt(work, whole, order)
    assert code == 0, f"{stage} fails undisturbed"
    expected = contents(whole / "runs")
    report = Report(stage, order, n_operations)
    generator = random.Random(f"{stage} {order}")
    for point in points(n_operations, n_points, seed=n_operations):
        shutil.copytree(base, place)
        where = f"{stage}, {order}: killed before operation {point} of {n_operations}"
        code, _ = attempt(work, place, order, point)
        assert code == -signal.SIGKILL, where
        report.kills += 1
        if generator.random() < 0.5:
            again = generator.randint(1, n_operations)
            where += f", again before {again}"
            code, _ = attempt(work, place, order, again)
            report.kills += code == -signal.SIGKILL
        code, _ = attempt(work, place, order)
        if code != 0:
            report.blocked.append(where)
        elif (found := contents(place / "runs")) != expected:
            names = sorted({name for name, _ in found.items() ^ expected.items()})
            report.different.append(f"{where}: {', '.join(names)}")
        shutil.rmtree(place)
    report.seconds = round(time.monotonic() - begin, 1)
    return report


def run(stages: list[str], orders: list[str], n_points: int | None) -> Iterator[Report]:
    """Kill the stages one after the other, each on what those before it published."""
    progress.console.quiet = True
    artifacts.versions()  # hashes the code: once, and not in each fork
    for module in (tokenized, prepare):
        vars(module)["LINES_PER_CHUNK"] = LINES_PER_CHUNK
    prepare.CHUNKS_PER_PART = CHUNKS_PER_PART
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "work"
        folder.mkdir()
        write_texts(folder)
        (folder / RECIPE).write_text(TOML, encoding="utf-8", newline="\n")
        if "download" in stages:
            yield from _kill_download(Path(temporary) / "download", orders, n_points)
        for stage in STAGES:
            work = partial(run_stage, stage)
            if stage in stages:
                for order in orders:
                    yield kill_everywhere(stage, work, folder, order, n_points)
                    shutil.rmtree(folder.with_name(f"{folder.name}.whole"))
            code, _ = attempt(work, folder, "sorted")
            assert code == 0


def _kill_download(base: Path, orders: list[str], n_points: int | None) -> Iterator[Report]:
    base.mkdir()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        work = partial(fetch, server.server_port)
        for order in orders:
            yield kill_everywhere("download", work, base, order, n_points)
            shutil.rmtree(base.with_name(f"{base.name}.whole"))
        server.shutdown()


def main() -> None:
    """Print a report a line, as JSON; exit with 1 if a rerun was blocked or differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stages", default=",".join(["download", *STAGES]))
    parser.add_argument("--orders", default=",".join(ORDERS))
    parser.add_argument("--points", type=int, help="at most so many a stage and order; else all")
    arguments = parser.parse_args()
    found_wrong = False
    for report in run(arguments.stages.split(","), arguments.orders.split(","), arguments.points):
        print(json.dumps(asdict(report)), flush=True)
        found_wrong |= bool(report.blocked or report.different)
    sys.exit(found_wrong)


if __name__ == "__main__":
    main()
