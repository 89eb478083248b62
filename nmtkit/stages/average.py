"""The stage average: from the last checkpoints, or the best, to a bundle (section 6.1).

`average_folders` averages any bundles and checkpoints of one model, outside of a recipe.
"""

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmtkit.config.model import PAPERS_DECODING, DecodingConfig
from nmtkit.corpus.prepared import PreparedCorpus
from nmtkit.corpus.vocabulary_map import VOCABULARY_MAP, VocabularyMap
from nmtkit.decoding.bundle import AVERAGED, open_bundle, write_bundle
from nmtkit.model.weights import MODEL, WEIGHTS, Description
from nmtkit.stages.forcing import delete_forced
from nmtkit.stages.pipeline import Pipeline
from nmtkit.stages.training_state import read_note, training_progress
from nmtkit.store.artifacts import Artifact, Store, open_directory, verify
from nmtkit.store.code_version import is_other_code, warn_of_other_code
from nmtkit.store.files import whole_folder
from nmtkit.store.manifests import MANIFEST, write_manifest
from nmtkit.store.records import DamagedError, NewerVersionError, file_sha256, write_json
from nmtkit.store.tensors import load_tensors
from nmtkit.training.checkpoint import (
    Origin,
    checkpoints,
    checkpoints_to_average,
    read_origin,
    read_progress,
)
from nmtkit.training.metrics import CHECKPOINTS
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import describe_differences

# Minimum cosine of the weights of two models. It is about 0 for independent initial weights.
MIN_COSINE = 0.1


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
    if averaging.n_target_candidates:
        progress.log("average: aligning the training text, to choose candidates of tokens")
        n_tokens = prepared.counts().vocabulary
        src, tgt = prepared.ids("train", "src"), prepared.ids("train", "tgt")
        vocabulary_map = VocabularyMap.from_corpus(
            src, tgt, n_tokens, averaging.n_target_candidates
        )
        vocabulary_map.write(draft / VOCABULARY_MAP, [str(id_) for id_ in range(n_tokens)])
    return {f"averaged_{key}": value for key, value in averaged.items()}


