"""Results of a changed nmtkit: every command says so, and --remake makes them again."""

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import nmtkit as package
from nmtkit.recipe_file import recipes_dir
from nmtkit.stages.chain import STAGES
from nmtkit.store import open_directory
from system.command import RECIPE, Outcome, artifact, contents, done, environment, nmtkit
from system.conftest import TOML, Finished, write_texts

SCHEDULE = ("training/schedule.py", "d_model**-0.5 *", "d_model**-0.5 * 2 *")
SHORT = "training.max_steps=20"
DOWNSTREAM = list(STAGES)[1:]
Change = tuple[str, str, str]  # of a file of the package: from, to


def changed(folder: Path, *changes: Change) -> dict[str, str]:
    """Copy the package, change it, and return the variables with which Python imports the copy."""
    source = Path(package.__file__).parent
    place = folder / "code" / "nmtkit"
    shutil.copytree(source, place, ignore=shutil.ignore_patterns("__pycache__"))
    if not (place / "pipelines").is_dir():
        for name in ("pipelines", "data"):
            (place.parent / name).symlink_to(recipes_dir().parent / name)
    for name, before, after in changes:
        text = (place / name).read_text(encoding="utf-8")
        assert before in text
        (place / name).write_text(text.replace(before, after), encoding="utf-8", newline="\n")
    return environment(PYTHONPATH=str(place.parent))


def other_code(folder: Path, env: Mapping[str, str], *args: str) -> dict[str, Any]:
    """What `nmtkit status` says of each stage that is done."""
    ended = done(nmtkit(folder, "status", RECIPE, "--json", *args, env=env))
    stages = json.loads(ended.out)["stages"]
    assert {stages[stage]["state"] for stage in STAGES} == {"fresh"}
    return {stage: stages[stage]["other_code"] for stage in STAGES if stages[stage]["other_code"]}


