"""List the artifacts in a folder, with their states and the runs that built them."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import AwareDatetime, BaseModel

from nmtkit.evaluation.translations import read_scores
from nmtkit.stages.dependencies import STAGES
from nmtkit.store.artifacts import ASIDE, DISCARDED, Artifact, Store, open_directory
from nmtkit.store.files import DRAFT
from nmtkit.store.manifests import MANIFEST, MEASUREMENTS
from nmtkit.store.provenance import Provenance
from nmtkit.store.records import DamagedError, read_record, read_sealed
from nmtkit.utils import progress

PUBLISHED = "published"
DAMAGED = "damaged"
LOCKED = "being built"  # a draft that another process is writing
STOPPED = "stopped"
SET_ASIDE = "set aside"
BEING_FREED = "being freed"
# By the suffix of a folder that is not published.
STATES = {DRAFT: STOPPED, ASIDE: SET_ASIDE, DISCARDED: BEING_FREED}


@dataclass(frozen=True)
class ListedArtifact:
    """A published artifact, or the folder of another one."""

    run: str | None  # arguments of `nmtkit run`; None: not recorded
    stage: str
    fingerprint: str
    path: str
    state: str  # PUBLISHED, DAMAGED, LOCKED, STOPPED, SET_ASIDE or BEING_FREED, see above
    n_bytes: int
    age_seconds: float
    scores: dict[str, Any]  # by test set, as in scores.json


class RunRecord(BaseModel):
    """The run that built an artifact, from its measurements or from the lock of a draft."""

    run: Provenance | None = None
    published: AwareDatetime | None = None
    seconds: float | None = None
    host: str | None = None
    upstream: dict[str, str] = {}  # fingerprints by stage; of a draft only
    measured: dict[str, Any] = {}  # files that the manifest does not list
    # Of a training only. "timed" refers to the steps whose durations were recorded.
    device_name: str = ""
    processes: int | str = 1  # "1+2" if they differ between parts
    steps: int = 0
    tgt_tokens_per_second: float | None = None
    timed_steps: int = 0
    timed_seconds: float = 0.0
    timed_src_tokens: int = 0
    timed_tgt_tokens: int = 0


@contextmanager
def without_damaged(file: Path) -> Iterator[None]:
    """Skip a damaged artifact, and print a warning once, unless its `file` does not exist."""
    try:
        yield
    except DamagedError as error:
        if os.path.lexists(file):
            progress.warn_once(f"skipping the records of {file.parent}: {error.reason}")


def read_run_record(path: Path) -> RunRecord:
    """Return the records of the run that built an artifact or a draft, empty if damaged."""
    if path.suffix in STATES:
        # The first line of a lock names the process that holds it; the record of the run follows.
        lock = path.with_suffix(".lock")
        with without_damaged(lock):
            return read_record(lock, RunRecord, n_skipped=1)
        return RunRecord()
    measurements = path / MEASUREMENTS
    with without_damaged(measurements):
        return read_sealed(measurements, RunRecord)
    return RunRecord()


def surrounding_runs_dir(path: Path) -> Path:
    """Return the folder of artifacts that the folder of an artifact is in.

    A copy of an artifact may be anywhere, even in the root folder, as a container mounts it; then
    this is the root folder, which has no artifacts.
    """
    return path.parent.parent


def with_sources(path: Path, runs_dir: Path, n_stages: int = len(STAGES)) -> list[Path]:
    """Return the folder of an artifact, after the folders of all its inputs.

    Args:
        path: Folder of the artifact.
        runs_dir: Folder of the artifacts that it was built from.
        n_stages: Only artifacts of the first `n_stages` stages can be its inputs.
    """
    stages = list(STAGES)[:n_stages]
    # Without its manifest, the inputs of an artifact are unknown.
    upstream: dict[str, str] = {}
    with without_damaged(path / MANIFEST), suppress(ValueError):
        manifest = open_directory(path).manifest
        upstream = RunRecord.model_validate(manifest.depends_on).upstream
        if manifest.kind in stages:
            stages = stages[: stages.index(manifest.kind)]
    folders = []
    for stage, fingerprint in upstream.items():
        # Others are not inputs: a forged manifest could name its own artifact.
        if stage in stages:
            source = runs_dir / stage / fingerprint
            folders += with_sources(source, runs_dir, stages.index(stage))
    return [*folders, path]


def list_artifacts(runs_dir: Path) -> Iterator[ListedArtifact]:
    """Yield the artifacts of a folder, ordered by stage, then from the oldest to the newest."""
    store = Store(runs_dir)
    for stage in STAGES:
        listed = [_list_one(store, stage, path) for path in store.folders(stage)]
        yield from sorted(listed, key=lambda artifact: (-artifact.age_seconds, artifact.path))


def _list_one(store: Store, stage: str, path: Path) -> ListedArtifact:
    """Return the listing of one folder.

    Args:
        store: The folder of artifacts.
        stage: The stage that the folder belongs to.
        path: The folder.
    """
    record = read_run_record(path)
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
    # A draft has no record of its publication.
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
    """Yield the listed artifacts that are published and intact."""
    for artifact in listed:
        if artifact.state == PUBLISHED:
            with suppress(DamagedError):  # another process changed it meanwhile
                yield open_directory(Path(artifact.path))


def disk_bytes(folders: Sequence[Path]) -> int:
    """Return the size of all files in some folders; a file with hard links counts once."""
    sizes = {}
    for folder in folders:
        for place, _, names in os.walk(folder):
            for name in names:
                status = os.lstat(f"{place}/{name}")
                sizes[status.st_dev, status.st_ino] = status.st_size
    return sum(sizes.values())
