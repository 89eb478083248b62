"""The demo at a size that takes seconds: its first pairs, a tiny model, eight steps."""

from itertools import islice
from pathlib import Path

from nmtkit.machine import Machine
from nmtkit.recipe_file import load_recipe
from nmtkit.sources.catalog import data_dir
from nmtkit.stages.chain import Chain

RECIPE = "demo"
N_PAIRS = {"train": 400, "dev": 20, "test": 30}
LANGS = ("en", "de")
# Short stages with every kind of commit in them, such as checkpoints that replace others.
OVERRIDES = (
    'corpus.train=[{src="train.en",tgt="train.de"}]',
    'corpus.dev={src="dev.en",tgt="dev.de"}',
    'test.sets=[{name="test",src="test.en",tgt="test.de"}]',
    "subword.n_merges=200",
    "model.n_layers=1",
    "model.d_model=32",
    "model.d_ff=64",
    "model.n_heads=2",
    "model.d_k=16",
    "model.d_v=16",
    "model.dropout=0.1",
    "training.max_steps=8",
    "training.src_tokens_per_update=480",
    "training.tgt_tokens_per_update=480",
    "training.checkpoint_every_steps=2",
    "training.keep_checkpoints=3",
    "training.dev_every_steps=4",
    "averaging.n_checkpoints=2",
    "decoding.beam_size=2",
    "decoding.max_extra_tokens=10",
)


def write_texts(folder: Path) -> None:
    """Write the texts that the overrides name."""
    for name, n_pairs in N_PAIRS.items():
        for lang in LANGS:
            source = data_dir() / "demo" / f"{name}.{lang}"
            with source.open(encoding="utf-8", newline="\n") as lines:
                text = "".join(islice(lines, n_pairs))
            (folder / source.name).write_text(text, encoding="utf-8", newline="\n")


def chain(processes: int = 1) -> Chain:
    """Return the chain of the tiny demo in the current folder, trained by so many processes."""
    machine = Machine(Path("runs"), device="cpu", workers=1, processes=processes)
    return Chain(load_recipe(RECIPE, OVERRIDES), machine, RECIPE, OVERRIDES)
