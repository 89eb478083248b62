"""Much text: the output depends on the text alone, and the memory hardly at all."""

import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from nmtkit.sources.catalog import data_dir
from system.command import artifact, contents, environment, start
from system.conftest import TOML, Finished

pytestmark = pytest.mark.slow

PEAK_OF_CHILDREN = (
    "import resource, subprocess, sys; code = subprocess.run(sys.argv[1:]).returncode; "
    "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss); sys.exit(code)"
)


def prepare(folder: Path, n_pairs: int, workers: int) -> int:
    """Prepare the demo corpus over and over; return the largest process's KiB."""
    folder.mkdir()
    demo = data_dir() / "demo"
    for lang in ("en", "de"):
        for name in (f"dev.{lang}", f"test.{lang}"):
            (folder / name).write_bytes((demo / name).read_bytes())
        lines = (demo / f"train.{lang}").read_bytes().splitlines()
        generator = random.Random(1)
        with (folder / f"train.{lang}").open("wb") as file:
            for i in range(n_pairs):
                word = generator.randrange(1 + int(i**0.7))  # new ones come ever more rarely
                file.write(b"%s word%d\n" % (lines[i % len(lines)], word))
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


def test_fifty_thousand_lines_through_a_pipe_keep_their_order_in_flat_memory(
    finished: Finished,
) -> None:
    rng = random.Random(3)
    known = [" ".join(rng.choices("abcdefgh", k=rng.randint(1, 6))) for _ in range(300)]
    lines = [*known, *rng.choices(known, k=50_000 - len(known))]
    expected: dict[str, str] = {}
    resident_kib = []
    bundle = os.fspath(finished.artifact("average"))
    with start(finished.folder, "translate", "--bundle", bundle, "--beam", "1") as process:
        assert process.stdin
        assert process.stdout
        text = [f"{line}\n".encode() for line in lines]
        writer = threading.Thread(target=process.stdin.writelines, args=[text])
        writer.start()
        for number, line in enumerate(lines, start=1):
            translation = process.stdout.readline().decode()
            assert translation
            assert expected.setdefault(line, translation) == translation
            if number % 10_000 == 0:
                status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
                (kib,) = (row.split()[1] for row in status.split("\n") if row.startswith("VmRSS:"))
                resident_kib.append(int(kib))
        writer.join()
        assert process.communicate()[0] == b""
    assert process.returncode == 0
    assert len(set(expected.values())) > 100
    assert resident_kib[-1] < 1.1 * resident_kib[0]
