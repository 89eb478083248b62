"""Kill a stage with SIGKILL before each operation that changes a file, and run it again.

What the next attempts leave must be what an undisturbed one leaves (nmtkit/selftest/attempt.py).

    PYTHONPATH=tests python -m system.kills [--stages prepare,train] [--orders sorted] [--points 20]
"""

import argparse
import http.server
import json
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from nmtkit.machine import Machine
from nmtkit.recipe_file import load_recipe
from nmtkit.selftest.attempt import ORDERS, BeforeOperation, Work, attempt
from nmtkit.selftest.chaos import STAGES, Server, fetch, use_small_chunks
from nmtkit.selftest.contents import contents, differing
from nmtkit.stages.chain import Chain
from nmtkit.stages.code import present_code
from nmtkit.store import versions
from system.command import RECIPE
from system.conftest import TOML, write_texts

# Short stages with every kind of commit in them: parts of prepare, checkpoints that replace others.
SHORT = ["training.max_steps=8", "training.checkpoint_every_steps=2", "decoding.beam_size=1"]


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


def run_stage(stage: str, folder: Path) -> None:
    """Run one stage of the tiny recipe, quietly."""
    use_small_chunks()
    machine = Machine(Path("runs"), device="cpu", workers=1)
    STAGES[stage](Chain(load_recipe(str(folder / RECIPE), SHORT), machine, RECIPE))


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
    undisturbed = attempt(work, whole, order)
    n_operations = undisturbed.operations
    assert undisturbed.code == 0, f"{stage} fails undisturbed: {undisturbed.said}"
    expected = contents(whole / "runs")
    report = Report(stage, order, n_operations)
    generator = random.Random(f"{stage} {order}")
    for point in points(n_operations, n_points, seed=n_operations):
        shutil.copytree(base, place)
        where = f"{stage}, {order}: killed before operation {point} of {n_operations}"
        ended = attempt(work, place, order, BeforeOperation(point))
        assert ended.code == -signal.SIGKILL, where
        report.kills += 1
        if generator.random() < 0.5:
            again = generator.randint(1, n_operations)
            where += f", again before {again}"
            report.kills += attempt(work, place, order, BeforeOperation(again)).killed
        ended = attempt(work, place, order)
        if ended.code != 0:
            report.blocked.append(f"{where}: {ended.said}")
        elif names := differing(contents(place / "runs"), expected):
            report.different.append(f"{where}: {', '.join(names)}")
        shutil.rmtree(place)
    report.seconds = round(time.monotonic() - begin, 1)
    return report


def run(stages: list[str], orders: list[str], n_points: int | None) -> Iterator[Report]:
    """Kill the stages one after the other, each on what those before it published."""
    versions()  # looked up once, and not in each fork
    present_code()
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
            assert attempt(work, folder).code == 0


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
