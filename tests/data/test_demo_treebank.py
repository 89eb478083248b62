"""The demo treebank: reproducible, split without leaks, and fit for a parser."""

import subprocess
import sys
from pathlib import Path

import pytest

from nmtkit.corpus.linearized import linearize, read_back
from nmtkit.sources.text import TextFile
from nmtkit.sources.treebank import read_trees

TREES = Path(__file__).resolve().parents[2] / "data" / "trees"
SIZES = {"train": 3_000, "dev": 200, "test": 300}


@pytest.fixture(scope="module")
def pairs() -> dict[str, list[tuple[str, str]]]:
    return {split: list(read_trees(TextFile(TREES / f"{split}.mrg"))) for split in SIZES}


def test_the_program_writes_the_committed_bytes(tmp_path: Path) -> None:
    subprocess.run([sys.executable, TREES / "make_trees.py", tmp_path], check=True)
    for split in SIZES:
        name = f"{split}.mrg"
        assert (tmp_path / name).read_bytes() == (TREES / name).read_bytes(), name


def test_no_sentence_occurs_twice(pairs: dict[str, list[tuple[str, str]]]) -> None:
    words = [words for split in pairs.values() for words, _ in split]
    assert {split: len(found) for split, found in pairs.items()} == SIZES
    assert len(set(words)) == len(words)
    assert {len(line.split()) for line in words} == {*range(4, 26)}


def test_trees_are_normalized_and_read_back(pairs: dict[str, list[tuple[str, str]]]) -> None:
    text = (TREES / "test.mrg").read_text(encoding="utf-8")
    assert [tree for _, tree in pairs["test"]] == text.split("\n")[:-1]
    for words, tree in pairs["test"]:
        assert read_back(linearize(tree, "tags"), words.split())[0] == tree
