"""Hash again all that a result rests on, and say what differs."""

from collections.abc import Iterator
from pathlib import Path

from nmtkit import progress
from nmtkit.commands.known_runs import recorded
from nmtkit.errors import UserError
from nmtkit.files import DamagedError
from nmtkit.machine import Machine
from nmtkit.recipe_file import load_recipe
from nmtkit.reporting.facts import Verified
from nmtkit.sources.download import find, obtain
from nmtkit.sources.parallel import Corpus
from nmtkit.stages.chain import INPUTS, STAGES, Chain
from nmtkit.stages.code import other_code
from nmtkit.store import Artifact, differences, open_directory


def verify_recipe(chain: Chain) -> list[Verified]:
    """Verify every stage of `chain` that is published, and the texts that it read.

    Raises:
        UserError: nothing was published yet.
    """
    found: list[Verified] = []
    for stage in STAGES:
        place = chain.store.place(stage, chain.fingerprint(stage))
        if place.is_dir():
            found += _verify_artifact(place, chain)
    for bundle in chain.bundles.values():
        found += _verify_artifact(bundle.artifact.path, None)
    if not found:
        found = [Verified("texts", "", list(_other_texts(chain)))]
        if not found[0].differences:
            chain.need("prepare")
    return found


def verify_path(path: Path) -> list[Verified]:
    """Verify an artifact, those that it was made from, and the texts that these read."""
    try:
        upstream = open_directory(path).manifest.depends_on.get("upstream", {})
    except DamagedError:
        upstream = {}
    found: list[Verified] = []
    for stage, fingerprint in upstream.items():
        place = path.resolve().parents[1] / stage / fingerprint
        if place.is_dir():
            found += verify_path(place)
        else:
            lack = f"{place}, from which it was made, is not here any more"
            found.append(Verified(stage, str(place), [lack]))
    run = recorded(path).run
    chain = None
    if run is not None:
        try:
            recipe = load_recipe(run.recipe, run.overrides)
            chain = Chain(recipe, Machine(path.resolve().parents[1]), run.recipe, run.overrides)
        except UserError as error:
            progress.say(f"verify: the texts of {path} are not compared: {error}")
    return [*found, *_verify_artifact(path, chain)]


def _verify_artifact(path: Path, chain: Chain | None) -> Iterator[Verified]:
    progress.say(f"verify: {path}")
    found = list(differences(path))
    try:
        artifact = open_directory(path)
    except DamagedError:
        yield Verified(path.resolve().parent.name, str(path), found)
        return
    other = other_code(artifact.manifest)
    yield Verified(path.resolve().parent.name, str(path), found, other)
    if chain is not None and artifact.manifest.kind in INPUTS:
        yield Verified("texts", str(path), list(_texts(artifact, chain)))


def _texts(artifact: Artifact, chain: Chain) -> Iterator[str]:
    """Compare the texts that the recipe names now with those that the artifact was made from."""
    for key, identities in artifact.manifest.depends_on["inputs"].items():
        corpora = chain.corpora[key]
        if len(corpora) != len(identities):
            yield f"the recipe now names {len(corpora)} texts as {key}, not {len(identities)}"
            continue
        for corpus, identity in zip(corpora, identities, strict=True):
            yield from _text(corpus, identity, chain.machine)


def _text(corpus: Corpus, identity: list[str], machine: Machine) -> Iterator[str]:
    try:
        for file in corpus.downloads:
            if find(file, machine.downloads_dir, machine.mirror):
                obtain(file, machine.downloads_dir, machine.mirror)
        now = corpus.identity()
    except UserError as error:
        yield str(error)
        return
    if now != identity:
        files = " and ".join(corpus.places) or corpus.name
        yield f"{files}: not the text that was read"


def _other_texts(chain: Chain) -> Iterator[str]:
    """Say how the texts differ from those of an artifact that is the recipe's otherwise."""
    wanted = chain.depends_on("prepare")
    for artifact in chain.store.all("prepare"):
        depends_on = artifact.manifest.depends_on
        if {**depends_on, "inputs": None} == {**wanted, "inputs": None}:
            yield from _texts(artifact, chain)
