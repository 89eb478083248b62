"""What there is in the folder of artifacts: which run made it, what it takes, what it scored."""

import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel, ValidationError

from nmtkit.errors import UserError
from nmtkit.evaluation.scores import read_scores
from nmtkit.files import DRAFT, DamagedError, read_record
from nmtkit.machine import Machine
from nmtkit.provenance import Provenance
from nmtkit.recipe_file import load_recipe
from nmtkit.reporting.code import OtherCode
from nmtkit.reporting.facts import Made
from nmtkit.stages.chain import STAGES, Chain
from nmtkit.stages.code import other_code
from nmtkit.store import ASIDE, DISCARDED, MEASUREMENTS, Store, open_directory


class Recorded(BaseModel):
    """What measurements say of the run that made an artifact, if they can be read."""

    run: Provenance | None = None
    published: datetime | None = None
    seconds: float | None = None
    host: str | None = None


class _Note(BaseModel):
    """What a lock file says of a draft."""

    run: Provenance | None = None
    upstream: dict[str, str] = {}


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
    name, overrides = run, []
    if " --set" in run:
        name, *options = shlex.split(run)
        while options:
            option, equals, value = options.pop(0).partition("=")
            if option != "--set" or not (equals or options):
                raise UserError(
                    f"{run!r} is not a run; give a recipe, or 'RECIPE --set section.key=value'"
                )
            overrides.append(value if equals else options.pop(0))
    return name, overrides


def recorded(path: Path) -> Recorded:
    """Return what is known of the run that made the artifact at `path`."""
    with suppress(DamagedError):
        return read_record(path / MEASUREMENTS, Recorded)
    return Recorded()


def upstream_of(path: Path) -> dict[str, str]:
    """Return the fingerprint of each stage that a folder of artifacts was made from."""
    if path.suffix:
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


def _made(store: Store, stage: str, path: Path) -> Made:
    state, run, published, scores = "published", None, None, {}
    other: OtherCode = {}
    if path.suffix:
        is_locked = store.holder(stage, path.stem) is not None
        run = _note(path).run
        state = {
            DRAFT: "being made" if is_locked else "stopped",
            ASIDE: "set aside",
            DISCARDED: "being freed",
        }[path.suffix]
    else:
        made_by = recorded(path)
        run, published = made_by.run, made_by.published
        try:
            artifact = open_directory(path)
            other = other_code(artifact.manifest)
            if stage == "score":
                scores = read_scores(artifact)
        except DamagedError:
            state = "damaged"
    then = path.stat().st_mtime if published is None else published.timestamp()
    return Made(
        run=run.run if run else None,
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


def _note(path: Path) -> _Note:
    """Return what the lock file beside a draft says."""
    with suppress(OSError, ValidationError, UnicodeDecodeError, IndexError):
        lines = path.with_suffix(".lock").read_text(encoding="utf-8").split("\n")
        return _Note.model_validate_json(lines[1])
    return _Note()