@pytest.fixture(scope="module")
def schedule(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The code of a researcher who changed the schedule."""
    return changed(tmp_path_factory.mktemp("schedule"), SCHEDULE)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([], {}),
        ([("training/README.md", "#", "##")], {}),
        ([("cli/groups.py", "import typer", "import typer  # for the command line")], {}),
        ([("evaluation/bleu.py", '"""', '"""Of ours: ')], {"score": {"score": ["evaluation/"]}}),
        (
            [("fast/step.py", "ROOM = 16", "ROOM = 32")],
            {
                "train": {"train": ["fast/"]},
                "average": {"train": ["fast/"]},
                "translate": {"train": ["fast/"], "translate": ["fast/"]},
                "score": {"train": ["fast/"], "translate": ["fast/"]},
            },
        ),
    ],
)
def test_status_names_the_rooms_that_the_results_depend_on(
    finished: Finished, tmp_path: Path, changes: list[Change], expected: dict[str, Any]
) -> None:
    assert other_code(finished.folder, changed(tmp_path, *changes)) == expected


def lines_of(ended: Outcome) -> Iterator[str]:
    lines = [*ended.out.split("\n"), *ended.err.split("\n")]
    return (line for line in lines if "training/ (train)" in line)


@pytest.mark.parametrize(
    ("command", "mark"),
    [
        (["status", RECIPE], "fresh, other code"),
        (["run", RECIPE], "36 lines, other code"),
        (["verify", RECIPE], "yes, other code"),
        (["score", RECIPE], "36 lines, other code"),
        (["train", RECIPE], ""),
        (["runs"], "other code"),
        (["compare", RECIPE, "test.de", "--lang", "de"], f"{RECIPE}, other code"),
        (["study", "study.toml", "--show"], "finished, other code"),
        (["report", RECIPE, "./study.toml", "-o", "report"], ""),
    ],
)
def test_commands_say_in_a_line_that_other_code_made_a_result_and_mark_it(
    complete: Path, schedule: dict[str, str], command: list[str], mark: str
) -> None:
    rows = '[[rows]]\nname = "base"\n'
    head = f'name = "mine"\ndescription = "One"\nrecipe = "./{RECIPE}"\nbleu = "sacrebleu"\n'
    (complete / "study.toml").write_text(head + rows, encoding="utf-8", newline="\n")
    before = contents(complete / "runs")
    ended = done(nmtkit(complete, *command, env=schedule))
    assert mark in ended.out
    if command[0] == "report":
        for page in ("report.md", "report.html"):
            text = (complete / "report" / page).read_text(encoding="utf-8")
            assert "mine: base, other code" in text
            assert "training/ (train)" in text
        report = json.loads((complete / "report" / "report.json").read_bytes())
        assert [run["other_code"] for run in report["runs"]] == [{"train": ["training/"]}]
        assert report["studies"][0]["rows"][0]["other_code"] == {"train": ["training/"]}
    else:
        assert 1 <= len(list(lines_of(ended))) <= 2  # with progress and with results
    assert contents(complete / "runs") == before  # nothing is made again


def test_stage_says_that_other_code_made_what_it_takes(
    complete: Path, schedule: dict[str, str]
) -> None:
    for stage in ("translate", "score"):
        shutil.rmtree(complete / "runs" / stage)
    ended = done(nmtkit(complete, "translate", RECIPE, env=schedule))
    assert len(list(lines_of(ended))) == 1
    taken = open_directory(artifact(complete, "average")).manifest.code
    made = open_directory(artifact(complete, "translate")).manifest.code
    assert {stage: made[stage] for stage in taken} == taken


def test_inspect_says_that_other_code_prepared_the_corpus(
    finished: Finished, tmp_path: Path
) -> None:
    env = changed(tmp_path, ("corpus/cleaning.py", '"""', '"""Of ours: '))
    page = tmp_path / "x.html"
    ended = done(nmtkit(finished.folder, "inspect", RECIPE, "--html", str(page), env=env))
    assert sum("corpus/ (prepare)" in line for line in ended.out.split("\n")) == 1
    assert "corpus/ (prepare)" in page.read_text(encoding="utf-8")


def texts(translated: Path) -> dict[str, str]:
    found = contents(translated)
    del found["manifest.json"]
    return found


def test_remake_makes_again_what_other_code_made_beside_it(
    workplace: Path, finished: Finished, schedule: dict[str, str], tmp_path: Path
) -> None:
    shutil.copytree(finished.folder / "runs" / "prepare", workplace / "runs" / "prepare")
    options = [RECIPE, "--set", SHORT]
    status = ["status", *options, "--json"]
    done(nmtkit(workplace, "run", *options))
    old = contents(workplace / "runs")
    assert other_code(workplace, schedule, "--set", SHORT).keys() == set(DOWNSTREAM)
    done(nmtkit(workplace, "run", *options, "--remake", env=schedule))
    new = contents(workplace / "runs")
    assert {name: content for name, content in new.items() if name in old} == old
    assert {name.split("/")[0] for name in new.keys() - old.keys()} == set(DOWNSTREAM)
    assert other_code(workplace, schedule, "--set", SHORT) == {}
    assert other_code(workplace, environment(), "--set", SHORT) == {}  # the old ones
    # As the changed code makes it where nothing is, although fingerprints are others.
    anew = tmp_path / "anew"
    anew.mkdir()
    write_texts(anew)
    (anew / RECIPE).write_text(TOML, encoding="utf-8", newline="\n")
    done(nmtkit(anew, "run", *options, env=schedule))
    before, remade = (
        Path(json.loads(nmtkit(workplace, *status, env=env).out)["stages"]["translate"]["path"])
        for env in (environment(), schedule)
    )
    assert texts(workplace / remade) == texts(artifact(anew, "translate"))
    assert texts(workplace / remade) != texts(workplace / before)
    # What is made again is not made a third time, and neither is garbage.
    done(nmtkit(workplace, "run", *options, "--remake", env=schedule))
    for env in (schedule, environment()):
        assert "nothing to free" in done(nmtkit(workplace, "gc", env=env)).out
    assert contents(workplace / "runs") == new
