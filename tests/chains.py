"""A chain of stages that takes a second."""

import tomllib
from pathlib import Path

from nmtkit.machine import Machine, Precision
from nmtkit.recipe import Recipe
from nmtkit.recipe_file import recipes_dir
from nmtkit.stages.chain import Chain


def tiny_chain(
    folder: Path, dtype: Precision = "auto", runs: str = "runs", **model: object
) -> Chain:
    """Six pairs of 2 to 7 tokens and the same, end symbols counted, and a single step."""
    text = "".join(f"{'a ' * n}\n" for n in range(1, 7))
    pair = {"src": str(folder / "src"), "tgt": str(folder / "tgt")}
    for path in pair.values():
        Path(path).write_text(text, encoding="utf-8", newline="\n")
    document = tomllib.loads((recipes_dir() / "demo.toml").read_text(encoding="utf-8"))
    document["corpus"] |= {"train": [pair], "dev": pair}
    document["subword"]["n_merges"] = 3
    document["model"] |= {"n_layers": 1, "d_model": 8, "d_ff": 8, **model}
    document["training"] |= {"max_steps": 1, "keep_checkpoints": 1}
    document["averaging"]["n_checkpoints"] = 1
    document["test"]["sets"] = [{**pair, "name": "test"}]
    machine = Machine(folder / runs, device="cpu", workers=1, dtype=dtype)
    return Chain(Recipe.model_validate(document), machine, "test")
