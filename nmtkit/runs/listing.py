"""The artifacts in a folder, with their states, and the states of the stages of a recipe."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.filesize import decimal

from nmtkit.config.loading import toml_value
from nmtkit.evaluation.translations import read_scores
from nmtkit.rendering.grid import Grid
from nmtkit.stages.pipeline import BUNDLES, INPUTS, STAGES, Pipeline, upstream_stage
from nmtkit.stages.training_state import read_note, training_progress
from nmtkit.store.artifacts import ASIDE, DISCARDED, Artifact, Store, open_directory
from nmtkit.store.code_version import warn_of_other_code
from nmtkit.store.files import DRAFT
from nmtkit.store.manifests import read_manifest
from nmtkit.store.provenance import read_run_record
from nmtkit.store.records import DamagedError
from nmtkit.training.metrics import CHECKPOINTS, DIVERGED, REMEDY
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import duration

PUBLISHED = "published"
DAMAGED = "damaged"
LOCKED = "being built"  # a draft that another process is writing
STOPPED = "stopped"
SET_ASIDE = "set aside"
BEING_FREED = "being deleted"
# By the suffix of a folder that is not published.
STATES = {DRAFT: STOPPED, ASIDE: SET_ASIDE, DISCARDED: BEING_FREED}

MAX_STEPS = "training.max_steps"
NOT_BUILT = "not built with these values yet"


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


def list_artifacts(runs_dir: Path) -> Iterator[ListedArtifact]:
    """Yield the artifacts of a folder, ordered by stage, then from the oldest to the newest."""
    store = Store(runs_dir)
    for stage in STAGES:
        listed = [_list_one(store, stage, path) for path in store.folders(stage)]
        yield from sorted(listed, key=lambda artifact: (-artifact.age_seconds, artifact.path))


def _list_one(store: Store, stage: str, path: Path) -> ListedArtifact:
    """Return the listing of one folder of a stage."""
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
        for parent, _, names in os.walk(folder):
            for name in names:
                status = os.lstat(f"{parent}/{name}")
                sizes[status.st_dev, status.st_ino] = status.st_size
    return sum(sizes.values())


def artifacts_grid(title: str, remarks: Sequence[tuple[ListedArtifact, str]], column: str) -> Grid:
    """Return a table of artifacts.

    Args:
        column: Head of the column of remarks.
    """
    rows = []
    for artifact, remark in remarks:
        row = (
            artifact.run or "?",  # an older version may not have recorded it
            artifact.stage,
            artifact.fingerprint,
            remark,
            decimal(artifact.n_bytes),
            duration(artifact.age_seconds),
        )
        rows.append(row)
    return Grid.of(title, ("run", "stage", "fingerprint", column, "size", "age"), rows, 4)


# The stages of a recipe


@dataclass(frozen=True)
class State:
    """The state of one stage."""

    stage: str
    # "done", "stale", "running", "partial", "diverged", "missing", "damaged" or "unknown"
    state: str
    fingerprint: str | None
    path: str | None  # of the artifact; it need not exist
    why: str


def next_command(pipeline: Pipeline, stage_states: Sequence[State]) -> str | None:
    """Return the command to type next, or None if an error must be fixed first."""
    present = {state.state for state in stage_states}
    if present & {"unknown", "damaged"}:
        return None
    if present != {"done"}:
        return pipeline.commands.stage("run")
    return pipeline.commands.translate()


def states(pipeline: Pipeline) -> list[State]:
    """Return the states of all stages, in their order."""
    return [_stage_state(pipeline, stage) for stage in STAGES]


def _stage_state(pipeline: Pipeline, stage: str) -> State:
    """Return the state of a stage."""
    try:
        fingerprint = pipeline.fingerprint(stage)
    except UserError as error:  # a file of the recipe is missing
        return State(stage, "unknown", None, None, str(error))
    path = str(pipeline.store.place(stage, fingerprint))
    try:
        artifact = pipeline.store.find(stage, fingerprint)
    except UserError as error:
        return State(stage, "damaged", fingerprint, path, str(error))

    if artifact is None:
        return _draft_state(pipeline, stage)
    rebuilt = pipeline.stale_input(stage)
    # `--force` rebuilds an input under the same fingerprint.
    if rebuilt is None:
        warn_of_other_code([artifact])
        return State(stage, "done", fingerprint, path, "nothing to do")
    why = f"`{rebuilt}` was rebuilt since; the next run rebuilds this too"
    if stage == "train":  # too expensive to delete without a request
        retrain = f"{pipeline.commands.stage(stage)} --force"
        why = f"`{rebuilt}` was rebuilt since; `{retrain}` retrains"
    return State(stage, "stale", fingerprint, path, why)


def _draft_state(pipeline: Pipeline, stage: str) -> State:
    """Return the state of a stage that has published nothing."""
    fingerprint = pipeline.fingerprint(stage)
    path = str(pipeline.store.place(stage, fingerprint))
    draft = pipeline.store.draft_place(stage, fingerprint)
    training = training_progress(pipeline) if stage == "train" else None
    reached = f": {training}" if training else ""
    # While a training that diverged is retried, the note of the divergence may still be there.
    process = pipeline.store.holder(stage, fingerprint)
    if process is not None:
        return State(stage, "running", fingerprint, path, f"by {process}{reached}")
    note = draft / CHECKPOINTS / DIVERGED
    if note.is_file():
        reason = note.read_text(encoding="utf-8", errors="replace")  # it may be damaged
        why = f"{reason}; `{pipeline.commands.stage('train')}` retries; {REMEDY}"
        return State(stage, "diverged", fingerprint, path, why)
    if draft.is_dir():
        why = f"incomplete; the next run resumes it{reached}"
        return State(stage, "partial", fingerprint, path, why)
    changed = pipeline.changed_text(stage)
    why = changed[0] if changed else NOT_BUILT
    return State(stage, "missing", fingerprint, path, why)


# The values that differ from those of an existing run


def explain_missing(pipeline: Pipeline, found: Sequence[State]) -> list[State]:
    """Compare the first missing stage with existing runs of this recipe under other values.

    Returns:
        The states. The reason of the first missing stage names the values that differ from those
        of the closest run, if there is one.
    """
    explained = list(found)
    for number, state in enumerate(found):
        if state.state == "missing" and state.why == NOT_BUILT:
            closest = _closest_run(pipeline, state.stage)
            if closest is not None:
                explained[number] = replace(state, why=closest)
        # Until this stage is done, the reason for the later ones is the same.
        if state.state != "done":
            break
    return explained


def _closest_run(pipeline: Pipeline, stage: str) -> str | None:
    """Describe the run of this recipe with the fewest different values, the newest of several."""
    runs = []
    for folder in pipeline.store.folders(stage):
        if folder.suffix not in ("", DRAFT):
            continue
        record = read_run_record(folder)
        # By its name, because the file of a recipe may have been moved.
        if record.run is None or record.run.name != pipeline.recipe.name:
            continue
        try:
            note = read_note(folder)  # of drafts, only those of trainings have one
            if note is None:
                continue
            differences = _differences(pipeline, stage, note.depends_on)
        except DamagedError:
            continue
        if not differences:
            continue
        text = f"{NOT_BUILT}; `{record.run.run}` ({folder}) has {', '.join(differences.values())}"
        is_shorter = differences.keys() == {MAX_STEPS} and (
            note.depends_on["training"]["max_steps"] < pipeline.recipe.training.max_steps
        )
        if is_shorter and note.inputs in ({}, pipeline.inputs(stage)):
            text += "; the next run continues that training"
        built = record.published.timestamp() if record.published else folder.stat().st_mtime
        runs.append((len(differences), -built, text))
    return min(runs)[2] if runs else None


def _differences(pipeline: Pipeline, stage: str, depends_on: Mapping[str, Any]) -> dict[str, str]:
    """Compare the values of an artifact and its inputs with those of the recipe.

    Args:
        depends_on: Everything that the artifact depends on.

    Returns:
        Descriptions such as "model.dropout = 0.1 instead of 0.3", by section and key.

    Raises:
        DamagedError: The values of an input are not known, because it is missing or damaged.
    """
    own = pipeline.depends_on(stage)
    differences: dict[str, str] = {}
    upstream = upstream_stage(stage)
    if upstream is not None:
        fingerprint = depends_on.get("upstream", {}).get(upstream, "")
        if fingerprint != own["upstream"][upstream]:
            manifest = read_manifest(pipeline.store.place(upstream, fingerprint))
            differences |= _differences(pipeline, upstream, manifest.depends_on)
    first_section = STAGES[stage][0]
    for key in INPUTS.get(stage, ()):
        if depends_on.get("inputs", {}).get(key) != own["inputs"][key]:
            differences[f"{first_section}.{key}"] = f"other text in {first_section}.{key}"
    if stage in BUNDLES and depends_on.get("bundle") != own.get("bundle"):
        name = ".".join(BUNDLES[stage])
        differences[name] = f"another bundle as {name}"
    if stage == "train" and depends_on.get("inputs") != own.get("inputs"):
        differences["corpus.train"] = "other weights in corpus.train"
    for section in STAGES[stage]:
        there = depends_on.get(section, {})
        here = own.get(section, {})
        for key in {**there, **here}:
            name = f"{section}.{key}"
            # The names of test sets follow from the sets, whose text is compared above.
            if there.get(key) != here.get(key) and name != "test.names":
                differences[name] = f"{name} = {_value(there, key)} instead of {_value(here, key)}"
    return differences


def _value(section: Mapping[str, Any], key: str) -> str:
    """Return the value of a key as TOML, or "its default" if the manifest does not list it."""
    return toml_value(section[key]) if key in section else "its default"
