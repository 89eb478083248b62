"""nmtkit verify: hash again all that a result rests on, and say what differs."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from nmtkit import progress
from nmtkit.cli.known_runs import recorded, upstream_of
from nmtkit.cli.options import Overrides, chain_of, command
from nmtkit.errors import UserError
from nmtkit.files import DamagedError
from nmtkit.machine import Machine
from nmtkit.reporting.code import OtherCode, all_of, code_note, marked
from nmtkit.reporting.grid import Grid
from nmtkit.reporting.show import Form, show
from nmtkit.sources.download import find, obtain
from nmtkit.sources.parallel import Corpus
from nmtkit.stages.chain import INPUTS, STAGES, Chain
from nmtkit.stages.code import other_code
from nmtkit.store import MANIFEST, Artifact, differences, open_directory


@dataclass(frozen=True)
class Verified:
    """An artifact, or the texts that it was made from, hashed again."""

    what: str
    path: str
    differences: list[str]
    other_code: OtherCode = field(default_factory=dict)  # that made it


@command("nmtkit verify demo", "mirror")
def verify(
    machine: Machine,
    form: Form,
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="A recipe, or the folder of an artifact.")
    ],
    overrides: Overrides = None,
) -> None:
    """Check that a result and all it rests on are as published."""
    if Path(run).is_dir():
        if overrides:
            raise UserError("--set is an option for recipes; a folder has its values already")
        if not (Path(run) / MANIFEST).exists():
            raise UserError(f"{run} has no {MANIFEST}; name a recipe, or the folder of an artifact")
        found = verify_path(Path(run))
    else:
        found = verify_recipe(chain_of(run, overrides, machine))
    rows = [
        (each.what, marked("no" if each.differences else "yes", each.other_code), each.path)
        for each in found
    ]
    note = code_note(all_of(*(each.other_code for each in found)))
    told = [difference for each in found for difference in each.differences]
    table = Grid.of("", ("what", "as published?", "where"), rows, 3)
    show(form, found, [table, *([f"note: {note}"] if note else []), *told])
    if told:
        many = f"{len(told):,} differences" if len(told) > 1 else "1 difference"
        raise UserError(f"{run} is not as it was published: {many}")


def verify_recipe(chain: Chain) -> list[Verified]:
    """Verify every stage of `chain` that is published, and the texts that it read.

    Raises:
        UserError: nothing was published yet.
    """
    places = [chain.store.place(stage, chain.fingerprint(stage)) for stage in STAGES]
    found = [each for place in places if place.is_dir() for each in _verify_artifact(place, chain)]
    for bundle in chain.bundles.values():
        found += _verify_artifact(bundle.artifact.path, None)
    if found:
        return found
    if changed := list(_other_texts(chain)):
        return [Verified("texts", "", changed)]
    chain.need("prepare")
    raise AssertionError("unreachable")


def verify_path(path: Path) -> list[Verified]:
    """Verify an artifact, those that it was made from, and the texts that these read."""
    found: list[Verified] = []
    runs_dir = path.resolve().parent.parent
    for stage, fingerprint in upstream_of(path).items():
        place = runs_dir / stage / fingerprint
        if place.is_dir():
            found += verify_path(place)
        else:
            lack = f"{place}, from which it was made, is not here any more"
            found.append(Verified(stage, str(place), [lack]))
    chain = None
    if run := recorded(path).run:
        try:
            chain = chain_of(run.recipe, run.overrides, Machine(runs_dir))
        except UserError as error:
            progress.say(f"verify: the texts of {path} are not compared: {error}")
    return [*found, *_verify_artifact(path, chain)]


def _verify_artifact(path: Path, chain: Chain | None) -> Iterator[Verified]:
    progress.say(f"verify: {path}")
    what, found = path.resolve().parent.name, list(differences(path))
    try:
        artifact = open_directory(path)
    except DamagedError:
        yield Verified(what, str(path), found)
        return
    yield Verified(what, str(path), found, other_code(artifact.manifest))
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
        if corpus.identity() != identity:
            files = " and ".join(corpus.places) or corpus.name
            yield f"{files}: not the text that was read"
    except UserError as error:
        yield str(error)


def _other_texts(chain: Chain) -> Iterator[str]:
    """Say how the texts differ from those of an artifact that is the recipe's otherwise."""
    wanted = {**chain.depends_on("prepare"), "inputs": None}
    for artifact in chain.store.all("prepare"):
        if {**artifact.manifest.depends_on, "inputs": None} == wanted:
            yield from _texts(artifact, chain)
