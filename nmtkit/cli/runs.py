"""nmtkit runs, and what there is in the folder of artifacts."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from rich.filesize import decimal

from nmtkit import progress
from nmtkit.cli.options import command
from nmtkit.duration import duration
from nmtkit.evaluation.translations import read_scores
from nmtkit.files import DRAFT, DamagedError, read_sealed
from nmtkit.machine import Machine
from nmtkit.provenance import Provenance
from nmtkit.reporting.code import OtherCode, code_notes, marked
from nmtkit.reporting.grid import Grid
from nmtkit.reporting.scores import SCORE_NAMES, hows
from nmtkit.reporting.show import Form, show
from nmtkit.stages.chain import STAGES
from nmtkit.stages.code import other_code
from nmtkit.store import ASIDE, DISCARDED, MANIFEST, MEASUREMENTS, Store, open_directory

OF_SETS = ("sacrebleu", "bracket_f1")  # the scores that sum up a test set
# Folders that are not published; the state of a draft depends on its lock.
STATES = {DRAFT: "stopped", ASIDE: "set aside", DISCARDED: "being freed"}


@dataclass(frozen=True)
class Made:
    run: str | None  # what to type behind `nmtkit run`; None: it does not say
    stage: str
    fingerprint: str
    path: str
    state: str  # "published", "damaged", "being made" or one of STATES
    n_bytes: int
    age_seconds: float
    scores: dict[str, Any]  # of each test set, as `score` published them
    other_code: OtherCode  # that made it


class Recorded(BaseModel):
    """What measurements, or the lock of a draft, say of the run that made it."""

    run: Provenance | None = None
    published: datetime | None = None
    seconds: float | None = None
    host: str | None = None
    upstream: dict[str, str] = {}  # of a draft
    # Of a training; in these, "timed" is what was measured of it.
    device_name: str = ""
    processes: int = 1
    steps: int = 0
    tgt_tokens_per_second: float | None = None
    timed_steps: int = 0
    timed_seconds: float = 0.0
    timed_src_tokens: int = 0
    timed_tgt_tokens: int = 0


@command("nmtkit runs")
def runs(machine: Machine, form: Form) -> None:
    found = list(made(machine.runs_dir))
    notes = code_notes(*(each.other_code for each in found))
    notes += hows((of_set for each in found for of_set in each.scores.values()), OF_SETS)
    table = made_grid("", [(each, _told(each)) for each in found], "score or state")
    none = f"there is nothing in {machine.runs_dir} yet; `nmtkit run demo` makes a first run"
    show(form, found, [table, *notes] if found else [none])


def _told(made: Made) -> str:
    if made.state != "published":
        return made.state
    scores = [
        f"{name} {of_set[kind]['score']:.2f} {SCORE_NAMES[kind]}"
        for name, of_set in made.scores.items()
        for kind in OF_SETS
        if kind in of_set
    ]
    return marked("\n".join(scores), made.other_code)


@contextmanager
def without_damaged(file: Path) -> Iterator[None]:
    """Go on without what is damaged, and say once what it is, if `file` of it was not deleted."""
    try:
        yield
    except DamagedError as error:
        if os.path.lexists(file):  # not where it may not be looked for
            progress.warn_once(f"{error.reason}; ignoring it")


def recorded(path: Path) -> Recorded:
    """Return what an artifact, or the lock of a draft, says of the run that made it."""
    is_lock = path.suffix in STATES
    file = path.with_suffix(".lock") if is_lock else path / MEASUREMENTS
    with without_damaged(file):
        return read_sealed(file, Recorded, n_skipped=int(is_lock))
    return Recorded()


def with_sources(path: Path, runs_dir: Path) -> list[Path]:
    """Return the folder of an artifact, after all that it was made from."""
    upstream: dict[str, str] = {}
    with without_damaged(path / MANIFEST), suppress(ValueError):
        upstream = Recorded.model_validate(open_directory(path).manifest.depends_on).upstream
    folders = [runs_dir.joinpath(*each) for each in upstream.items()]
    return [*(each for before in folders for each in with_sources(before, runs_dir)), path]


def made(runs_dir: Path) -> Iterator[Made]:
    """Yield what there is, stage by stage, the oldest first."""
    store = Store(runs_dir)
    for stage in STAGES:
        found = [_made(store, stage, path) for path in store.folders(stage)]
        yield from sorted(found, key=lambda each: (-each.age_seconds, each.path))


def made_grid(title: str, found: Sequence[tuple[Made, str]], what: str) -> Grid:
    """Return the table of some artifacts, each with what is said of it in the column `what`."""
    rows = []
    for each, said in found:
        size, age = decimal(each.n_bytes), duration(each.age_seconds)
        rows.append((each.run or "?", each.stage, each.fingerprint, said, size, age))
    return Grid.of(title, ("run", "stage", "fingerprint", what, "size", "age"), rows, 4)


def _made(store: Store, stage: str, path: Path) -> Made:
    by, state, scores = recorded(path), "published", {}
    other: OtherCode = {}
    if path.suffix:
        is_locked = path.suffix == DRAFT and store.holder(stage, path.stem) is not None
        state = "being made" if is_locked else STATES[path.suffix]
    else:
        try:
            if artifact := store.find(stage, path.name):
                other = other_code(artifact.manifest)
                scores = read_scores(artifact) if stage == "score" else {}
        except DamagedError:
            state = "damaged"
    then = by.published.timestamp() if by.published else path.stat().st_mtime
    run, age = by.run.run if by.run else None, max(0.0, time.time() - then)
    size = disk_bytes([path])
    return Made(run, stage, path.stem, str(path), state, size, age, scores, other)


def disk_bytes(folders: Sequence[Path]) -> int:
    """Return the bytes of all files in some folders; a file with several names counts once."""
    walks = (walk for folder in folders for walk in os.walk(folder))
    found = [os.lstat(f"{place}/{name}") for place, _, names in walks for name in names]
    return sum({(each.st_dev, each.st_ino): each.st_size for each in found}.values())