def _describe(pipeline: Pipeline, trained: Path, paths: list[Path]) -> dict[str, Any]:
    """Return the steps of checkpoints, and their dev scores if the best were chosen.

    Args:
        trained: The artifact of `train`.
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


def average_weights(files: Sequence[Path]) -> dict[str, Tensor]:
    """Average every parameter over `files`, summed in float64, returned in float32."""
    # One file after another: only one of them is in memory at a time.
    sums: dict[str, Tensor] = {}
    for file in files:
        for name, weight in load_tensors(file).items():
            if name not in sums:
                sums[name] = torch.zeros_like(weight, dtype=torch.float64)
            sums[name] += weight
    return {name: (weight / len(files)).float() for name, weight in sums.items()}


# Any bundles and checkpoints


@dataclass(frozen=True)
class _Model:
    """A bundle or a checkpoint; a checkpoint has no decoding settings."""

    artifact: Artifact
    origin: Origin
    decoding: DecodingConfig | None = None

    @property
    def path(self) -> Path:
        """Its folder, as the user named it."""
        return self.artifact.path


def average_folders(folders: Sequence[Path], output: Path) -> None:
    """Publish the average of several models as a bundle.

    It has the subwords, tokenization and decoding settings of the first bundle.

    Args:
        folders: Bundles and checkpoints of the same model.
        output: The folder to write.

    Raises:
        UserError: The models are not related, or one of them is given twice.
    """
    with whole_folder(output) as draft:
        models = [_open(folder) for folder in folders]
        warn_of_other_code([model.artifact for model in models])
        # A bundle has text files and decoding settings; a checkpoint only points to its corpus.
        bundles = [model for model in models if model.decoding is not None]
        first = bundles[0] if bundles else models[0]
        _check_distinct(models)
        for model in models:
            _check_same_model(first, model)
        files = [model.origin.model.verified_weights(model.artifact) for model in models]
        check_related(files)
        weights = average_weights(files)

        prepared = first.artifact if first.decoding else _corpus(first.path)
        text_files = PreparedCorpus(prepared).bundle_files()
        names = [path.name for path in text_files]
        verify(prepared, *names)
        decoding = first.decoding or PAPERS_DECODING
        write_bundle(draft, text_files, first.origin.model, decoding, weights)
        # Hashes of their manifests identify the models: those have the hashes of all files.
        origins = [file_sha256(model.path / MANIFEST) for model in models]
        write_manifest(draft, {"kind": "average", "depends_on": {"manifests": origins}})


def _open(folder: Path) -> _Model:
    """Open a bundle or a checkpoint."""
    artifact = open_directory(folder)
    if artifact.manifest.kind == "checkpoint":
        return _Model(artifact, read_origin(artifact))
    bundle = open_bundle(folder)
    origin = Origin(model=bundle.description, text=bundle.text_hashes())
    return _Model(artifact, origin, bundle.decoding)


def _check_distinct(models: Sequence[_Model]) -> None:
    """Check that no model counts twice in the average, as a link or a copy would."""
    paths: dict[str, Path] = {}  # by the hash of the weights
    for model in models:
        # Checkpoints of different steps never have equal weights.
        sha256 = file_sha256(model.artifact.file(WEIGHTS))
        if sha256 in paths:
            raise UserError(
                f"{model.path} and {paths[sha256]} have the same weights, which would count twice "
                "in the average; pass each model once"
            )
        paths[sha256] = model.path


def _check_same_model(first: _Model, model: _Model) -> None:
    """Check that two models compute the same function of their weights and their text."""
    differences = describe_differences(
        model.origin.model.inference_settings(), first.origin.model.inference_settings()
    )
    if differences:
        ours, theirs = differences
        problem = f"[model] has {ours} instead of {theirs}"
    elif first.origin.text != model.origin.text:
        problem = "another vocabulary or tokenization"
    else:
        return
    raise UserError(
        f"{model.path} is a different model than {first.path}: {problem}; only models with the "
        "same values can be averaged"
    )


def _corpus(checkpoint: Path) -> Artifact:
    """Return the prepared corpus of the training whose folder contains a checkpoint."""
    training = checkpoint.resolve().parent.parent  # the checkpoint may be a link
    # A training is in RUNS/train/, and its corpus in RUNS/prepare/.
    runs_dir = training.parent.parent
    note = read_note(training)
    upstream = note.depends_on.get("upstream", {}) if note else {}
    corpus = Store(runs_dir).find("prepare", upstream.get("prepare", "none"))
    if corpus is None:
        raise UserError(
            f"{checkpoint} is not in the folder of its training, or its corpus is no longer in "
            f"{runs_dir}; move them back, or also pass a bundle of the same model"
        )
    return corpus


def check_related(files: Sequence[Path]) -> None:
    """Check that the weights in `files` were trained from the same initial weights.

    Raises:
        UserError: They were not: their mean would be noise.
    """
    # Two models in memory at a time are enough: all are compared with the first.
    first = load_tensors(files[0])
    for file in files[1:]:
        product = square = other_square = 0.0
        for name, weight in load_tensors(file).items():
            if weight.dim() == 1:
                continue  # gains and biases have the same initial values in every model
            a = weight.double().flatten()
            b = first[name].double().flatten()
            product += (a @ b).item()
            square += (a @ a).item()
            other_square += (b @ b).item()
        cosine = product / math.sqrt(square * other_square)
        # The negation also refuses NaN, of weights that are not finite.
        if not cosine >= MIN_COSINE:
            raise UserError(
                f"{file.parent} was trained from other initial weights than {files[0].parent} "
                f"(another seed; the cosine of their weights is {cosine:.3f}), so their mean is "
                "meaningless; average checkpoints of one training or fine-tunings of one model, "
                "or pass both bundles to `nmtkit translate` as an ensemble"
            )
