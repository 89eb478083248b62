"""nmtkit average."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from nmtkit.cli.options import Output, check_output, command, either, print_path
from nmtkit.cli.status import training_of
from nmtkit.config.recipe import PAPERS_DECODING, DecodingConfig
from nmtkit.stages.note import read_note
from nmtkit.stages.pipeline import Pipeline, warn_of_other_code
from nmtkit.store.artifacts import Artifact, Store, open_directory
from nmtkit.store.files import whole_folder
from nmtkit.store.manifests import MANIFEST, write_manifest
from nmtkit.store.records import sha256_of
from nmtkit.store.verification import verify
from nmtkit.training.metrics import CHECKPOINTS
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import describe_differences

if TYPE_CHECKING:
    from nmtkit.training.checkpoint import Origin


@command("nmtkit average demo", force=["average"])
def _of_recipe(pipeline: Pipeline) -> None:
    from nmtkit.stages import average as stage

    if pipeline.find("average") is None and pipeline.find("train") is None:
        _tell_what_is_there(pipeline)
    print_path(stage.run(pipeline).path)


def _tell_what_is_there(pipeline: Pipeline) -> None:
    """Refuse a training that is not finished, and tell which checkpoints it has."""
    from nmtkit.training.checkpoint import checkpoints, to_average

    if (training := training_of(pipeline)) is None:
        return
    folder = pipeline.store.draft_place("train", pipeline.fingerprint("train")) / CHECKPOINTS
    state = f"is running ({training.process})" if training.process else "was stopped"
    told = f"the training of {pipeline.command} {state} at {training}, with"
    if not checkpoints(folder):
        raise UserError(f"{told} no checkpoint yet; `{pipeline.command_of('train')}` ends it")
    n, which = pipeline.recipe.averaging.n_checkpoints, pipeline.recipe.averaging.which
    last = to_average(folder, pipeline.recipe.training, n, which) or checkpoints(folder)[-n:]
    typed = shlex.join(["nmtkit", "average", *map(str, last), "--output", "mean"])
    names = ", ".join(path.name for path in last)
    raise UserError(f"{told} checkpoints of {names}; end it first, or average these: `{typed}`")


# Any folders


class _Model(NamedTuple):
    """A bundle, or a checkpoint, which has no decoding settings."""

    artifact: Artifact
    origin: "Origin"
    decoding: DecodingConfig | None


def _opened(folder: Path) -> _Model:
    from nmtkit.decoding.bundle import open_bundle
    from nmtkit.training.checkpoint import Origin, read_origin

    artifact = open_directory(folder)
    if artifact.manifest.kind == "checkpoint":
        return _Model(artifact, read_origin(artifact), None)
    bundle = open_bundle(folder)
    origin = Origin(model=bundle.description, text=bundle.hashes_of_text())
    return _Model(artifact, origin, bundle.decoding)


@command("nmtkit average DIR DIR --output MEAN")
def _of_folders(names: list[str], output: Output = None) -> None:
    """Publish the mean as a bundle, with the text and the decoding settings of the first bundle."""
    from nmtkit.corpus.prepared import PreparedCorpus
    from nmtkit.decoding.bundle import write_bundle
    from nmtkit.model.weights import WEIGHTS
    from nmtkit.training.averaging import average_weights, check_related

    assert output is not None  # or it is the other form
    check_output("--output", output)
    with whole_folder(output) as draft:
        models = [_opened(Path(name)) for name in names]
        warn_of_other_code(model.artifact for model in models)
        first = next((each for each in models if each.decoding), models[0])
        seen: dict[str, Path] = {}
        for model in models:
            path = model.artifact.path
            same = seen.setdefault(sha256_of(model.artifact.file(WEIGHTS)), path)
            if same is not path:
                raise UserError(
                    f"{path} has the weights of {same}, and would count twice in the mean; name "
                    "each model once"
                )
            ours, theirs = (each.origin.model.computed() for each in (first, model))
            differences = describe_differences(theirs, ours)
            if differences or first.origin.text != model.origin.text:
                other = "another vocabulary or tokenization"
                if differences:
                    other = f"[model] {differences[0]} in place of {differences[1]}"
                raise UserError(
                    f"{path} is another model than {first.artifact.path}: {other}; only models "
                    "with the same values can be averaged"
                )
        files = [each.origin.model.verified_weights(each.artifact) for each in models]
        check_related(files)
        weights = average_weights(files)
        text = first.artifact if first.decoding else _corpus_of(first.artifact.path)
        of_text = PreparedCorpus(text).files_of_a_bundle()
        verify(text, *(path.name for path in of_text))
        decoding = first.decoding or PAPERS_DECODING
        write_bundle(draft, of_text, first.origin.model, decoding, weights)
        origins = [sha256_of(each.artifact.path / MANIFEST) for each in models]
        write_manifest(draft, {"kind": "average", "depends_on": {"manifests": origins}})
    print_path(output)


average = either(
    _of_recipe,
    _of_folders,
    "NAME...",
    "A recipe, whose last checkpoints are averaged; or, with --output, folders of bundles and "
    "checkpoints of one model.",
    is_recipe=lambda _names, given: given["output"] is None,
)


def _corpus_of(checkpoint: Path) -> Artifact:
    """Return the corpus of the training that a checkpoint, or a link to one, lies in."""
    training = checkpoint.resolve().parent.parent
    note, runs = read_note(training), training.parent.parent
    upstream = note.depends_on.get("upstream", {}) if note else {}
    corpus = Store(runs).find("prepare", upstream.get("prepare", "none"))
    if not corpus:
        raise UserError(
            f"{checkpoint} is not in the folder of its training, or its corpus is no longer in "
            f"{runs}; put them back there, or name also a bundle of the same model"
        )
    return corpus
