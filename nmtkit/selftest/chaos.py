"""Kill the whole pipeline at random, run it again, and compare every byte.

Each round takes one step of the pipeline, kills it with SIGKILL, perhaps kills its rerun too, and
then lets it run to its end. What is left must be what an undisturbed run leaves. Half of the kills
come before a random one of the operations that change a file, half after a random time.
"""

import hashlib
import http.server
import json
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from random import Random

from nmtkit import progress
from nmtkit.corpus import tokenized
from nmtkit.errors import UserError
from nmtkit.selftest import tiny
from nmtkit.selftest.attempt import (
    ORDERS,
    AfterSeconds,
    BeforeOperation,
    Ended,
    Victim,
    Work,
    attempt,
)
from nmtkit.selftest.contents import contents, differing
from nmtkit.sources.catalog import RemoteFile
from nmtkit.sources.download import obtain
from nmtkit.stages import average, prepare, score, train, translate
from nmtkit.stages.code import present_code
from nmtkit.store import versions

PAYLOAD = bytes(range(256)) * 4_000  # of the download
LINES_PER_CHUNK, CHUNKS_PER_PART = 60, 2  # so that 400 lines have several parts
STAGES = {
    "prepare": prepare.run,
    "train": train.run,
    "average": average.run,
    "translate": translate.run,
    "score": score.run,
}
BEGINNING = '{"step": '  # of each line of a log
STUDY = """
name = "selftest"
description = "Two rows"
recipe = "demo"
bleu = "sacrebleu"
rows = [{ name = "first" }, { name = "second", set = ["training.seed=2"] }]
"""


@dataclass(frozen=True)
class Step:
    """A piece of the pipeline, and what an undisturbed run of it is like."""

    name: str
    work: Work
    before: Path  # the folder as this step finds it
    whole: dict[str, str]  # what it leaves in runs/
    operations: int  # that change a file
    seconds: float
    has_processes: bool  # of its own, which work while it waits


@dataclass(frozen=True)
class Round:
    """A step that was killed, and what its reruns left."""

    step: str
    kills: list[str]  # where each was
    problem: str | None  # None: the same bytes as undisturbed
    seconds: float


# The steps


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
        with suppress(ConnectionError):  # the client was killed
            self.wfile.write(PAYLOAD[start:])

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def fetch(port: int, folder: Path) -> None:
    """Download a file of unknown length."""
    sha256 = hashlib.sha256(PAYLOAD).hexdigest()
    file = RemoteFile(url=f"http://127.0.0.1:{port}/a.bin", sha256=sha256)
    obtain(file, folder / "runs" / "downloads")


def use_small_chunks() -> None:
    """Have `prepare` write several parts of a tiny corpus."""
    for module in (tokenized, prepare):
        vars(module)["LINES_PER_CHUNK"] = LINES_PER_CHUNK
    vars(prepare)["CHUNKS_PER_PART"] = CHUNKS_PER_PART


def _run_stage(stage: str, processes: int, _: Path) -> None:
    use_small_chunks()
    STAGES[stage](tiny.chain(processes))


def _convert(_: Path) -> None:
    from nmtkit.commands.export import ExportFormat, export

    folder = Path("runs") / "ctranslate2"
    if not folder.exists():
        export(tiny.chain().need("average").path, folder, ExportFormat.CTRANSLATE2)


def _study(folder: Path) -> None:
    from nmtkit.commands import study as command
    from nmtkit.study import load_study

    path = folder / "study.toml"
    if not path.exists():
        path.write_text(STUDY, encoding="utf-8", newline="\n")
    study = load_study(str(path))
    chains = command.chains_of(study, tiny.chain().machine, tiny.OVERRIDES)
    if failed := command.run_rows(study.rows, chains):
        raise UserError(f"rows failed: {', '.join(failed)}")


def _steps(place: Path, port: int, n_cores: int, *, can_convert: bool) -> Iterator[Step]:
    """Run each step undisturbed, each on what those before it left."""
    before = place / "0"
    before.mkdir()
    tiny.write_texts(before)
    works: list[tuple[str, Work]] = [("download", partial(fetch, port))]
    works += [(stage, partial(_run_stage, stage, 1)) for stage in STAGES]
    works.insert(2, ("train, 2 processes", partial(_run_stage, "train", 2)))
    works += [("convert", _convert)] if can_convert else []
    works += [("study", _study)]
    for number, (name, work) in enumerate(works, 1):
        has_processes = name in ("train, 2 processes", "study")
        if name == "train, 2 processes" and n_cores < 2:
            progress.say("selftest: this machine has one core: nothing is trained by two processes")
            continue
        after = place / str(number)
        shutil.copytree(before, after)
        ended = attempt(work, after)
        if ended.code != 0:
            raise UserError(f"{name} fails undisturbed: {_last_line(ended)}")
        whole = contents(after / "runs")
        yield Step(name, work, before, whole, ended.operations, ended.seconds, has_processes)
        if name != "train, 2 processes":  # the others build on what one process trained
            before = after


