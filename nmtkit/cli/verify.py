"""nmtkit verify: hash again all that a result rests on, and say what differs."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from nmtkit.cli.options import Overrides, argument, command, load_pipeline
from nmtkit.config.settings import Settings
from nmtkit.reporting.grid import Grid
from nmtkit.reporting.show import Form, show
from nmtkit.sources.download import read_hashes
from nmtkit.stages.listing import recorded, with_sources
from nmtkit.stages.pipeline import INPUTS, STAGES, Pipeline, content_hash, warn_of_other_code
from nmtkit.store.artifacts import Artifact, open_directory
from nmtkit.store.manifests import MANIFEST, Manifest
from nmtkit.store.records import DamagedError
from nmtkit.store.verification import differences
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError


@dataclass(frozen=True)
class Verified:
    """An artifact, or the texts that it was made from, hashed again."""

    what: str
    path: str
    differences: list[str]


@command("nmtkit verify demo", "mirror")
def verify(
    settings: Settings,
    form: Form,
    run: Annotated[str, argument("RUN", "A recipe, or the folder of an artifact.")],
    overrides: Overrides = None,
) -> None:
    path = Path(run)
    if path.is_dir():
        if overrides:
            raise UserError("--set is an option for recipes; a folder has its values already")
        if not (path / MANIFEST).exists():
            raise UserError(f"{run} has no {MANIFEST}; name a recipe, or the folder of an artifact")
        is_linked = path.absolute().parent.name in STAGES  # if it is a link, to another disk
        runs_dir = (path.absolute() if is_linked else path.resolve()).parents[1]
        pipeline, places = None, with_sources(path, runs_dir)
        try:
            if made := recorded(path.resolve()).run:
                pipeline = load_pipeline(made.recipe, made.overrides, Settings(runs_dir))
        except UserError as error:
            progress.warn(f"verify: the texts of {path.resolve()} are not compared: {error}")
    else:
        pipeline = load_pipeline(run, overrides, settings)
        places = _places(pipeline) or [pipeline.need("prepare").path]
    found = list(verified(places, pipeline))
    rows = []
    differing = []
    for verified_part in found:
        answer = "no" if verified_part.differences else "yes"
        rows.append((verified_part.what, answer, verified_part.path))
        differing += verified_part.differences
    table = Grid.of("", ("what", "as published?", "where"), rows, 3)
    show(form, found, [table, *differing])
    if differing:
        many = f"{len(differing):,} differences" if len(differing) > 1 else "1 difference"
        raise UserError(f"{run} is not as it was published: {many}")


def _places(pipeline: Pipeline) -> list[Path]:
    """Return what is published of a recipe, or what it made of texts that have changed since."""
    places = [pipeline.store.place(stage, pipeline.fingerprint(stage)) for stage in STAGES]
    places += [bundle.artifact.path for bundle in pipeline.bundles.values()]
    wanted = {**pipeline.depends_on("prepare"), "inputs": None}
    return [place for place in places if place.is_dir()] or [
        artifact.path
        for artifact in pipeline.store.all("prepare")
        if {**artifact.manifest.depends_on, "inputs": None} == wanted
    ]


def verified(places: Iterable[Path], pipeline: Pipeline | None) -> Iterator[Verified]:
    for path in places:
        progress.log(f"verify: {path}")
        found = list(differences(path))
        try:
            artifact = open_directory(path)
        except DamagedError:
            yield Verified(path.resolve().parent.name, str(path), found)
            continue
        warn_of_other_code([artifact])
        manifest = artifact.manifest
        found += _rebuilt_inputs(artifact)
        yield Verified(manifest.kind, str(path), found)
        if pipeline is not None and manifest.kind in INPUTS:
            yield Verified("texts", str(path), list(_changed_texts(manifest, pipeline)))


def _rebuilt_inputs(artifact: Artifact) -> Iterator[str]:
    """Yield a sentence for each artifact that was rebuilt since this one was built from it."""
    runs_dir = artifact.path.resolve().parents[1]
    upstream = artifact.manifest.depends_on.get("upstream", {})
    for stage, content in artifact.manifest.inputs.items():
        source = runs_dir / stage / upstream.get(stage, "")
        with suppress(DamagedError):  # it is missing, or verified itself
            if content_hash(open_directory(source)) != content:
                yield f"{artifact.path} was built from another build of {source}"


def _changed_texts(manifest: Manifest, pipeline: Pipeline) -> Iterator[str]:
    """Say which texts of the recipe are not those that an artifact was made from."""
    places = pipeline.settings.downloads_dir, pipeline.settings.mirror
    for key, identities in manifest.depends_on["inputs"].items():
        corpora = pipeline.corpora[key]
        if len(corpora) != len(identities):
            yield f"the recipe names {len(corpora)} texts as {key}, and {len(identities)} were read"
        for corpus, identity in zip(corpora, identities, strict=False):
            try:
                for url, found in read_hashes(corpus.downloads, *places).items():
                    if (read := manifest.downloads.get(url, found)) != found:
                        yield f"{url} is here with {found}, and was read with {read}"
                if corpus.identity() != identity:
                    files = " and ".join(corpus.places) or corpus.name
                    yield f"{files}: not the text that was read"
            except UserError as error:
                yield str(error)
