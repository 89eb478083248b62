"""prepare on ten times as much text: the bytes depend on the text alone, the memory hardly."""

import subprocess
import sys
from pathlib import Path

import pytest

from nmtkit.sources.catalog import data_dir
from system import vary
from system.command import artifact, contents, environment
from system.conftest import TOML

pytestmark = pytest.mark.slow

PEAK_OF_CHILDREN = (
    "import resource, subprocess, sys; code = subprocess.run(sys.argv[1:]).returncode; "
    "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss); sys.exit(code)"
)


def prepare(folder: Path, n_pairs: int, workers: int) -> int:
    """Prepare `n_pairs` varied from the demo corpus; return the largest process's KiB."""
    folder.mkdir()
    demo = data_dir() / "demo"
    vary.vary(
        demo / "train.en", demo / "train.de", n_pairs, folder / "train.en", folder / "train.de"
    )
    for name in ("dev.en", "dev.de", "test.en", "test.de"):
        (folder / name).write_bytes((demo / name).read_bytes())
    (folder / "large.toml").write_text(TOML, encoding="utf-8", newline="\n")
    nmtkit = [sys.executable, "-m", "nmtkit", "prepare", "large.toml", "--workers", str(workers)]
    ended = subprocess.run(
        [sys.executable, "-c", PEAK_OF_CHILDREN, *nmtkit],
        cwd=folder,
        env=environment(),
        capture_output=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return int(ended.stdout.split(b"\n")[-2])


def test_ten_times_the_text_takes_little_more_memory(tmp_path: Path) -> None:
    small = prepare(tmp_path / "small", 40_000, workers=2)
    large = prepare(tmp_path / "large", 400_000, workers=2)
    assert large < 2 * small
    prepare(tmp_path / "alone", 40_000, workers=1)
    assert contents(artifact(tmp_path / "alone", "prepare")) == contents(
        artifact(tmp_path / "small", "prepare")
    )
