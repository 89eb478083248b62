"""Commands that are killed at any point and rerun: the same bytes, and none of them hangs."""

import hashlib
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fairseq_models import FairseqModel, save_checkpoint, write_dictionaries

from nmtkit.cli import new
from nmtkit.corpus import tokenized
from nmtkit.decoding.engine import PART_LINES
from nmtkit.export import exported_text
from nmtkit.sources.catalog import RemoteFile
from nmtkit.sources.download import Downloads
from nmtkit.store.code_version import versions
from nmtkit.training import loop
from nmtkit.utils.errors import UserError
from system import kills
from system.command import RECIPE, artifact, import_everything, run_command
from system.conftest import write_texts
from system.kills import ORDERS, Work, find_problem, run_uninterrupted
from system.server import serving

# Number of kills at random times of every step. The variable raises it for a thorough test.
N_ROUNDS = int(os.environ.get("NMTKIT_KILLS", "3"))
SLOW = pytest.mark.slow
PAYLOAD = bytes(range(256)) * 4_000  # of the download
# Short stages that publish in every way: parts of prepare, checkpoints that replace others.
SHORT = ("training.max_steps=8", "training.checkpoint_every_steps=2", "decoding.beam_size=1")
OVERRIDES = tuple(f"--set={override}" for override in SHORT)
TINY = (RECIPE, *OVERRIDES)
# So that 400 lines have several parts.
LINES_PER_CHUNK = 60
CHUNKS_PER_PART = 2
PAIRS_PER_PART = 150
STUDY = f"""
name = "rows"
description = "Two rows"
recipe = "{RECIPE}"
bleu = "sacrebleu"
rows = [{{ name = "first" }}, {{ name = "second", set = ["training.seed=2"] }}]
"""
# Minimum number of operations of every step. A lower number would mean that some are not counted.
OPERATIONS = {
    "download": 11,
    "prepare": 120,
    "train": 70,
    "average": 18,
    "translate": 12,
    "score": 10,
    "export to CTranslate2": 15,
    "export to Hugging Face": 20,
    "export of text": 20,
    "import": 15,
    "new from a bundle": 40,
    "translate a file": 40,
    "translate by CTranslate2": 20,
}
RUN = "run"
WITH_PROCESSES = ("train by two processes", "train by three processes", "study")
BUNDLE = "BUNDLE"  # stands for the bundle of the step before
OUTPUT = "output"  # a folder that no command replaces
EXPORT = ("export", BUNDLE, OUTPUT)
IMPORT = ("import", "model.pt", OUTPUT, "--codes=bpecodes", "--lang=en-de")
NEW = ("new", "mine", "--from", BUNDLE, "--src=train.en", "--tgt=train.de")
TRANSLATE = ("translate", "--bundle", BUNDLE, "-i", "test.en", "-o", "text")


# The steps


def step(*arguments: str) -> Work:
    """Run a command in many small parts, unless OUTPUT exists, which it would refuse to replace."""

    def work(folder: Path) -> None:
        vars(tokenized)["LINES_PER_CHUNK"] = LINES_PER_CHUNK
        vars(tokenized)["CHUNKS_PER_PART"] = CHUNKS_PER_PART
        vars(exported_text)["PAIRS_PER_PART"] = PAIRS_PER_PART
        PART_LINES["cpu"] = 8
        vars(loop)["SAVE_EVERY_S"] = 0.0
        vars(new)["TRIAL_SECONDS"] = 0.0
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        words = list(arguments)
        if BUNDLE in words:
            words[words.index(BUNDLE)] = str(artifact(folder, "average").relative_to(folder))
        if not (folder / OUTPUT).exists():
            run_command(*words)

    return work


