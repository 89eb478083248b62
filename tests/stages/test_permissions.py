"""Who may read what the stages publish: the umask decides, as for any other file."""

import os
import stat
from pathlib import Path

import pytest
from chains import tiny_chain

from nmtkit.stages import average, prepare, score, train, translate
from nmtkit.stages.chain import STAGES


@pytest.mark.parametrize(
    ("umask", "of_file", "of_folder"), [(0o022, 0o644, 0o755), (0o027, 0o640, 0o750)]
)
def test_every_published_file_and_folder_follows_the_umask(
    tmp_path: Path, umask: int, of_file: int, of_folder: int
) -> None:
    chain = tiny_chain(tmp_path)
    before = os.umask(umask)
    try:
        for stage in (prepare, train, average, translate, score):
            stage.run(chain)
    finally:
        os.umask(before)
    published = [chain.need(stage).path for stage in STAGES]
    assert {"model.safetensors", "optimizer.safetensors", "scores.json"} <= {
        path.name for place in published for path in place.rglob("*")
    }
    for place in published:
        for path in (place, *place.rglob("*")):
            expected = of_folder if path.is_dir() else of_file
            assert stat.S_IMODE(path.stat().st_mode) == expected, path
