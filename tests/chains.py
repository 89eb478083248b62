"""A pipeline that takes a second, and a training that is killed."""

from pathlib import Path

import pytest

from nmtkit.config.loading import read_toml, recipes_dir
from nmtkit.config.recipe import Recipe
from nmtkit.config.settings import Precision, Settings
from nmtkit.stages import train
from nmtkit.stages.pipeline import Pipeline
from nmtkit.training import loop
from nmtkit.training.batches import Update
from nmtkit.training.step import PreparedUpdate, Trainer


class Killed(BaseException):
    """Stands for SIGKILL: code that catches Exception does not catch it."""


def train_until_killed(pipeline: Pipeline, last: int, save_every_s: float) -> None:
    """Train until the step `last`, which is killed; save every `save_every_s` seconds."""

    def prepare(self: Trainer, update: Update, step: int) -> PreparedUpdate:
        if step == last:
            raise Killed
        return genuine(self, update, step)

    genuine = Trainer.prepare
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "prepare", prepare)
        patch.setattr(loop, "SAVE_EVERY_S", save_every_s)
        with pytest.raises(Killed):
            train.run(pipeline)


def tiny_pipeline(
    folder: Path, dtype: Precision = "auto", runs: str = "runs", **model: object
) -> Pipeline:
    """A pipeline with one training step on six pairs of 2 to 7 tokens, including end symbols."""
    text = "".join(f"{'a ' * n}\n" for n in range(1, 7))
    pair = {"src": str(folder / "src"), "tgt": str(folder / "tgt")}
    for path in pair.values():
        Path(path).write_text(text, encoding="utf-8", newline="\n")
    document = read_toml(recipes_dir() / "demo.toml")
    document["corpus"] |= {"train": [pair], "dev": pair}
    document["subword"]["n_merges"] = 3
    document["model"] |= {"n_layers": 1, "d_model": 8, "d_ff": 8, **model}
    document["training"] |= {"max_steps": 1, "keep_checkpoints": 1}
    document["averaging"]["n_checkpoints"] = 1
    document["test"]["sets"] = [{**pair, "name": "test"}]
    settings = Settings(folder / runs, device="cpu", workers=1, dtype=dtype)
    return Pipeline(Recipe.model_validate(document), settings, "test")
