"""Killed at any moment in any order of names, and run again: the same bytes, never stuck."""

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
from nmtkit.sources.catalog import RemoteFile
from nmtkit.sources.download import obtain
from nmtkit.stages import prepare
from nmtkit.store.code_version import versions
from nmtkit.training import train as loop
from nmtkit.utils.errors import UserError
from system import kills
from system.command import RECIPE, artifact, import_everything, run_command
from system.conftest import write_texts
from system.kills import ORDERS, Work, problem, undisturbed
from system.server import serving

# Kills at random moments of each step; more of them in the environment find more.
N_ROUNDS = int(os.environ.get("NMTKIT_KILLS", "3"))
SLOW = pytest.mark.slow
PAYLOAD = bytes(range(256)) * 4_000  # of the download
# Short stages with every kind of commit in them: parts of prepare, checkpoints that replace others.
SHORT = ("training.max_steps=8", "training.checkpoint_every_steps=2", "decoding.beam_size=1")
OVERRIDES = tuple(f"--set={each}" for each in SHORT)
TINY = (RECIPE, *OVERRIDES)
LINES_PER_CHUNK, CHUNKS_PER_PART = 60, 2  # so that 400 lines have several parts
STUDY = f"""
name = "rows"
description = "Two rows"
recipe = "{RECIPE}"
bleu = "sacrebleu"
rows = [{{ name = "first" }}, {{ name = "second", set = ["training.seed=2"] }}]
"""
# An undisturbed run of each step changes files at least so often: what is seen must not shrink.
OPERATIONS = {
    "download": 11,
    "prepare": 120,
    "train": 70,
    "average": 18,
    "translate": 12,
    "score": 10,
    "export to CTranslate2": 15,
    "export to Hugging Face": 20,
    "import": 15,
    "new from a bundle": 40,
    "translate a file": 40,
    "translate by CTranslate2": 20,
}
RUN = "run"
WITH_PROCESSES = ("train by two processes", "train by three processes", "study")
BUNDLE = "that of the step before"
MADE = "made"  # a folder that no command replaces
EXPORT = ("export", BUNDLE, MADE)
IMPORT = ("import", "model.pt", MADE, "--codes=bpecodes", "--lang=en-de")
NEW = ("new", "mine", "--from", BUNDLE, "--src=train.en", "--tgt=train.de")
TRANSLATE = ("translate", "--bundle", BUNDLE, "-i", "test.en", "-o", "text")


# The steps


def step(*arguments: str) -> Work:
    """Run a command in many small parts, unless it left MADE, and at most the mark of its draft."""

    def work(folder: Path) -> None:
        vars(tokenized)["LINES_PER_CHUNK"] = LINES_PER_CHUNK
        vars(prepare)["CHUNKS_PER_PART"] = CHUNKS_PER_PART
        PART_LINES["cpu"] = 8
        vars(loop)["SAVE_EVERY_S"] = vars(new)["TRIAL_SECONDS"] = 0.0
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        given = [*arguments]
        if BUNDLE in given:
            given[given.index(BUNDLE)] = str(artifact(folder, "average").relative_to(folder))
        if not (folder / MADE).exists():
            run_command(*given)

    return work


