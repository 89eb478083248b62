"""average: the mean of any bundles and checkpoints of one model, as a bundle."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nmtkit.corpus.prepared import PreparedCorpus
from nmtkit.decoding.bundle import open_bundle, write_bundle
from nmtkit.errors import UserError, shown_differences
from nmtkit.files import check_room, read_record, sha256_of, whole_folder
from nmtkit.model.weights import WEIGHTS
from nmtkit.recipe import PAPERS_DECODING, DecodingConfig
from nmtkit.stages.note import read_note
from nmtkit.store import MANIFEST, Artifact, Store, open_directory, verify, write_manifest
from nmtkit.training.averaging import average_weights, check_related
from nmtkit.training.checkpoint import PROGRESS, Origin, Progress, read_origin


@dataclass(frozen=True)
class _Model:
    """A bundle, or a checkpoint, which has no decoding settings."""

    artifact: Artifact
    origin: Origin
    decoding: DecodingConfig | None = None

    @property
    def path(self) -> Path:
        return self.artifact.path

    @property
    def step(self) -> int:
        """Return the step of a checkpoint, whatever the name of its folder."""
        return read_record(self.artifact.file(PROGRESS), Progress).step


def average(folders: Sequence[Path], place: Path) -> Path:
    """Average the weights of `folders`, and publish the bundle `place`.

    Args:
        folders: Bundles and checkpoints. The first bundle gives its text and its decoding settings.
            Without a bundle, the text is that of the training in which the first checkpoint lies,
            and the decoding settings are the paper's.
        place: A new folder.

    Raises:
        UserError: One of them is damaged, two are the same or not of one model, or `place` exists.
    """
    with whole_folder(place) as draft:
        opened = [open_directory(folder) for folder in folders]
        _check_different(
            (each.path, each.manifest.files.get(WEIGHTS, each.path)) for each in opened
        )
        models = [_model(each) for each in opened]
        _check_different(
            (each.path, (each.origin.training, each.step)) for each in models if not each.decoding
        )
        first = next((each for each in models if each.decoding), models[0])
        for model in models:
            _check_same_model(first, model)
        files = [each.origin.model.verified_weights(each.artifact) for each in models]
        check_related(files)
        weights = average_weights(files)
        check_room(draft, sum(tensor.nbytes for tensor in weights.values()), "average")
        text = first.artifact
        if not first.decoding:
            text = _corpus_of(first.path)
        decoding = first.decoding or PAPERS_DECODING
        of_text = PreparedCorpus(text).files_of_a_bundle()
        verify(text, *(path.name for path in of_text))
        write_bundle(draft, of_text, first.origin.model, decoding, weights)
        origins = [sha256_of(each.path / MANIFEST) for each in models]
        write_manifest(draft, {"kind": "average", "depends_on": {"manifests": origins}})
    return place


def _model(artifact: Artifact) -> _Model:
    if artifact.manifest.kind == "checkpoint":
        return _Model(artifact, read_origin(artifact))
    bundle = open_bundle(artifact.path)
    text = PreparedCorpus(artifact).hashes_of_text()
    return _Model(artifact, Origin(model=bundle.description, text=text), bundle.decoding)


def _corpus_of(checkpoint: Path) -> Artifact:
    """Return the corpus of the training that a checkpoint, or a link to one, lies in.

    Raises:
        UserError: It lies in no training, or the corpus is no longer there.
    """
    place = checkpoint.resolve() if checkpoint.is_symlink() else checkpoint.absolute()
    training = place.parents[1]
    try:
        note = read_note(training)
        depends_on = note.depends_on if note else {}
        fingerprint = str(depends_on["upstream"]["prepare"])
    except (UserError, LookupError, TypeError):
        raise UserError(
            f"{checkpoint} is not in the folder of its training, which tells its vocabulary; put "
            "it back there, or name also a bundle of the same model"
        ) from None
    corpus = Store(training.parents[1]).find("prepare", fingerprint)
    if corpus is None:
        raise UserError(
            f"the corpus {fingerprint} that {training} was trained on is no longer there; run "
            "`nmtkit prepare` again, or name also a bundle of the same model"
        )
    return corpus


def _check_different(models: Iterable[tuple[Path, Hashable]]) -> None:
    """Check that no model is named twice, under whatever name.

    Args:
        models: The folder of each, and what tells whether two are the same.

    Raises:
        UserError: Two are the same.
    """
    seen: dict[Hashable, Path] = {}
    for path, key in models:
        if key in seen:
            raise UserError(
                f"{path} is the same model as {seen[key]}, and would count twice in the mean; name "
                "each model once"
            )
        seen[key] = path


def _check_same_model(first: _Model, other: _Model) -> None:
    """Compare all that two models compute with besides weights.

    Raises:
        UserError: They differ.
    """
    ours, theirs = (each.origin.model.computed() for each in (first, other))
    if differences := shown_differences(theirs, ours):
        raise UserError(
            f"{other.path} is another model than {first.path}: [model] {differences[0]} in place "
            f"of {differences[1]}; only models with the same values can be averaged"
        )
    if first.origin.text != other.origin.text:
        raise UserError(
            f"{other.path} has another vocabulary or tokenization than {first.path}; only models "
            "with the same ones can be averaged"
        )
