"""average: the mean of any bundles and checkpoints, as a bundle."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from nmtkit import artifacts
from nmtkit.corpus.prepared import PreparedCorpus
from nmtkit.decoding.bundle import Bundle, open_bundle, write_bundle
from nmtkit.errors import UserError
from nmtkit.training.averaging import average_weights


def average(folders: Sequence[Path], place: Path) -> Path:
    """Average the weights of `folders`, and publish the bundle `place`.

    Args:
        folders: A bundle, which gives its text and its decoding settings, then other bundles and
            checkpoints of the same model and vocabulary.
        place: A new folder.

    Raises:
        UserError: One of them is damaged or is of another model, or `place` exists.
    """
    if place.exists():
        raise UserError(f"{place} is there already; name another folder")
    first = open_bundle(folders[0])
    for folder in folders[1:]:
        if artifacts.open_directory(folder).manifest.kind != "checkpoint":
            _check_text(first, open_bundle(folder))
    weights = average_weights(folders)
    draft = place.with_name(f"{place.name}.partial")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    artifacts.check_room(draft, sum(tensor.nbytes for tensor in weights.values()), "average")
    text = PreparedCorpus(first.artifact).files_of_a_bundle()
    write_bundle(draft, text, first.description, first.decoding, weights)
    origins = [artifacts.sha256_of(folder / artifacts.MANIFEST) for folder in folders]
    artifacts.publish_directory(
        draft, place, {"kind": "average", "depends_on": {"manifests": origins}}
    )
    return place


def _check_text(first: Bundle, other: Bundle) -> None:
    """Check that two bundles have the same subwords.

    Raises:
        UserError: They don't.
    """
    names = {path.name for path in PreparedCorpus(first.artifact).files_of_a_bundle()}
    for name in sorted(names):
        files = [bundle.artifact.manifest.files.get(name) for bundle in (first, other)]
        if files[0] != files[1]:
            raise UserError(
                f"{other.artifact.path} has another {name} than {first.artifact.path}; only models "
                "with the same vocabulary and tokenization can be averaged"
            )