class Steps:
    """Each step, done undisturbed on what those before it left."""

    def __init__(self, folder: Path, *urls: str) -> None:
        def download(folder: Path) -> None:
            file = RemoteFile(urls=urls, sha256=hashlib.sha256(PAYLOAD).hexdigest())
            obtain(file, folder / "runs" / "downloads")

        self._folder = folder
        self._done: dict[str, kills.Whole] = {}
        self._works: dict[str, tuple[str, Work]] = {  # and the step before
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
            "import": ("average", step(*IMPORT)),
            "new from a bundle": ("average", step(*NEW)),
            "translate a file": ("average", step(*TRANSLATE, "--engine=torch")),
            "translate by CTranslate2": ("average", step(*TRANSLATE, "--engine=ctranslate2")),
            RUN: ("", step("run", *TINY, "--workers=1")),
            "study": ("score", step("study", "study.toml", *OVERRIDES, "--workers=1")),
        }

    def __getitem__(self, name: str) -> kills.Whole:
        if name not in self._done:
            before, work = self._works[name]
            start = self[before].after if before else self._folder / "start"
            self._done[name] = undisturbed(work, start, self._folder / name)
        return self._done[name]


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Steps]:
    # Once, and not in each fork.
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
    with serving(PAYLOAD, len(PAYLOAD) // 2) as breaks_off, serving(PAYLOAD) as url:
        yield Steps(folder, breaks_off, url)


def killed_before(whole: kills.Whole, number: int, place: Path, order: str) -> str:
    """Die before an operation, every other time in the rerun too; return what is wrong then."""
    generator = random.Random(f"{number} of {whole.operations} {order}")
    # After the last operations, nobody looks again whether what was published is on the disk.
    power_fails = number > whole.operations - 2 or generator.random() < 0.5
    deaths: list[kills.Death] = [kills.BeforeOperation(number, power_fails)]
    if generator.random() < 0.5:
        again = generator.randint(1, whole.operations)
        deaths.append(kills.BeforeOperation(again, generator.random() < 0.5))
    wrong = problem(whole, deaths, place, order)
    return f"{order}, {deaths}: {wrong}" if wrong else ""


@pytest.mark.parametrize("name", OPERATIONS)
def test_some_kills_lose_nothing(steps: Steps, tmp_path: Path, name: str) -> None:
    whole = steps[name]
    last = whole.operations
    assert last >= OPERATIONS[name]
    somewhere = random.Random(name).randint(1, last)
    for number, order in zip((last, last - 1, somewhere), ORDERS, strict=True):
        assert killed_before(whole, number, tmp_path / "killed", order) == ""


@SLOW
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_no_kill_before_any_operation_in_any_order_of_names_loses_anything(
    steps: Steps, tmp_path: Path, name: str, order: str
) -> None:
    numbers = range(1, steps[name].operations + 1)
    wrong = [killed_before(steps[name], number, tmp_path / "killed", order) for number in numbers]
    assert [each for each in wrong if each] == []


@SLOW
@pytest.mark.parametrize("name", [*OPERATIONS, RUN, *WITH_PROCESSES])
def test_kills_at_any_time_lose_nothing(steps: Steps, tmp_path: Path, name: str) -> None:
    for number in range(N_ROUNDS):
        generator = random.Random(f"{name} {number}")
        victims = list(kills.Victim) if name in WITH_PROCESSES else [kills.Victim.COMMAND]
        deaths = [
            kills.AfterSeconds(generator.uniform(0, steps[name].seconds), generator.choice(victims))
            for _ in range(generator.choice((1, 1, 2, 3)))
        ]
        order = generator.choice(list(ORDERS))
        assert problem(steps[name], deaths, tmp_path / "killed", order) == "", deaths


# What the harness sees


def careful(folder: Path, *, is_synced: bool = True) -> None:
    draft, place = folder / "runs" / "draft", folder / "runs" / "place"
    draft.parent.mkdir(exist_ok=True)
    if not place.exists():
        with draft.open("w", encoding="utf-8") as file:
            file.write("whole\n")
            file.flush()
            if is_synced:
                os.fsync(file.fileno())
        draft.rename(place)


def unsynced(folder: Path) -> None:
    """Rename a draft that is not on the disk."""
    careful(folder, is_synced=False)
    (folder / "runs" / "a moment later").mkdir(exist_ok=True)


def stuck(folder: Path) -> None:
    """Refuse what a killed run left."""
    if (folder / "runs" / "draft").exists():
        raise UserError("there is a draft; delete it")
    careful(folder)


def waiting(folder: Path) -> None:
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
def test_what_is_lost_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: Work, found: str
) -> None:
    if work is waiting:  # on busy cores, the others may well take seconds
        monkeypatch.setattr(kills, "PATIENCE_S", 1.0)
    (tmp_path / "before").mkdir()
    whole = undisturbed(work, tmp_path / "before", tmp_path / "after")
    assert whole.operations >= 3
    problems = {
        problem(whole, [kills.BeforeOperation(number, power_fails=True)], tmp_path / "killed")
        for number in range(1, whole.operations + 1)
    }
    assert problems - {""} == {found} - {""}
