"""The demo corpus: reproducible, and split without leaks."""

import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).resolve().parents[2] / "data" / "demo"
SIZES = {"train": 20_000, "dev": 500, "test": 500}


def test_the_program_writes_the_committed_bytes(tmp_path: Path) -> None:
    subprocess.run([sys.executable, DEMO / "make_corpus.py", tmp_path], check=True)
    names = sorted(f"{split}.{language}" for split in SIZES for language in ("en", "de"))
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    for name in names:
        assert (tmp_path / name).read_bytes() == (DEMO / name).read_bytes(), name


def test_no_sentence_occurs_twice_on_either_side() -> None:
    for language in ("en", "de"):
        texts = {split: (DEMO / f"{split}.{language}").read_text("utf-8") for split in SIZES}
        assert {split: text.count("\n") for split, text in texts.items()} == SIZES
        lines = "".join(texts.values()).split("\n")[:-1]
        assert len(set(lines)) == len(lines)
        assert all(line == " ".join(line.split()) and line for line in lines)
