"""Damaged files of artifacts, drafts and caches: reported, or without effect on the results."""

import os
import random
import shutil
from pathlib import Path

import pytest

from system import kills
from system.command import RECIPE, artifact, contents, nmtkit, run_command

# Number of files that are damaged before every command. The variable raises it.
N_ROUNDS = int(os.environ.get("NMTKIT_FLIPS", "20"))
STUDY = f'name = "s"\ndescription = ""\nrecipe = "{RECIPE}"\nbleu = "sacrebleu"\n[[rows]]\nname="a"'
ALL = "runs/*/[0-9a-f]*/**/*"
PROVENANCE = "runs/*/[0-9a-f]*/m*.json*"  # manifest, measurements and metrics
DRAFT = "runs/*/*.partial/**/*"
TEXT = "translate --bundle BUNDLE -i test.en -o runs/text --engine"
# The files that are damaged before a command. If the second value is not 0, the command was killed
# before, at that share of its operations.
STEPS = {
    f"verify {RECIPE} --json": (ALL, 0),
    f"report {RECIPE} study.toml --json": (PROVENANCE, 0),
    "study study.toml": (PROVENANCE, 0),
    f"run {RECIPE} --json": (ALL, 0),
    f"train {RECIPE} --set=training.max_steps=122": ("runs/train/*/**/*", 0),
    f"average {RECIPE} --set=averaging.n_checkpoints=1": (ALL, 0),
    "export BUNDLE runs/hf --format=huggingface": (ALL, 0),
    f"prepare {RECIPE} --workers=1 --set=subword.n_merges=15": (DRAFT, 0.6),
    f"train {RECIPE} --set=training.max_steps=40": (DRAFT, 0.6),
    f"{TEXT}=torch": ("runs/.text*/**/*", 0.6),
    f"{TEXT}=ctranslate2": ("runs/nmtkit/*/*/*", 0.9),
}


def damage_file(folder: Path, pattern: str, number: int) -> Path:
    """Flip a bit of a file, or cut its end off; `number` chooses its name and everything else."""
    generator = random.Random(number)
    paths = [path for path in folder.glob(pattern) if path.is_file()]
    names = sorted({path.name for path in paths})
    name = names[number % len(names)]
    path = generator.choice(sorted(path for path in paths if path.name == name))
    content = bytearray(path.read_bytes() or b" ")
    place = generator.randrange(len(content))
    content[place] ^= 1 << generator.randrange(8)
    path.write_bytes(content[:place] if generator.random() < 0.25 else content)
    return path.relative_to(folder)


def with_own_cache(*arguments: str) -> kills.Work:
    """The work of running a command with its cache in `runs`."""

    def work(folder: Path) -> None:
        os.environ["XDG_CACHE_HOME"] = str(folder / "runs")
        run_command(*arguments)

    return work


@pytest.mark.parametrize("n_rounds", [3, pytest.param(N_ROUNDS, marks=pytest.mark.slow)])
@pytest.mark.parametrize("command", STEPS)
def test_damage_changes_no_result(
    complete: Path, command: str, n_rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (complete / "study.toml").write_text(STUDY, encoding="utf-8")
    bundle = str(artifact(complete, "average").relative_to(complete))
    words = command.replace("BUNDLE", bundle).split(" ")
    files, killed_at = STEPS[command]
    place = complete.with_name(f"{complete.name}-damaged")
    if killed_at:
        reference = kills.run_uninterrupted(with_own_cache(*words), complete, place)
        kill_at = kills.BeforeOperation(int(killed_at * reference.operations))
        assert kills.attempt(reference.work, complete, kill_at=kill_at).killed
    first_results: dict[str, str] = {}
    first_lines: set[str] = set()
    for number in range(n_rounds + 1):  # the first round damages nothing
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(complete, place)
        monkeypatch.setenv("XDG_CACHE_HOME", str(place / "runs"))
        damaged = damage_file(place, files, number) if number else Path("runs")
        ended = nmtkit(place, *words)
        out = [line for line in ended.out.split("\n") if '"written"' not in line]
        results = {**contents(place / "runs"), "": "\n".join(out)}
        lines = {*out, *ended.err.split("\n")}
        if number == 0:
            first_results = results
            first_lines = lines
        changed = {name for name, _ in first_results.items() ^ results.items()}
        changed.discard(str(damaged.relative_to("runs")))
        folder = str(damaged.parent)
        is_reported = ended.code or any(folder in line for line in lines - first_lines)
        assert "Traceback" not in ended.err
        assert is_reported or not changed, (number, damaged, changed)
