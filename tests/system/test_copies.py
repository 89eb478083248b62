"""A fine-tuned recipe, its texts and its artifacts, copied without the bundle it started from."""

import json
import shutil
from pathlib import Path

import pytest

from system.command import artifact, contents, done, nmtkit, sentence
from system.conftest import Finished, recipe, write_texts

TUNED = "tuned.toml"
PARENT = "parent"
COMMANDS = (
    ("run", TUNED),
    ("score", TUNED),
    ("report", TUNED, "--output", "report"),
    ("plan", TUNED),
    ("inspect", TUNED),
    ("export", "--recipe", TUNED, "exported", "--format", "ctranslate2"),
)


def tuned_recipe(name: str, **changes: object) -> str:
    """A recipe that fine-tunes the bundle next to it."""
    text = recipe(name=f'"{name}"', max_steps=10, **changes)
    text = text.replace('"bpe"\nn_merges = 20', f'"bundle"\npath = "{PARENT}"')
    return text.replace("seed = 1", f'seed = 1\nstart_from = "{PARENT}"')


def write(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text, encoding="utf-8", newline="\n")


@pytest.fixture(scope="module")
def tuned(finished: Finished, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which two recipes have fine-tuned a bundle; they share the prepared corpus."""
    folder = tmp_path_factory.mktemp("tuned")
    write_texts(folder)
    shutil.copytree(finished.artifact("average"), folder / PARENT)
    write(folder, "first.toml", tuned_recipe("first", learning_rate_scale=0.5))
    write(folder, TUNED, tuned_recipe("tuned", learning_rate_scale=0.25))
    done(nmtkit(folder, "prepare", "first.toml", "--workers", "1"))
    done(nmtkit(folder, "run", TUNED, "--workers", "1"))
    return folder


@pytest.fixture
def copy(tuned: Path, tmp_path: Path) -> Path:
    """A copy of everything but the bundle."""
    folder = tmp_path / "copy"
    shutil.copytree(tuned, folder, ignore=shutil.ignore_patterns(PARENT))
    return folder


def test_copy_without_parent(tuned: Path, copy: Path) -> None:
    before = contents(copy / "runs")
    for command in COMMANDS:
        done(nmtkit(copy, *command))
    translate = ("translate", "--recipe", TUNED)
    there = done(nmtkit(tuned, *translate, stdin=b"a b c\n")).out
    assert done(nmtkit(copy, *translate, stdin=b"a b c\n")).out == there
    stages = json.loads(done(nmtkit(copy, "status", TUNED, "--json")).out)["stages"]
    assert {stage["state"] for stage in stages.values()} == {"done"}
    assert contents(copy / "runs") == before

    # The stages after training can be repeated, also with other values.
    done(nmtkit(copy, "translate", TUNED, "--force"))
    done(nmtkit(copy, "score", TUNED))
    assert contents(copy / "runs") == before
    done(nmtkit(copy, "run", TUNED, "--set", "decoding.beam_size=2"))
    done(nmtkit(copy, "compare", TUNED, f"{TUNED} --set decoding.beam_size=2"))


def test_copy_is_verified_but_for_parent(copy: Path) -> None:
    ended = nmtkit(copy, "verify", TUNED, "--json")
    assert "1 difference" in sentence(ended)
    unequal = [part for part in json.loads(ended.out) if part["differences"]]
    assert [part["path"] for part in unequal] == [str(copy / PARENT)]
    done(nmtkit(copy, "verify", str(artifact(copy, "score"))))


def test_gc_names_run_at_original_place(tuned: Path, copy: Path) -> None:
    message = sentence(nmtkit(copy, "gc", "--run", TUNED, "--yes"))
    assert f"did you mean {tuned / TUNED}?" in message
    done(nmtkit(copy, "gc", "--run", str(tuned / TUNED), "--yes"))
    assert not list((copy / "runs/score").glob("*/scores.json"))


def test_stages_that_read_parent_need_it(copy: Path) -> None:
    before = contents(copy / "runs")
    for stage in ("prepare", "train", "run"):
        assert str(copy / PARENT) in sentence(nmtkit(copy, stage, TUNED, "--force"))
    assert str(copy / PARENT) in sentence(nmtkit(copy, "run", "first.toml"))
    # Another path could be that of another bundle.
    changed = ("run", TUNED, "--set", "training.start_from=elsewhere")
    assert "start_from = elsewhere" in sentence(nmtkit(copy, *changed))
    write(copy, TUNED, tuned_recipe("tuned", learning_rate_scale=0.25).replace(PARENT, "elsewhere"))
    assert str(copy / "elsewhere") in sentence(nmtkit(copy, "run", TUNED))
    assert contents(copy / "runs") == before


def test_parent_that_exists_decides(copy: Path, bundle: Path) -> None:
    shutil.copytree(bundle, copy / PARENT)
    assert "was trained with" in sentence(nmtkit(copy, "score", TUNED))
    shutil.rmtree(copy / PARENT)
    (copy / PARENT).mkdir()
    assert str(copy / PARENT) in sentence(nmtkit(copy, "score", TUNED))


def test_bundles_in_turn_are_ambiguous(tuned: Path, copy: Path) -> None:
    """Another bundle replaced the first one, and then both are missing."""
    other = ("average", "first.toml", "--set", "decoding.beam_size=2")
    shutil.copytree(tuned / PARENT, copy / PARENT)
    done(nmtkit(copy, "run", "first.toml"))
    bundle = Path(done(nmtkit(copy, *other)).out.strip())
    shutil.rmtree(copy / PARENT)
    shutil.copytree(copy / bundle, copy / PARENT)
    done(nmtkit(copy, "prepare", TUNED, "--workers", "1"))
    shutil.rmtree(copy / PARENT)
    assert "2 bundles" in sentence(nmtkit(copy, "score", TUNED))
