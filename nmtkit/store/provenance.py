"""The origin of artifacts: the run that built them, and the artifacts that they were built from.

`provenance` returns the recipe, the overrides and the checkout, to be recorded; `read_run_record`
and `with_sources` read the records.
"""

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pydantic import AwareDatetime, BaseModel

from nmtkit.store.artifacts import ASIDE, DISCARDED, open_directory
from nmtkit.store.code_version import checkout
from nmtkit.store.files import DRAFT
from nmtkit.store.manifests import MANIFEST, MEASUREMENTS
from nmtkit.store.records import DamagedError, Record, file_sha256, read_record, read_sealed
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError

UNPUBLISHED = (DRAFT, ASIDE, DISCARDED)  # suffixes of folders


class Provenance(Record):
    """The origin of an artifact, as its measurements record it."""

    name: str  # of the recipe
    recipe: str  # the name of one that comes with nmtkit, or the absolute path of its file
    sha256: str | None  # of that file
    overrides: tuple[str, ...] = ()  # values of --set; paths in them are absolute
    # The environment variables that the recipe names, and that of the seed; None: not set.
    variables: tuple[tuple[str, str | None], ...] = ()
    commit: str | None  # of git; None: not a checkout
    clean: bool | None  # the sources are as in the commit

    @property
    def run(self) -> str:
        """The arguments of `nmtkit run` that give the same artifacts."""
        return run_arguments(self.recipe, self.overrides)


def provenance(
    name: str,
    command: str,
    path: Path,
    overrides: Sequence[str] = (),
    variables: Sequence[str] = (),
) -> Provenance:
    """Return the provenance of an artifact that this process builds.

    Args:
        name: The name of the recipe, in its file.
        command: The name or path of the recipe, as the user typed it.
        path: The file of the recipe. It may have been moved since it was read.
        overrides: The values of `--set`, with absolute paths.
        variables: The names of the environment variables that the artifact depends on.
    """
    # Without the file, its name and the overrides are still worth recording.
    try:
        sha256 = file_sha256(path)
    except OSError:
        sha256 = None
    values = []
    for variable in variables:
        values.append((variable, os.environ.get(variable)))
    commit, clean = checkout()
    return Provenance(
        name=name,
        recipe=command if command == path.stem else _unicode(str(path.resolve())),
        sha256=sha256,
        overrides=tuple(_unicode(override) for override in overrides),
        variables=tuple(values),
        commit=commit,
        clean=clean,
    )


def _unicode(argument: str) -> str:
    """Decode a path or an argument as UTF-8, whatever the locale; other bytes become escapes."""
    return os.fsencode(argument).decode("utf-8", errors="backslashreplace")


def run_arguments(recipe: str, overrides: Sequence[str]) -> str:
    """Return the arguments of `nmtkit run` for a recipe with overrides.

    Args:
        recipe: A name or an absolute path. A file below the current folder gets its short path.
        overrides: The values of `--set`.
    """
    path = Path(recipe)
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        recipe = f"./{path.relative_to(Path.cwd())}"
    options = [f"--set={override}" for override in overrides]
    return shlex.join([recipe, *options])


def split_overrides(run: str) -> tuple[str, list[str]]:
    """Split 'RECIPE --set section.key=value' into the recipe, or study, and its overrides.

    Raises:
        UserError: The text has options other than `--set`.
    """
    if "--set" not in run:
        return run, []
    # Users write an option and its value with a space or with "=".
    try:
        name, *options = shlex.split(run.replace("--set ", "--set="))
    except ValueError:  # an open quotation mark
        name, options = run, [""]
    overrides = []
    for option in options:
        if not option.startswith("--set="):
            raise UserError(
                f"{run!r} is not a run; pass a recipe, or 'RECIPE --set section.key=value'"
            )
        overrides.append(option.removeprefix("--set="))
    return name, overrides


# Records of runs


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
    this is the root folder, without artifacts.
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
