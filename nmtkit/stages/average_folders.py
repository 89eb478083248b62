"""Averages of any bundles and checkpoints of one model, outside of a recipe."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nmtkit.config.model import PAPERS_DECODING, DecodingConfig
from nmtkit.corpus.prepared import PreparedCorpus
from nmtkit.decoding.bundle import open_bundle, write_bundle
from nmtkit.model.weights import WEIGHTS
from nmtkit.stages.note import read_note
from nmtkit.stages.pipeline import warn_of_other_code
from nmtkit.store.artifacts import Artifact, Store, open_directory
from nmtkit.store.files import whole_folder
from nmtkit.store.manifests import MANIFEST, write_manifest
from nmtkit.store.records import file_sha256
from nmtkit.store.verification import verify
from nmtkit.training.averaging import average_weights, check_related
from nmtkit.training.checkpoint import Origin, read_origin
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import describe_differences


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
        # The manifest identifies the models by the hashes of theirs, which have all other hashes.
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
