"""A language that a tiny model learns in seconds, its recipe, and one finished run of it."""

import random
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from nmtkit.config.loading import recipes_dir
from system.command import RECIPE, Outcome, artifact, done, nmtkit

GERMAN = ("ein", "zwo", "drei", "vier", "acht", "neun", "elf", "wolf")
WORDS = dict(zip("abcdefgh", GERMAN, strict=True))
N_TRAIN = 400
N_DEV = 20
N_TEST = 30

# Lines that break tools that split at more than "\n" or that expect text on every line.
LONG_LINE = " ".join("abcdefgh" * 40)  # more subwords than the model reads at once
INVISIBLE = " \u200b\u00ad\ufeff "
UNUSUAL_LINES = [
    "",
    "a b\u2028c d",
    "a b\u0085c d",
    " ".join("abcdefgh" * 20),
    LONG_LINE,
    INVISIBLE,
]

# The values in which the recipe differs from the demo's.
CHANGES = {
    "name": '"tiny"',
    "train": '[{ src = "train.en", tgt = "train.de" }]',
    "dev": '{ src = "dev.en", tgt = "dev.de" }',
    "n_merges": 20,
    "n_layers": 1,
    "d_model": 32,
    "d_ff": 64,
    "n_heads": 2,
    "d_k": 16,
    "d_v": 16,
    "dropout": 0.05,
    "max_steps": 120,
    "src_tokens_per_update": 480,
    "tgt_tokens_per_update": 480,
    "warmup_steps": 50,
    "learning_rate_scale": 1.0,
    "checkpoint_every_steps": 10,
    "keep_checkpoints": 3,
    "dev_every_steps": 60,
    "n_checkpoints": 2,
    "beam_size": 3,
    "max_extra_tokens": 10,
    "sets": '[{ name = "test", src = "test.en", tgt = "test.de" }]',
}


def recipe(**changes: object) -> str:
    """The tiny recipe with `changes`."""
    text = (recipes_dir() / "demo.toml").read_text(encoding="utf-8")
    for key, value in {**CHANGES, **changes}.items():
        text, n = re.subn(rf"^{key} = .*$", f"{key} = {value}", text, flags=re.MULTILINE)
        assert n == 1, key
    return text


@dataclass(frozen=True)
class Finished:
    """A run that was not interrupted; tests only read it."""

    folder: Path
    outcome: Outcome

    def artifact(self, stage: str) -> Path:
        return artifact(self.folder, stage)


def write_texts(folder: Path) -> None:
    """Write the texts and the recipe."""
    (folder / RECIPE).write_text(recipe(), encoding="utf-8", newline="\n")
    generator = random.Random(1)
    seen: set[str] = set()
    for split, n_pairs in (("train", N_TRAIN), ("dev", N_DEV), ("test", N_TEST)):
        src: list[str] = []
        while len(src) < n_pairs:
            line = " ".join(generator.choices("abcdefgh", k=generator.randint(2, 6)))
            if line not in seen:
                seen.add(line)
                src.append(line)
        if split == "test":
            src += UNUSUAL_LINES
        tgt = []
        for line in src:
            words = [WORDS.get(letter, letter) for letter in line.split()]
            tgt.append(" ".join(words))
        for lang, lines in (("en", src), ("de", tgt)):
            text = "".join(f"{line}\n" for line in lines)
            (folder / f"{split}.{lang}").write_text(text, encoding="utf-8", newline="\n")


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    """A folder with the texts and the recipe, before the first command."""
    write_texts(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A folder in which `nmtkit run` has finished; tests only read it."""
    folder = tmp_path_factory.mktemp("finished")
    write_texts(folder)
    return Finished(folder, done(nmtkit(folder, "run", RECIPE, "--workers", "1")))


@pytest.fixture
def prepared(workplace: Path, finished: Finished) -> Path:
    """A folder in which only `prepare` has finished."""
    shutil.copytree(finished.folder / "runs" / "prepare", workplace / "runs" / "prepare")
    return workplace


@pytest.fixture
def complete(workplace: Path, finished: Finished) -> Path:
    """A folder in which all stages are finished; tests may change it."""
    shutil.copytree(finished.folder / "runs", workplace / "runs")
    return workplace
