"""Who may read what the stages publish: the umask decides, as for any other file."""

import os
import stat
from pathlib import Path

from chains import tiny_chain

from nmtkit.stages import average, prepare, score, train, translate
from nmtkit.stages.chain import STAGES


def test_every_published_file_and_folder_follows_the_umask(tmp_path: Path) -> None:
    chain = tiny_chain(tmp_path)
    before = os.umask(0o027)
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
            expected = 0o750 if path.is_dir() else 0o640
            assert stat.S_IMODE(path.stat().st_mode) == expected, path
