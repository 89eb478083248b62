"""The stage average: from the last checkpoints, or the best, to a bundle (section 6.1)."""

import shlex
from pathlib import Path
from typing import Any

from nmtkit.corpus.prepared import PreparedCorpus
from nmtkit.decoding.bundle import AVERAGED, write_bundle
from nmtkit.model.description import MODEL, Description
from nmtkit.stages.forcing import delete_forced
from nmtkit.stages.pipeline import Pipeline
from nmtkit.stages.training_state import training_progress
from nmtkit.store.artifacts import Artifact, open_directory
from nmtkit.store.code_version import is_other_code
from nmtkit.store.records import DamagedError, NewerVersionError, write_json
from nmtkit.store.verification import verify
from nmtkit.training.averaging import average_weights
from nmtkit.training.checkpoint import checkpoints, read_progress
from nmtkit.training.metrics import CHECKPOINTS
from nmtkit.training.retention import checkpoints_to_average
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError


def run(pipeline: Pipeline) -> Artifact:
    """Return the bundle of a recipe, built now unless it exists.

    Raises:
        UserError: The training is not finished, or a checkpoint is damaged.
    """
    if pipeline.find("average") is None and pipeline.find("train") is None:
        refuse_unfinished(pipeline)
    delete_forced(pipeline)
    return pipeline.build("average", lambda draft: _average(pipeline, draft))


def refuse_unfinished(pipeline: Pipeline) -> None:
    """Refuse a training that has begun but is not finished.

    Raises:
        UserError: It is not finished. The message has the commands to finish it, and to average
            the checkpoints that it has.
    """
    training = training_progress(pipeline)
    if training is None:
        return
    folder = pipeline.store.draft_place("train", pipeline.fingerprint("train")) / CHECKPOINTS
    state = f"is running ({training.process})" if training.process else "was stopped"
    problem = f"the training of {pipeline.command} {state} at {training}"
    finish = f"run `{pipeline.commands.stage('train')}` to finish it"
    if not checkpoints(folder):
        raise UserError(f"{problem}, with no checkpoint yet; {finish}")
    averaging = pipeline.recipe.averaging
    n = averaging.n_checkpoints
    # Before the first scheduled checkpoint, there are only those to resume from.
    paths = checkpoints_to_average(folder, pipeline.recipe.training, n, averaging.which)
    if not paths:
        paths = checkpoints(folder)[-n:]
    command = shlex.join(["nmtkit", "average", *map(str, paths), "--output", "mean"])
    names = ", ".join(path.name for path in paths)
    raise UserError(f"{problem}; average {names} with `{command}`, or {finish}")


def _average(pipeline: Pipeline, draft: Path) -> dict[str, Any]:
    """Write the bundle of a recipe into a draft, and return measurements."""
    prepared = PreparedCorpus(verify(pipeline.need("prepare")))
    # Only the description is verified here; checkpoints are verified as they are read.
    trained = verify(pipeline.need("train"), MODEL).path
    model = Description.load(trained)
    try:
        averaging = pipeline.recipe.averaging
        paths = checkpoints_to_average(
            trained / CHECKPOINTS,
            pipeline.recipe.training,
            averaging.n_checkpoints,
            averaging.which,
        )
        averaged = _describe(pipeline, trained, paths)
        same_weights = _same_weights(pipeline)
        steps = ", ".join(f"{step:,}" for step in averaged["steps"])
        source = f", as in {same_weights}" if same_weights else ""
        metric = f", best by dev {averaged['metric']}" if "metric" in averaged else ""
        progress.log(f"average: checkpoints of steps {steps}{source}{metric}")
        files = [model.verified_weights(open_directory(path)) for path in paths]
        weights = same_weights or average_weights(files)
    except NewerVersionError:  # restoring a copy would not help
        raise
    except DamagedError as damage:
        raise UserError(
            f"a checkpoint to average is damaged: {damage.reason}; restore it from a backup, or "
            f"delete {trained} and retrain"
        ) from None
    write_bundle(draft, prepared.bundle_files(), model, pipeline.recipe.decoding, weights)
    write_json(draft / AVERAGED, averaged)
    return {f"averaged_{key}": value for key, value in averaged.items()}


def _describe(pipeline: Pipeline, trained: Path, paths: list[Path]) -> dict[str, Any]:
    """Return the steps of checkpoints, and their dev scores if the best were chosen.

    Args:
        pipeline: The recipe.
        trained: The artifact of `train`.
        paths: The checkpoints.
    """
    steps = [read_progress(path).step for path in paths]
    averaged: dict[str, Any] = {"steps": steps}
    if pipeline.recipe.averaging.which == "best":
        # The last checkpoint has the evaluations of all.
        last = checkpoints(trained / CHECKPOINTS)[-1]
        evaluations = read_progress(last).ranked or ()
        scores = {evaluation.step: evaluation.score for evaluation in evaluations}
        averaged["metric"] = pipeline.recipe.training.patience_metric
        averaged["scores"] = [scores[step] for step in steps]
    return averaged


def _same_weights(pipeline: Pipeline) -> Path | None:
    """Find a bundle, built by this code, that differs only in its decoding settings."""
    # Trying beam sizes would otherwise fill the disk with copies of one model.
    depends_on = {**pipeline.depends_on("average"), "decoding": None}
    inputs = pipeline.inputs("average")
    for artifact in pipeline.store.all("average"):
        manifest = artifact.manifest
        is_current = not is_other_code(manifest.made_by) and manifest.inputs == inputs
        if is_current and {**manifest.depends_on, "decoding": None} == depends_on:
            return verify(artifact).path
    return None
