"""What there is in the folder of artifacts: which run made it, what it takes, what it scored."""

import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from rich.filesize import decimal

from nmtkit.duration import duration
from nmtkit.errors import UserError
from nmtkit.evaluation.scores import read_scores
from nmtkit.files import DRAFT, DamagedError, read_record
from nmtkit.machine import Machine
from nmtkit.provenance import Provenance
from nmtkit.recipe_file import load_recipe
from nmtkit.reporting.code import OtherCode
from nmtkit.reporting.grid import Grid
from nmtkit.stages.chain import STAGES, Chain
from nmtkit.stages.code import other_code
from nmtkit.store import ASIDE, DISCARDED, MEASUREMENTS, Store, open_directory

# Folders that are not published; the state of a draft depends on its lock.
STATES = {DRAFT: "stopped", ASIDE: "set aside", DISCARDED: "being freed"}


@dataclass(frozen=True)
class Made:
    """A folder of an artifact, finished or not."""

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


def named_chain(run: str, machine: Machine) -> Chain:
    """Return the chain of a run as one types it: a recipe, or 'RECIPE --set section.key=value'.

    Raises:
        UserError: The recipe does not exist, or `run` has another form.
    """
    recipe, overrides = split_overrides(run)
    return Chain(load_recipe(recipe, overrides), machine, recipe, overrides)


def split_overrides(run: str) -> tuple[str, list[str]]:
    """Return the recipe or study, and the overrides, of a run or a study as one types it.

    Raises:
        UserError: `run` has another form.
    """
    if " --set" not in run:
        return run, []
    overrides = []
    try:
        name, *options = shlex.split(run)
        while options:
            option, equals, value = options.pop(0).partition("=")
            if option != "--set":
                raise ValueError(option)
            overrides.append(value if equals else options.pop(0))
    except (ValueError, IndexError):
        raise UserError(
            f"{run!r} is not a run; give a recipe, or 'RECIPE --set section.key=value'"
        ) from None
    return name, overrides


def recorded(path: Path) -> Recorded:
    """Return what is known of the run that made the artifact at `path`."""
    with suppress(DamagedError):
        return read_record(path / MEASUREMENTS, Recorded)
    return Recorded()


def upstream_of(path: Path) -> dict[str, str]:
    """Return the fingerprint of each stage that a folder of artifacts was made from."""
    if path.suffix in STATES:
        return _note(path).upstream
    with suppress(DamagedError):
        upstream: dict[str, str] = open_directory(path).manifest.depends_on.get("upstream", {})
        return upstream
    return {}


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
    state, scores = "published", {}
    other: OtherCode = {}
    by = recorded(path)
    if path.suffix:
        by = _note(path)
        is_locked = path.suffix == DRAFT and store.holder(stage, path.stem) is not None
        state = "being made" if is_locked else STATES[path.suffix]
    else:
        try:
            artifact = open_directory(path)
            other = other_code(artifact.manifest)
            if stage == "score":
                scores = read_scores(artifact)
        except DamagedError:
            state = "damaged"
    then = by.published.timestamp() if by.published else path.stat().st_mtime
    return Made(
        run=by.run.run if by.run else None,
        stage=stage,
        fingerprint=path.stem,
        path=str(path),
        state=state,
        n_bytes=disk_bytes([path]),
        age_seconds=max(0.0, time.time() - then),
        scores=scores,
        other_code=other,
    )


def disk_bytes(paths: Sequence[Path], *, freed: bool = False) -> int:
    """Return the bytes of all files in some folders; a file with several names counts once.

    Args:
        freed: leave out files that have another name elsewhere.
    """
    seen: dict[tuple[int, int], tuple[int, int, int]] = {}
    for folder in paths:
        for path in folder.rglob("*"):
            if path.is_file() and not path.is_symlink():
                stat = path.stat()
                key = stat.st_dev, stat.st_ino
                seen[key] = stat.st_size, stat.st_nlink, seen.get(key, (0, 0, 0))[2] + 1
    return sum(size for size, n_names, n in seen.values() if not freed or n == n_names)


def _note(path: Path) -> Recorded:
    """Return what the lock file beside a draft says."""
    with suppress(OSError, ValidationError, UnicodeDecodeError, IndexError):
        lines = path.with_suffix(".lock").read_text(encoding="utf-8").split("\n")
        return Recorded.model_validate_json(lines[1])
    return Recorded()
