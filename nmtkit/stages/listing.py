"""The artifacts in a folder: what state they are in, and which run built them."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import AwareDatetime, BaseModel

from nmtkit.evaluation.translations import read_scores
from nmtkit.stages.pipeline import STAGES
from nmtkit.store.artifacts import ASIDE, DISCARDED, Artifact, Store, open_directory
from nmtkit.store.files import DRAFT
from nmtkit.store.manifests import MANIFEST, MEASUREMENTS
from nmtkit.store.provenance import Provenance
from nmtkit.store.records import DamagedError, read_record, read_sealed
from nmtkit.utils import progress

PUBLISHED = "published"
DAMAGED = "damaged"
LOCKED = "being made"  # a draft that another process writes
STOPPED = "stopped"
SET_ASIDE = "set aside"
BEING_FREED = "being freed"
# By the suffix of a folder that is not published.
STATES = {DRAFT: STOPPED, ASIDE: SET_ASIDE, DISCARDED: BEING_FREED}


@dataclass(frozen=True)
class ListedArtifact:
    """An artifact, or the folder of one that is not published."""

    run: str | None  # what to type behind `nmtkit run`; None: not recorded
    stage: str
    fingerprint: str
    path: str
    state: str  # PUBLISHED, DAMAGED, LOCKED, STOPPED, SET_ASIDE or BEING_FREED
    n_bytes: int
    age_seconds: float
    scores: dict[str, Any]  # of each test set, as `score` published them


class Recorded(BaseModel):
    """What measurements, or the lock of a draft, record of the run that built it."""

    run: Provenance | None = None
    published: AwareDatetime | None = None
    seconds: float | None = None
    host: str | None = None
    upstream: dict[str, str] = {}  # of a draft
    measured: dict[str, Any] = {}  # files besides those of the manifest
    # Of a training; in these, "timed" is what was measured of it.
    device_name: str = ""
    processes: int = 1
    steps: int = 0
    tgt_tokens_per_second: float | None = None
    timed_steps: int = 0
    timed_seconds: float = 0.0
    timed_src_tokens: int = 0
    timed_tgt_tokens: int = 0


@contextmanager
def without_damaged(file: Path) -> Iterator[None]:
    """Skip a damaged artifact, and print a warning once, unless its `file` was deleted."""
    try:
        yield
    except DamagedError as error:
        if os.path.lexists(file):  # not where it may not be looked for
            progress.warn_once(f"skipping what {file.parent} records: {error.reason}")


def recorded(path: Path) -> Recorded:
    """Return what an artifact, or the lock of a draft, records of the run that built it."""
    is_lock = path.suffix in STATES
    file = path.with_suffix(".lock") if is_lock else path / MEASUREMENTS
    with without_damaged(file):
        if is_lock:
            return read_record(file, Recorded, n_skipped=1)
        return read_sealed(file, Recorded)
    return Recorded()


def with_sources(path: Path, runs_dir: Path) -> list[Path]:
    """Return the folder of an artifact, after those of all that it was built from."""
    upstream: dict[str, str] = {}
    with without_damaged(path / MANIFEST), suppress(ValueError):
        upstream = Recorded.model_validate(open_directory(path).manifest.depends_on).upstream
    folders = []
    for stage, fingerprint in upstream.items():
        folders += with_sources(runs_dir / stage / fingerprint, runs_dir)
    return [*folders, path]


def list_artifacts(runs_dir: Path) -> Iterator[ListedArtifact]:
    """Yield the artifacts of a folder, stage by stage, the oldest first."""
    store = Store(runs_dir)
    for stage in STAGES:
        listed = [_listed(store, stage, path) for path in store.folders(stage)]
        yield from sorted(listed, key=lambda artifact: (-artifact.age_seconds, artifact.path))


def _listed(store: Store, stage: str, path: Path) -> ListedArtifact:
    record = recorded(path)
    scores: dict[str, Any] = {}
    if path.suffix:
        is_locked = path.suffix == DRAFT and store.holder(stage, path.stem) is not None
        state = LOCKED if is_locked else STATES[path.suffix]
    else:
        state = PUBLISHED
        try:
            artifact = store.find(stage, path.name)
            if artifact is not None and stage == "score":
                scores = read_scores(artifact)
        except DamagedError:
            state = DAMAGED
    built = record.published.timestamp() if record.published else path.stat().st_mtime
    return ListedArtifact(
        run=record.run.run if record.run else None,
        stage=stage,
        fingerprint=path.stem,
        path=str(path),
        state=state,
        n_bytes=disk_bytes([path]),
        age_seconds=max(0.0, time.time() - built),
        scores=scores,
    )


def published_artifacts(listed: Sequence[ListedArtifact]) -> Iterator[Artifact]:
    """Yield the listed artifacts that are published and whole."""
    for artifact in listed:
        if artifact.state == PUBLISHED:
            with suppress(DamagedError):  # by another process, meanwhile
                yield open_directory(Path(artifact.path))


def disk_bytes(folders: Sequence[Path]) -> int:
    """Return the bytes of all files in some folders; a file with several names counts once."""
    sizes = {}
    for folder in folders:
        for place, _, names in os.walk(folder):
            for name in names:
                status = os.lstat(f"{place}/{name}")
                sizes[status.st_dev, status.st_ino] = status.st_size
    return sum(sizes.values())
