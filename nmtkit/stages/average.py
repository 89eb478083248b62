"""average: from the last checkpoints, or the best, to a bundle (section 6.1)."""

from pathlib import Path
from typing import Any

from nmtkit.corpus.prepared import PreparedCorpus
from nmtkit.decoding.bundle import write_bundle
from nmtkit.model.description import MODEL, Description
from nmtkit.stages.pipeline import Pipeline
from nmtkit.store.artifacts import Artifact, open_directory
from nmtkit.store.code_version import own_code, versions
from nmtkit.store.records import DamagedError, NewerVersionError, read_json, write_json
from nmtkit.store.verification import verify
from nmtkit.training.averaging import average_weights
from nmtkit.training.checkpoint import checkpoints, read_progress, to_average
from nmtkit.training.metrics import CHECKPOINTS
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError

AVERAGED = "averaged.json"


def run(pipeline: Pipeline) -> Artifact:
    pipeline.delete_forced()
    return pipeline.make("average", lambda draft: _average(pipeline, draft))


def averaged_steps(bundle: Artifact) -> list[int]:
    steps: list[int] = read_json(verify(bundle, AVERAGED).file(AVERAGED))["steps"]
    return steps


def _average(pipeline: Pipeline, draft: Path) -> dict[str, Any]:
    prepared = PreparedCorpus(verify(pipeline.need("prepare")))
    trained = verify(pipeline.need("train"), MODEL).path
    model = Description.load(trained)
    training, averaging = pipeline.recipe.training, pipeline.recipe.averaging
    try:
        how = averaging.n_checkpoints, averaging.which
        chosen = to_average(trained / CHECKPOINTS, training, *how)
        steps = [read_progress(path).step for path in chosen]
        told: dict[str, Any] = {"steps": steps}
        if averaging.which == "best":
            ranked = read_progress(checkpoints(trained / CHECKPOINTS)[-1]).ranked or ()
            score_of = {each.step: each.score for each in ranked}
            told |= {"metric": training.patience_metric, "scores": [score_of[n] for n in steps]}
        twin = _same_weights(pipeline)
        shown = ", ".join(f"{step:,}" for step in steps) + (f", as in {twin}" if twin else "")
        shown += f", best by dev {told['metric']}" if "metric" in told else ""
        progress.log(f"average: checkpoints of steps {shown}")
        files = (model.verified_weights(open_directory(path)) for path in chosen)
        weights = twin or average_weights(list(files))
    except NewerVersionError:
        raise
    except DamagedError as damage:
        raise UserError(
            f"a checkpoint that is to be averaged is damaged: {damage.reason}; restore it from a "
            f"copy, or delete {trained} to train again"
        ) from None
    write_bundle(draft, prepared.files_of_a_bundle(), model, pipeline.recipe.decoding, weights)
    write_json(draft / AVERAGED, told)
    return {f"averaged_{key}": value for key, value in told.items()}


def _same_weights(pipeline: Pipeline) -> Path | None:
    """Find a bundle of this code that differs in nothing but its decoding settings."""
    wanted = {**pipeline.depends_on("average"), "decoding": None}
    inputs = pipeline.inputs("average")
    code = own_code(versions())
    for artifact in pipeline.store.all("average"):
        manifest = artifact.manifest
        is_same_code = own_code(manifest.made_by) == code and manifest.inputs == inputs
        if is_same_code and {**manifest.depends_on, "decoding": None} == wanted:
            return verify(artifact).path
    return None
