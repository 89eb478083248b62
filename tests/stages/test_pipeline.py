"""Artifacts that are missing, and that none is built twice."""

import itertools
import shlex
from pathlib import Path
from typing import Any

import pytest

from nmtkit.config.loading import load_recipe
from nmtkit.config.recipe import Recipe
from nmtkit.config.settings import Settings
from nmtkit.corpus.prepared import COUNTS, SAMPLES
from nmtkit.stages.pipeline import Pipeline, content_hash
from nmtkit.store.artifacts import Artifact, Store
from nmtkit.store.manifests import File, Manifest
from nmtkit.utils.errors import UserError


def load_pipeline(recipe: Recipe, runs_dir: Path, command: str = "demo") -> Pipeline:
    settings = Settings(runs_dir, device="cpu", workers=1)
    return Pipeline(recipe, settings, command)


def build(draft: Path) -> dict[str, Any]:
    (draft / "file").write_text("content", encoding="utf-8")
    return {"speed": 3}


def never(_draft: Path) -> dict[str, Any]:
    raise AssertionError


def test_missing_stage_names_its_command(tmp_path: Path) -> None:
    overrides = ["training.max_steps=5", 'test.sets=["demo-dev"]']
    recipe = load_recipe("demo", overrides)
    pipeline = Pipeline(recipe, Settings(tmp_path / "my runs"), "demo", overrides)
    with pytest.raises(UserError) as caught:
        pipeline.need("train")
    typed = str(caught.value).partition("run `")[2].partition("` first")[0]
    options = [f"--set={override}" for override in overrides]
    assert shlex.split(typed) == [
        "nmtkit", "train", "demo", *options, f"--runs-dir={tmp_path / 'my runs'}"
    ]  # fmt: skip


def test_artifact_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = load_pipeline(load_recipe("demo"), tmp_path)
    built = pipeline.build("prepare", build)
    find = Store.find
    calls = itertools.count()
    # The first call, before the lock, does not find the artifact yet.
    monkeypatch.setattr(Store, "find", lambda *key: find(*key) if next(calls) else None)
    assert pipeline.build("prepare", never) == built


def test_missing_downloads_are_listed(tmp_path: Path) -> None:
    settings = Settings(tmp_path / "runs", mirror=tmp_path, device="cpu")
    pipeline = Pipeline(load_recipe("multi30k-en-de"), settings, "multi30k-en-de")
    files = []
    for key in ("train", "dev", "sets"):
        for corpus in pipeline.corpora[key]:
            files += corpus.downloads
    first, *others = dict.fromkeys(file.url for file in files)
    with pytest.raises(UserError) as caught:
        pipeline.downloads.fetch(files[0])
    message = str(caught.value)
    assert first in message
    assert message.endswith(f"; these files are missing too: {', '.join(others)}")


def test_content_hash_has_no_statistics(tmp_path: Path) -> None:
    """Only files that the next stage reads make it stale."""
    files = {name: File(bytes=1, sha256="0" * 64) for name in ("ids", COUNTS, SAMPLES)}
    hashes = set()
    for changed in (None, COUNTS, SAMPLES, "ids"):
        entries = dict(files)
        if changed is not None:
            entries[changed] = File(bytes=1, sha256="1" * 64)
        manifest = Manifest(format=2, files=entries, kind="prepare", made_by={}, sha256="")
        hashes.add((changed == "ids", content_hash(Artifact(tmp_path, manifest))))
    assert len(hashes) == 2
    assert len({content for _, content in hashes}) == 2
