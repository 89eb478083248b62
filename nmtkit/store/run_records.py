"""The run that built an artifact, and the artifacts that it was built from, as recorded."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pydantic import AwareDatetime, BaseModel

from nmtkit.store.artifacts import ASIDE, DISCARDED, open_directory
from nmtkit.store.files import DRAFT
from nmtkit.store.manifests import MANIFEST, MEASUREMENTS
from nmtkit.store.provenance import Provenance
from nmtkit.store.records import DamagedError, read_record, read_sealed
from nmtkit.utils import progress

UNPUBLISHED = (DRAFT, ASIDE, DISCARDED)  # suffixes of folders


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
    if path.suffix in UNPUBLISHED:
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


def with_sources(path: Path, runs_dir: Path) -> list[Path]:
    """Return the folder of an artifact, after the folders of all its inputs.

    Args:
        path: Folder of the artifact.
        runs_dir: Folder of the artifacts that it was built from.
    """
    folders = [path]
    for folder in folders:  # grows in the loop
        # Without its manifest, the inputs of an artifact are unknown.
        upstream: dict[str, str] = {}
        with without_damaged(folder / MANIFEST), suppress(ValueError):
            depends_on = open_directory(folder).manifest.depends_on
            upstream = RunRecord.model_validate(depends_on).upstream
        for stage, fingerprint in upstream.items():
            source = runs_dir / stage / fingerprint
            # A forged manifest could name its own artifact.
            if source not in folders:
                folders.append(source)
    return folders[::-1]
