"""Artifacts that cannot be read: the error suggests a remedy that loses nothing."""

import json
from pathlib import Path

import pytest
from bundles import publish_bundle
from models import tiny

from nmtkit import __version__
from nmtkit.corpus.moses import TOKENIZATION
from nmtkit.decoding.bundle import DECODING, open_bundle
from nmtkit.model.weights import MODEL
from nmtkit.store.manifests import MANIFEST
from nmtkit.store.records import DamagedError, file_sha256, sealed, write_json


def edited(folder: Path, name: str, version: str, *, is_whole: bool) -> None:
    """Add a key to a JSON file of an artifact; if `is_whole`, with the right hashes."""
    content = json.loads((folder / name).read_bytes())
    content["novelty"] = 1
    if name != MANIFEST:
        write_json(folder / name, content)
        content = json.loads((folder / MANIFEST).read_bytes())
        entry = {"bytes": (folder / name).stat().st_size, "sha256": file_sha256(folder / name)}
        content["files"][name] |= entry if is_whole else {"bytes": entry["bytes"]}
    content["made_by"]["nmtkit"] = version
    if is_whole or name != MANIFEST:
        del content["sha256"]
        content = sealed(content)
    write_json(folder / MANIFEST, content)


@pytest.mark.parametrize("name", [MANIFEST, MODEL, DECODING, TOKENIZATION])
@pytest.mark.parametrize(
    ("version", "is_whole", "expected"),
    [
        ("99.10.0", True, r"newer version of nmtkit \(99\.10\.0\); update nmtkit"),
        (__version__, True, r"novelty.*update nmtkit"),
        ("0.0.1", True, r"novelty.*update nmtkit"),
        ("?", True, r"novelty.*update nmtkit"),
        (__version__, False, r"; delete "),
    ],
)
def test_remedy_of_an_unreadable_file(
    name: str, version: str, is_whole: bool, expected: str, tmp_path: Path
) -> None:
    bundle = publish_bundle(tmp_path / "b", tiny())
    edited(bundle, name, version, is_whole=is_whole)
    with pytest.raises(DamagedError, match=expected) as refused:
        open_bundle(bundle)
    assert is_whole is not ("; delete " in str(refused.value))


@pytest.mark.parametrize(("format_", "remedy"), [(99, "update nmtkit"), (1, "rebuild it")])
def test_other_format_is_named(format_: int, remedy: str, tmp_path: Path) -> None:
    bundle = publish_bundle(tmp_path / "b", tiny())
    content = {"format": format_, "made_by": {"nmtkit": "99.0.0"}}
    write_json(bundle / MANIFEST, content)
    with pytest.raises(DamagedError, match=f"has format {format_}, .*{remedy}"):
        open_bundle(bundle)
