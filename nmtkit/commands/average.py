"""average: the mean of any bundles and checkpoints, as a bundle."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nmtkit import artifacts
from nmtkit.corpus.prepared import PreparedCorpus
from nmtkit.decoding.bundle import Bundle, open_bundle, write_bundle
from nmtkit.errors import UserError
from nmtkit.model.description import Description
from nmtkit.recipe import PAPERS_DECODING, DecodingConfig
from nmtkit.stages.continuation import training_depends_on
from nmtkit.training.averaging import average_weights


@dataclass(frozen=True)
class _Rest:
    """What a bundle has besides weights."""

    text: PreparedCorpus
    description: Description
    decoding: DecodingConfig


def average(folders: Sequence[Path], place: Path) -> Path:
    """Average the weights of `folders`, and publish the bundle `place`.

    Args:
        folders: Bundles and checkpoints of the same model and vocabulary. The first bundle gives
            its text and its decoding settings. Without a bundle, the text is that of the training
            in which the checkpoints lie, and the decoding settings are the paper's.
        place: A new folder.

    Raises:
        UserError: One of them is damaged or is of another model, or `place` exists.
    """
    with artifacts.draft_of_folder(place) as draft:
        checkpoints = [
            folder
            for folder in folders
            if artifacts.open_directory(folder).manifest.kind == "checkpoint"
        ]
        bundles = [open_bundle(folder) for folder in folders if folder not in checkpoints]
        rest = _rest_of_bundles(bundles) if bundles else _rest_of_trainings(checkpoints)
        weights = average_weights(folders)
        artifacts.check_room(draft, sum(tensor.nbytes for tensor in weights.values()), "average")
        files = rest.text.files_of_a_bundle()
        write_bundle(draft, files, rest.description, rest.decoding, weights)
        origins = [artifacts.sha256_of(folder / artifacts.MANIFEST) for folder in folders]
        artifacts.publish_directory(
            draft, place, {"kind": "average", "depends_on": {"manifests": origins}}
        )
    return place


def _rest_of_bundles(bundles: Sequence[Bundle]) -> _Rest:
    """Return what is to surround the weights, from the first of `bundles`.

    Raises:
        UserError: They differ in their subwords or their tokenization.
    """
    first, *others = bundles
    for other in others:
        if not other.reads_as(first):
            raise UserError(
                f"{other.artifact.path} has another vocabulary or tokenization than "
                f"{first.artifact.path}; only models with the same ones can be averaged"
            )
    return _Rest(PreparedCorpus(first.artifact), first.description, first.decoding)


def _rest_of_trainings(checkpoints: Sequence[Path]) -> _Rest:
    """Return what is to surround the weights, from the trainings that `checkpoints` lie in.

    Raises:
        UserError: One lies in no training, the trainings have different corpora, or the corpus is
            no longer there.
    """
    corpora = {}
    for checkpoint in checkpoints:
        training = checkpoint.absolute().parents[1]
        try:
            prepared = training_depends_on(training)["upstream"]["prepare"]
        except (UserError, LookupError, TypeError):
            raise UserError(
                f"{checkpoint} is not in the folder of its training, which tells its vocabulary; "
                "name also a bundle of the same model"
            ) from None
        corpora[str(prepared)] = training
    if len(corpora) > 1:
        raise UserError(
            f"the checkpoints are of trainings on {len(corpora)} different corpora; only models "
            "with the same vocabulary can be averaged"
        )
    [(fingerprint, training)] = corpora.items()
    corpus = artifacts.Store(training.parents[1]).find("prepare", fingerprint)
    if corpus is None:
        raise UserError(
            f"the corpus {fingerprint} that {training} was trained on is no longer there; name "
            "also a bundle of the same model"
        )
    text = PreparedCorpus(corpus)
    artifacts.verify(corpus, *(path.name for path in text.files_of_a_bundle()))
    return _Rest(text, Description.load(training), PAPERS_DECODING)
