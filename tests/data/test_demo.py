"""The demo corpus and treebank: reproducible, and without sentences that are in two splits."""

import subprocess
import sys
from pathlib import Path

import pytest

from nmtkit.corpus.linearized import linearize, read_back
from nmtkit.sources.text_file import TextFile
from nmtkit.sources.treebank import read_trees

DATA = Path(__file__).resolve().parents[2] / "data"
DEMO = DATA / "demo"
TREES = DATA / "trees"
SIZES = {"train": 20_000, "dev": 500, "test": 500}
TREE_SIZES = {"train": 3_000, "dev": 200, "test": 300}


@pytest.mark.parametrize("program", [DEMO / "make_corpus.py", TREES / "make_trees.py"])
def test_programs_write_committed_files(program: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, program, tmp_path], check=True)
    suffixes = (".en", ".de") if program.parent == DEMO else (".mrg",)
    names = sorted(f"{split}{suffix}" for split in SIZES for suffix in suffixes)
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    for name in names:
        assert (tmp_path / name).read_bytes() == (program.parent / name).read_bytes(), name


@pytest.mark.parametrize("language", ["en", "de"])
def test_corpus_sentences_are_unique(language: str) -> None:
    texts = {split: (DEMO / f"{split}.{language}").read_text("utf-8") for split in SIZES}
    assert {split: text.count("\n") for split, text in texts.items()} == SIZES
    lines = "".join(texts.values()).split("\n")[:-1]
    assert len(set(lines)) == len(lines)
    assert all(line == " ".join(line.split()) and line for line in lines)


def test_trees_are_unique_and_read_back() -> None:
    pairs = {split: list(read_trees(TextFile(TREES / f"{split}.mrg"))) for split in SIZES}
    words = [words for split in pairs.values() for words, _ in split]
    assert {split: len(found) for split, found in pairs.items()} == TREE_SIZES
    assert len(set(words)) == len(words)
    assert {len(line.split()) for line in words} == {*range(4, 26)}
    text = (TREES / "test.mrg").read_text(encoding="utf-8")
    assert [tree for _, tree in pairs["test"]] == text.split("\n")[:-1]
    for line, tree in pairs["test"]:
        assert read_back(linearize(tree, "tags"), line.split())[0] == tree
