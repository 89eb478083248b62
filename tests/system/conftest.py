"""A language that a tiny model learns in seconds, its recipe, and one finished run of it."""

import random
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from system.command import RECIPE, Outcome, artifact, done, nmtkit

WORDS = {
    "a": "ein",
    "b": "zwo",
    "c": "drei",
    "d": "vier",
    "e": "acht",
    "f": "neun",
    "g": "elf",
    "h": "wolf",
}
N_TRAIN, N_DEV, N_TEST = 400, 20, 30

# What breaks tools that split lines at more than "\n", or expect something on each.
LONG_LINE = " ".join("abcdefgh" * 40)  # more subwords than the model reads at once
INVISIBLE = " \u200b\u00ad\ufeff "
ODD_LINES = ["", "a b\u2028c d", "a b\u0085c d", " ".join("abcdefgh" * 20), LONG_LINE, INVISIBLE]

TOML = """
name = "tiny"
description = "Letters to words"

[corpus]
src_lang = "en"
tgt_lang = "de"
train = [{ src = "train.en", tgt = "train.de" }]
dev = { src = "dev.en", tgt = "dev.de" }
normalize_punctuation = false
lowercase = false
tokenizer = "moses"
aggressive_hyphens = false
min_tokens = 1
max_tokens = 250
max_ratio = 9.0
drop_duplicates = false

[subword]
method = "bpe"
n_merges = 20

[model]
n_layers = 1
d_model = 32
d_ff = 64
n_heads = 2
d_k = 16
d_v = 16
dropout = 0.05
positions = "sinusoid"
max_positions = 256
norm = "post"
tie_embeddings = true
vocabulary_multiple = 8

[training]
seed = 1
max_steps = 120
src_tokens_per_update = 480
tgt_tokens_per_update = 480
warmup_steps = 50
learning_rate_scale = 1.0
adam_beta1 = 0.9
adam_beta2 = 0.98
adam_epsilon = 1e-9
label_smoothing = 0.1
checkpoint_every_steps = 10
keep_checkpoints = 3
dev_every_steps = 60

[averaging]
n_checkpoints = 2

[decoding]
beam_size = 3
length_penalty = 0.6
max_extra_tokens = 10

[test]
sets = [{ name = "test", src = "test.en", tgt = "test.de" }]

[scoring]
lowercase = false
normalize_punctuation = false
"""


@dataclass(frozen=True)
class Finished:
    """A run that went undisturbed from start to end; tests only read it."""

    folder: Path
    outcome: Outcome
    seconds: float

    def artifact(self, stage: str) -> Path:
        return artifact(self.folder, stage)


def write_texts(folder: Path) -> None:
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
            src += ODD_LINES
        tgt = [" ".join(WORDS.get(letter, letter) for letter in line.split()) for line in src]
        for lang, lines in (("en", src), ("de", tgt)):
            text = "".join(f"{line}\n" for line in lines)
            (folder / f"{split}.{lang}").write_text(text, encoding="utf-8", newline="\n")


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    """A folder with the texts and the recipe, where nothing ran yet."""
    write_texts(tmp_path)
    (tmp_path / RECIPE).write_text(TOML, encoding="utf-8", newline="\n")
    return tmp_path


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("finished")
    write_texts(folder)
    (folder / RECIPE).write_text(TOML, encoding="utf-8", newline="\n")
    begin = time.monotonic()
    ended = done(nmtkit(folder, "run", RECIPE, "--workers", "1"))
    return Finished(folder, ended, time.monotonic() - begin)


@pytest.fixture
def prepared(workplace: Path, finished: Finished) -> Path:
    shutil.copytree(finished.folder / "runs" / "prepare", workplace / "runs" / "prepare")
    return workplace


@pytest.fixture
def complete(workplace: Path, finished: Finished) -> Path:
    """A folder where everything is done, to be spoilt."""
    shutil.copytree(finished.folder / "runs", workplace / "runs")
    return workplace
