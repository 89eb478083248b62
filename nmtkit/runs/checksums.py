"""Verify the checksums of artifacts and all their inputs."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from nmtkit.config.loading import load_recipe
from nmtkit.config.settings import Settings
from nmtkit.stages.pipeline import INPUTS, STAGES, Pipeline, content_hash
from nmtkit.store.artifacts import differences, open_directory
from nmtkit.store.code_version import warn_of_other_code
from nmtkit.store.manifests import Manifest, read_manifest
from nmtkit.store.provenance import read_run_record, surrounding_runs_dir, with_sources
from nmtkit.store.records import DamagedError
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import counted


@dataclass(frozen=True)
class VerifiedArtifact:
    """An artifact, or the texts that it was built from, whose checksums were computed."""

    what: str  # the stage, or "texts"
    path: str
    differences: list[str]  # sentences; empty if all is as published


def verify_folder(path: Path, settings: Settings) -> Iterator[VerifiedArtifact]:
    """Verify an artifact and everything that it was built from.

    Args:
        path: The folder of the artifact.
        settings: Where the texts are looked for. The folder of artifacts is that of `path`.
    """
    # The folder of an artifact may be a link to another disk, and so may that of its stage.
    is_linked = path.absolute().parent.name in STAGES
    runs_dir = surrounding_runs_dir(path.absolute() if is_linked else path.resolve())
    pipeline = None
    try:
        run = read_run_record(path.resolve()).run
        if run is not None:
            settings = replace(settings, runs_dir=runs_dir)
            recipe = load_recipe(run.recipe, run.overrides)
            pipeline = Pipeline(recipe, settings, run.recipe, run.overrides)
    except UserError as error:
        progress.warn(f"verify: the texts of {path.resolve()} are not compared: {error}")
    paths = with_sources(path, runs_dir)
    # A bundle that was copied out of a folder of artifacts is used without its inputs.
    is_copy = not is_linked and path.resolve().parent.name not in STAGES
    if is_copy and len(paths) > 1:
        progress.warn(f"verify: the inputs of {path} are not verified: it is a copy without them")
        paths = [path]
    yield from _verify(paths, pipeline)


def verify_recipe(pipeline: Pipeline) -> Iterator[VerifiedArtifact]:
    """Verify the published artifacts of a recipe, its bundles and its texts.

    Raises:
        UserError: Nothing is published of the recipe.
    """
    paths = [pipeline.store.place(stage, pipeline.fingerprint(stage)) for stage in STAGES]
    bundles = [Path(path) for path in dict.fromkeys(pipeline.bundle_paths.values())]
    paths = [path for path in (*paths, *bundles) if path.is_dir()]
    if not paths:
        # The texts may have changed since, and with them all fingerprints.
        expected = {**pipeline.depends_on("prepare"), "inputs": None}
        for artifact in pipeline.store.all("prepare"):
            if {**artifact.manifest.depends_on, "inputs": None} == expected:
                paths.append(artifact.path)
    yield from _verify(paths or [pipeline.need("prepare").path], pipeline)
    for bundle in bundles:
        if not bundle.exists():
            missing = f"{bundle} does not exist; the hashes that artifacts record of it were used"
            yield VerifiedArtifact("bundle", str(bundle), [missing])


def _verify(paths: Sequence[Path], pipeline: Pipeline | None) -> Iterator[VerifiedArtifact]:
    """Verify some artifacts, and the texts of those that read any.

    Args:
        paths: The folders of the artifacts.
        pipeline: The recipe that built them; None: the texts are not compared.
    """
    for path in paths:
        progress.log(f"verify: {path}")
        messages = list(differences(path))
        try:
            artifact = open_directory(path)
        except DamagedError:
            try:
                kind = read_manifest(path).kind
            except DamagedError:
                # Without its manifest, only the folder of the artifact shows the stage.
                name = path.resolve().parent.name
                kind = name if name in STAGES else "unknown"
            yield VerifiedArtifact(kind, str(path), messages)
            continue
        warn_of_other_code([artifact])
        manifest = artifact.manifest
        # An input may have been rebuilt since under the same fingerprint.
        runs_dir = surrounding_runs_dir(path.resolve())
        upstream = manifest.depends_on.get("upstream", {})
        for stage, content in manifest.inputs.items():
            source = runs_dir / stage / upstream.get(stage, "")
            with suppress(DamagedError):  # it is missing, or has differences of its own
                if content_hash(open_directory(source)) != content:
                    messages.append(f"{path} was built from another build of {source}")
        yield VerifiedArtifact(manifest.kind, str(path), messages)
        if pipeline is not None and manifest.kind in INPUTS:
            yield VerifiedArtifact("texts", str(path), list(_changed_texts(manifest, pipeline)))


def _changed_texts(manifest: Manifest, pipeline: Pipeline) -> Iterator[str]:
    """Yield a sentence for each text of the recipe that the artifact was not built from."""
    for key, identities in manifest.depends_on["inputs"].items():
        corpora = pipeline.corpora[key]
        if len(corpora) != len(identities):
            n_texts = counted(len(corpora), "text")
            yield f"the recipe has {n_texts} as {key}, but {len(identities):,} were read"
        # If their numbers differ, the texts that both have are compared.
        for corpus, identity in zip(corpora, identities, strict=False):
            try:
                hashes = pipeline.downloads.read_hashes(corpus.downloads)
                # A download without a recorded hash is covered by the identity below.
                for url, present in hashes.items():
                    read = manifest.downloads.get(url, present)
                    if read != present:
                        yield f"{url} has {present}, but was read with {read}"
                if corpus.identity() != identity:
                    files = " and ".join(corpus.places) or corpus.name
                    yield f"{files}: not the text that was read"
            except UserError as error:
                yield str(error)
