"""The precision that the manifest of a training states."""

from pathlib import Path

from nmtkit.store import TEMPORARY
from nmtkit.training.precision import note_precision, noted_precision


def test_precisions_are_noted_in_order_without_those_whose_steps_were_lost(tmp_path: Path) -> None:
    (tmp_path / TEMPORARY).mkdir()
    assert noted_precision(tmp_path) is None
    for precision, step, expected in (
        ("bfloat16", 1, "bfloat16"),
        ("float32", 1, "float32"),  # the run before saved nothing
        ("float32", 101, "float32"),
        ("bfloat16", 1_201, "float32, bfloat16 from step 1201"),
        ("float32", 1_301, "float32, bfloat16 from step 1201, float32 from step 1301"),
        ("bfloat16", 1_301, "float32, bfloat16 from step 1201"),
        ("float32", 1_201, "float32"),
    ):
        note_precision(tmp_path, precision, step)
        assert noted_precision(tmp_path) == expected
