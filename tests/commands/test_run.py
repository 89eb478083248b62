"""What a run ends with: what an artifact took, as far as its measurements can be read."""

from pathlib import Path
from typing import Any

import pytest

from nmtkit.artifacts import Artifact, DamagedError, Store, canonical_json
from nmtkit.commands.run import _summary

TRAINED = {"seconds": 61.25, "steps": 40, "timed_steps": 40, "tgt_tokens_per_second": 1234.5}


def publish(folder: Path, measurements: dict[str, Any], **files: object) -> Artifact:
    store = Store(folder)
    with store.draft("kind", "0" * 16) as draft:
        for name, content in files.items():
            path = draft / f"{name}.json"
            path.write_text(canonical_json(content), encoding="utf-8", newline="\n")
        return store.publish("kind", "0" * 16, depends_on={}, measurements=measurements)


@pytest.mark.parametrize(
    ("changes", "summary"),
    [
        ({}, "61.2 s, 40 steps, 1,234 target tokens/s"),
        (
            {"timed_steps": 30},
            "61.2 s, 40 steps, 1,234 target tokens/s in the 30 that were measured",
        ),
        ({"timed_steps": 0, "tgt_tokens_per_second": None}, "61.2 s, 40 steps"),
        ({"seconds": "long"}, "measurements.json is damaged"),
    ],
)
def test_training_is_summed_up(tmp_path: Path, changes: dict[str, Any], summary: str) -> None:
    assert _summary("train", publish(tmp_path, {**TRAINED, **changes})) == summary


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff"])
def test_measurements_that_are_damaged_hide_nothing_else(tmp_path: Path, content: bytes) -> None:
    made = publish(tmp_path, {"seconds": 1.0}, averaged={"steps": [10, 2000]})
    assert _summary("average", made) == "1.0 s, steps 10, 2,000"
    (made.path / "measurements.json").write_bytes(content)
    assert _summary("average", made) == "measurements.json is damaged, steps 10, 2,000"
    (made.path / "averaged.json").write_bytes(canonical_json({"steps": [10, 2001]}).encode())
    with pytest.raises(DamagedError, match=r"averaged\.json was altered"):
        _summary("average", made)


@pytest.mark.parametrize(
    ("stage", "name", "content"),
    [
        ("average", "averaged", {"steps": ["many"]}),
        ("average", "averaged", []),
        ("prepare", "counts", {"vocabulary": 9}),
    ],
)
def test_a_file_that_was_published_with_other_contents_is_named(
    tmp_path: Path, stage: str, name: str, content: object
) -> None:
    made = publish(tmp_path, {"seconds": 1.0}, **{name: content})
    with pytest.raises(DamagedError, match=rf"{name}\.json is damaged"):
        _summary(stage, made)
