"""prepare keeps both sides together and tells what it dropped."""

import tomllib
from pathlib import Path

from nmtkit.artifacts import read_json
from nmtkit.corpus.store import Ids
from nmtkit.machine import Machine
from nmtkit.recipe import Recipe, recipes_dir
from nmtkit.stages import prepare
from nmtkit.stages.chain import Chain


def test_dropped_pairs_are_counted_by_reason_and_leave_on_both_sides(tmp_path: Path) -> None:
    pairs = [("a b c", "x y z")] * 5 + [("", "x"), ("a", ""), ("a", "x " * 12), ("a " * 99, "x")]
    for side, lang in enumerate(("en", "de")):
        text = "".join(f"{pair[side]}\n" for pair in pairs)
        (tmp_path / f"text.{lang}").write_text(text, encoding="utf-8", newline="\n")
    document = tomllib.loads((recipes_dir() / "demo.toml").read_text(encoding="utf-8"))
    files = {"src": str(tmp_path / "text.en"), "tgt": str(tmp_path / "text.de")}
    document["corpus"] |= {"train": [files], "dev": files, "test": files, "max_tokens": 50}
    document["subword"]["n_merges"] = 3
    machine = Machine(tmp_path / "runs", mirror=None, device="cpu", max_tokens=None, workers=1)
    chain = Chain(Recipe.model_validate(document), machine, "test")

    prepared = prepare.run(chain).path

    counts = read_json(prepared / "counts.json")
    [corpus] = counts["train"]
    assert corpus["dropped"] == {"empty": 2, "ratio": 1, "too_long": 1}
    assert (corpus["pairs"], corpus["kept"]) == (9, 5)
    assert len(Ids.open(prepared / "train.src")) == len(Ids.open(prepared / "train.tgt")) == 5
    # Nothing is dropped from what is scored.
    assert counts["test_size"]["pairs"] == 9
    assert (prepared / "test.en").read_bytes() == (tmp_path / "text.en").read_bytes()