class Steps:
    """Uninterrupted runs of all steps; a step starts from the folder of the step before it."""

    def __init__(self, folder: Path, *urls: str) -> None:
        def download(folder: Path) -> None:
            file = RemoteFile(urls=urls, sha256=hashlib.sha256(PAYLOAD).hexdigest())
            Downloads(folder / "runs" / "downloads").fetch(file)

        self._folder = folder
        self._done: dict[str, kills.Reference] = {}
        # The step before, and the work.
        self._works: dict[str, tuple[str, Work]] = {
            "download": ("", download),
            "prepare": ("", step("prepare", *TINY, "--workers=1")),
            "train": ("prepare", step("train", *TINY)),
            "train by two processes": ("prepare", step("train", *TINY, "--processes=2")),
            "train by three processes": ("prepare", step("train", *TINY, "--processes=3")),
            "average": ("train", step("average", *TINY)),
            "translate": ("average", step("translate", *TINY)),
            "score": ("translate", step("score", *TINY)),
            "export to CTranslate2": ("average", step(*EXPORT, "--format=ctranslate2")),
            "export to Hugging Face": ("average", step(*EXPORT, "--format=huggingface")),
            "export of text": ("prepare", step("export", *TINY, OUTPUT, "--format=text")),
            "import": ("average", step(*IMPORT)),
            "new from a bundle": ("average", step(*NEW)),
            "translate a file": ("average", step(*TRANSLATE, "--engine=torch")),
            "translate by CTranslate2": ("average", step(*TRANSLATE, "--engine=ctranslate2")),
            RUN: ("", step("run", *TINY, "--workers=1")),
            "study": ("score", step("study", "study.toml", *OVERRIDES, "--workers=1")),
        }

    def __getitem__(self, name: str) -> kills.Reference:
        if name not in self._done:
            before, work = self._works[name]
            start = self[before].after if before else self._folder / "start"
            self._done[name] = run_uninterrupted(work, start, self._folder / name)
        return self._done[name]


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Steps]:
    # Once, and not in every fork.
    import_everything()
    versions()
    folder = tmp_path_factory.mktemp("steps")
    start = folder / "start"
    start.mkdir()
    write_texts(start)
    (start / "study.toml").write_text(STUDY, encoding="utf-8", newline="\n")
    n_rows = write_dictionaries(start, [*"abcdefgh"])
    model = FairseqModel(n_rows)
    save_checkpoint(start / "model.pt", model.state(), model.settings())
    (start / "bpecodes").write_text("#version: 0.2\na b\n", encoding="utf-8", newline="\n")
    with serving(PAYLOAD, len(PAYLOAD) // 2) as incomplete_url, serving(PAYLOAD) as url:
        yield Steps(folder, incomplete_url, url)


def kill_before(reference: kills.Reference, number: int, place: Path, order: str) -> str:
    """Kill before an operation, and in half of the cases kill the rerun too.

    Args:
        reference: The work and its uninterrupted run.
        number: Number of the operation, from 1.
        place: Folder of the attempts.
        order: Order of names in directories.

    Returns:
        The problem, or "".
    """
    generator = random.Random(f"{number} of {reference.operations} {order}")
    # No rerun checks the last operations: everything must be on the disk when they are done.
    power_fails = number > reference.operations - 2 or generator.random() < 0.5
    kill_points: list[kills.KillPoint] = [kills.BeforeOperation(number, power_fails)]
    if generator.random() < 0.5:
        second = generator.randint(1, reference.operations)
        kill_points.append(kills.BeforeOperation(second, generator.random() < 0.5))
    found = find_problem(reference, kill_points, place, order)
    return f"{order}, {kill_points}: {found}" if found else ""


@pytest.mark.parametrize("name", OPERATIONS)
def test_kill_before_some_operations(steps: Steps, tmp_path: Path, name: str) -> None:
    reference = steps[name]
    last = reference.operations
    assert last >= OPERATIONS[name]
    somewhere = random.Random(name).randint(1, last)
    for number, order in zip((last, last - 1, somewhere), ORDERS, strict=True):
        assert kill_before(reference, number, tmp_path / "killed", order) == ""


@SLOW
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_kill_before_any_operation(steps: Steps, tmp_path: Path, name: str, order: str) -> None:
    problems = []
    for number in range(1, steps[name].operations + 1):
        found = kill_before(steps[name], number, tmp_path / "killed", order)
        if found:
            problems.append(found)
    assert problems == []


@SLOW
@pytest.mark.parametrize("name", [*OPERATIONS, RUN, *WITH_PROCESSES])
def test_kill_at_any_time(steps: Steps, tmp_path: Path, name: str) -> None:
    for number in range(N_ROUNDS):
        generator = random.Random(f"{name} {number}")
        targets = list(kills.Target) if name in WITH_PROCESSES else [kills.Target.COMMAND]
        kill_points = []
        for _ in range(generator.choice((1, 1, 2, 3))):
            seconds = generator.uniform(0, steps[name].seconds)
            kill_points.append(kills.AfterSeconds(seconds, generator.choice(targets)))
        order = generator.choice(list(ORDERS))
        found = find_problem(steps[name], kill_points, tmp_path / "killed", order)
        assert found == "", kill_points


# The harness finds these mistakes


def careful(folder: Path, *, is_synced: bool = True) -> None:
    """Write a draft, sync it, and rename it."""
    draft = folder / "runs" / "draft"
    place = folder / "runs" / "place"
    draft.parent.mkdir(exist_ok=True)
    if not place.exists():
        with draft.open("w", encoding="utf-8") as file:
            file.write("whole\n")
            file.flush()
            if is_synced:
                os.fsync(file.fileno())
        draft.rename(place)


def unsynced(folder: Path) -> None:
    """Rename a draft that was not synced."""
    careful(folder, is_synced=False)
    (folder / "runs" / "a moment later").mkdir(exist_ok=True)


def stuck(folder: Path) -> None:
    """Refuse to start over the draft of a killed run."""
    if (folder / "runs" / "draft").exists():
        raise UserError("there is a draft; delete it")
    careful(folder)


def waiting(folder: Path) -> None:
    """Wait for ever if a killed run left a draft."""
    while (folder / "runs" / "draft").exists():
        time.sleep(1)
    careful(folder)


@pytest.mark.parametrize(
    ("work", "found"),
    [
        (careful, ""),
        (unsynced, "other bytes in runs/place"),
        (stuck, "exit code 1: there is a draft; delete it\n"),
        (waiting, "exit code -9: hangs: "),
    ],
)
def test_harness_finds_lost_files(tmp_path: Path, work: Work, found: str) -> None:
    # On busy cores, those that do not wait may well take seconds.
    patience_s = 1.0 if work is waiting else kills.PATIENCE_S
    (tmp_path / "before").mkdir()
    reference = run_uninterrupted(work, tmp_path / "before", tmp_path / "after")
    assert reference.operations >= 3
    problems = set()
    for number in range(1, reference.operations + 1):
        kill_at = kills.BeforeOperation(number, power_fails=True)
        problem = find_problem(reference, [kill_at], tmp_path / "killed", patience_s=patience_s)
        problems.add(problem)
    assert problems - {""} == {found} - {""}
