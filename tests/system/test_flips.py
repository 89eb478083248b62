"""Flipped bits and lost ends of files that are published, begun or kept: told, or of no effect."""

import os
import random
import shutil
from pathlib import Path

import pytest

from system import kills
from system.command import RECIPE, artifact, contents, nmtkit, run_command

# Files that are spoilt before each command; more of them in the environment find more.
N_ROUNDS = int(os.environ.get("NMTKIT_FLIPS", "20"))
STUDY = f'name = "s"\ndescription = ""\nrecipe = "{RECIPE}"\nbleu = "sacrebleu"\n[[rows]]\nname="a"'
ALL, TELLING, DRAFT = "runs/*/[0-9a-f]*/**/*", "runs/*/[0-9a-f]*/m*.json*", "runs/*/*.partial/**/*"
TEXT = "translate --bundle BUNDLE -i test.en -o runs/text --engine"
# What is spoilt before each command, and after which share of its operations it was killed before.
STEPS = {
    f"verify {RECIPE} --json": (ALL, 0),
    f"report {RECIPE} study.toml --json": (TELLING, 0),
    "study study.toml": (TELLING, 0),
    f"run {RECIPE} --json": (ALL, 0),
    f"train {RECIPE} --set=training.max_steps=122": ("runs/train/*/**/*", 0),
    f"average {RECIPE} --set=averaging.n_checkpoints=1": (ALL, 0),
    "export BUNDLE runs/hf --format=huggingface": (ALL, 0),
    f"prepare {RECIPE} --workers=1 --set=subword.n_merges=15": (DRAFT, 0.6),
    f"train {RECIPE} --set=training.max_steps=40": (DRAFT, 0.6),
    f"{TEXT}=torch": ("runs/.text*/**/*", 0.6),
    f"{TEXT}=ctranslate2": ("runs/nmtkit/*/*/*", 0.9),
}


def spoil(folder: Path, pattern: str, number: int) -> Path:
    """Flip a bit of a file, or cut its end off; the names of files take turns."""
    generator, paths = random.Random(number), [*filter(Path.is_file, folder.glob(pattern))]
    names = sorted({path.name for path in paths})
    path = generator.choice(sorted(p for p in paths if p.name == names[number % len(names)]))
    content = bytearray(path.read_bytes() or b" ")
    place = generator.randrange(len(content))
    content[place] ^= 1 << generator.randrange(8)
    path.write_bytes(content[:place] if generator.random() < 0.25 else content)
    return path.relative_to(folder)


def with_own_cache(*arguments: str) -> kills.Work:
    def work(folder: Path) -> None:
        os.environ["XDG_CACHE_HOME"] = str(folder / "runs")
        run_command(*arguments)

    return work


@pytest.mark.parametrize("n_rounds", [3, pytest.param(N_ROUNDS, marks=pytest.mark.slow)])
@pytest.mark.parametrize("command", STEPS)
def test_what_is_spoilt_is_told_or_changes_no_result(
    complete: Path, command: str, n_rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (complete / "study.toml").write_text(STUDY, encoding="utf-8")
    bundle = str(artifact(complete, "average").relative_to(complete))
    words, (files, killed_at) = command.replace("BUNDLE", bundle).split(" "), STEPS[command]
    place = complete.with_name(f"{complete.name}-spoilt")
    if killed_at:
        whole = kills.undisturbed(with_own_cache(*words), complete, place)
        death = kills.BeforeOperation(int(killed_at * whole.operations))
        assert kills.attempt(whole.work, complete, death=death).killed
    first: tuple[dict[str, str], set[str]] = {}, set()
    for number in range(n_rounds + 1):  # of which the first spoils nothing
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(complete, place)
        monkeypatch.setenv("XDG_CACHE_HOME", str(place / "runs"))
        spoilt = spoil(place, files, number) if number else Path("runs")
        ended = nmtkit(place, *words)
        out = [line for line in ended.out.split("\n") if '"written"' not in line]
        results = {**contents(place / "runs"), "": "\n".join(out)}
        said = {*out, *ended.err.split("\n")}
        first = first if number else (results, said)
        differ = {name for name, _ in first[0].items() ^ results.items()}
        differ.discard(str(spoilt.relative_to("runs")))
        is_told = ended.code or any(str(spoilt.parent) in line for line in said - first[1])
        assert "Traceback" not in ended.err
        assert is_told or not differ, (number, spoilt, differ)
