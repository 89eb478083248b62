"""What a run ends with: what an artifact took, as far as its measurements can be read."""

from pathlib import Path
from typing import Any

import pytest

from nmtkit.cli.run import summary_of
from nmtkit.corpus.prepared import SPLITS
from nmtkit.files import DamagedError, canonical_json
from nmtkit.store import Artifact, Store


def publish(folder: Path, measurements: dict[str, Any], **files: object) -> Artifact:
    store = Store(folder)
    with store.draft("kind", "0" * 16) as draft:
        for name, content in files.items():
            path = draft / f"{name}.json"
            path.write_text(canonical_json(content), encoding="utf-8", newline="\n")
        return store.publish("kind", "0" * 16, depends_on={}, measurements=measurements)


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff"])
def test_measurements_that_are_damaged_hide_nothing_else(tmp_path: Path, content: bytes) -> None:
    sizes = {split: {"pairs": 1_234, "src_tokens": 2, "tgt_tokens": 3} for split in SPLITS}
    counts = {"train": [], "vocabulary": 33, "sizes": sizes}
    made = publish(tmp_path, {"seconds": 1.0}, counts=counts)
    assert summary_of("prepare", made) == "1.0 s, 1,234 pairs, vocabulary 33"
    (made.path / "measurements.json").write_bytes(content)
    said = "measurements.json is damaged, 1,234 pairs, vocabulary 33"
    assert summary_of("prepare", made) == said
    altered = canonical_json({**counts, "vocabulary": 34}).encode()
    (made.path / "counts.json").write_bytes(altered)
    with pytest.raises(DamagedError, match=r"counts\.json was altered"):
        summary_of("prepare", made)
