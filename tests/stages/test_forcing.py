"""`--force`: what is verified before anything is deleted."""

from pathlib import Path

import pytest
from chains import tiny_pipeline

from nmtkit.stages import prepare
from nmtkit.stages.forcing import delete_forced
from nmtkit.stages.pipeline import Pipeline
from nmtkit.utils.errors import UserError


def test_force_reads_text_before_it_deletes(tmp_path: Path) -> None:
    """A download, or a file that changes meanwhile, can fail to be read under its fingerprint."""
    pipeline = tiny_pipeline(tmp_path)
    place = prepare.run(pipeline).path
    forced = Pipeline(pipeline.recipe, pipeline.settings, "test", force=["prepare"])
    assert forced.store.place("prepare", forced.fingerprint("prepare")) == place
    (tmp_path / "tgt").write_text("a\n", encoding="utf-8")
    with pytest.raises(UserError, match="tgt"):
        delete_forced(forced)
    assert pipeline.find("prepare") is not None