# The kills


def chaos(
    folder: Path, n_kills: int, log: Path | None, n_cores: int, *, can_convert: bool
) -> Iterator[Round]:
    """Kill steps of the tiny demo until there were `n_kills`, and yield each round.

    Args:
        folder: An empty one.
        n_kills: How many, those of `log` included.
        log: A file to which each round is added as a line of JSON; its rounds are yielded first.
        n_cores: Of this machine; two processes train where there are two.
        can_convert: CTranslate2 is installed.

    Raises:
        UserError: A step fails without being killed, or `log` is not a log of kills.
    """
    versions()  # looked up once, and not in each fork
    present_code()
    done = _read(log) if log is not None and log.exists() else []
    yield from done
    n_done = sum(len(each.kills) for each in done)
    n_rounds = len(done)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            steps = list(_steps(folder, server.server_port, n_cores, can_convert=can_convert))
            while n_done < n_kills:
                each = _round(steps, folder / "killed", Random(f"round {n_rounds}"))
                n_rounds += 1
                n_done += len(each.kills)
                if log is not None:
                    _append(log, each)
                yield each
        finally:
            server.shutdown()


def _round(steps: list[Step], place: Path, random: Random) -> Round:
    begin = time.monotonic()
    # Steps with processes of their own take ten times as long as others.
    step = random.choices(steps, [0.4 if step.has_processes else 1 for step in steps])[0]
    order = random.choice(list(ORDERS))
    if place.exists():
        shutil.rmtree(place)
    shutil.copytree(step.before, place)
    kills: list[str] = []
    n_kills = random.choice((1, 1, 1, 2, 3))
    while len(kills) < n_kills:
        death = _death(step, random)
        ended = attempt(step.work, place, order, death)
        if ended.killed:
            kills.append(str(death))
        elif problem := _problem_of(ended):
            return Round(step.name, kills, problem, _since(begin))
        else:  # it ended first, and so will every rerun
            break
    ended = attempt(step.work, place, order)
    problem = _problem_of(ended)
    if problem is None and (names := differing(contents(place / "runs"), step.whole)):
        problem = f"other bytes in {', '.join(names)}"
    return Round(step.name, kills, problem, _since(begin))


def _death(step: Step, random: Random) -> BeforeOperation | AfterSeconds:
    if step.has_processes:
        return AfterSeconds(random.uniform(0, step.seconds), random.choice(list(Victim)))
    if random.random() < 0.5:
        return BeforeOperation(random.randint(1, step.operations))
    return AfterSeconds(random.uniform(0, step.seconds))


def _problem_of(ended: Ended) -> str | None:
    if ended.hung:
        return f"hangs: {_last_line(ended)}"
    if ended.code != 0:
        return f"exit code {ended.code}: {_last_line(ended)}"
    return None


def _last_line(ended: Ended) -> str:
    return ended.said.rstrip("\n").rsplit("\n", 1)[-1]


def _since(begin: float) -> float:
    return round(time.monotonic() - begin, 3)


# The log


def _append(log: Path, each: Round) -> None:
    with log.open("a", encoding="utf-8", newline="\n") as file:
        file.write(f"{json.dumps(asdict(each))}\n")


def _read(log: Path) -> list[Round]:
    """Return the rounds of a log; a kill may have cut its last line."""
    try:
        *lines, cut = log.read_text(encoding="utf-8").split("\n")
        rounds = [Round(**json.loads(line)) for line in lines]
        if cut and not cut.startswith(BEGINNING[: len(cut)]):
            raise ValueError(cut)
    except (ValueError, TypeError, RecursionError):
        raise UserError(
            f"{log} is not a log of `nmtkit selftest --chaos`; name another file"
        ) from None
    if cut:
        whole = "".join(f"{line}\n" for line in lines)
        log.write_text(whole, encoding="utf-8", newline="\n")
    return rounds
