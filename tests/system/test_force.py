"""Artifacts of other code: commands print one warning, and --force rebuilds them."""

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nmtkit.stages.pipeline import STAGES
from nmtkit.store.artifacts import open_directory
from nmtkit.store.code_version import code_identity, versions
from nmtkit.store.records import sealed, write_json
from system.command import RECIPE, artifact, contents, done, flip_byte, nmtkit, sentence, status
from system.kills import BeforeOperation, attempt, command

STUDY = f"""
name = "mine"
description = "One"
recipe = "./{RECIPE}"
bleu = "sacrebleu"
rows = [{{ name = "base" }}]
"""


@contextmanager
def another_nmtkit(**changes: str) -> Iterator[None]:
    """Run nmtkit with another version or other source files, also in forked processes."""
    other = {**versions(), **changes}
    identity = {key: other[key] for key in code_identity()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nmtkit.store.code_version.code_identity", lambda: identity)
        for name, module in list(sys.modules.items()):
            if name.startswith("nmtkit.") and vars(module).get("versions") is versions:
                patch.setattr(module, "versions", lambda: other)
        yield


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", RECIPE],
        ["status", RECIPE],
        ["verify", RECIPE],
        ["score", RECIPE],
        ["-q", "score", RECIPE],
        ["train", RECIPE],
        ["runs"],
        ["compare", RECIPE, "test.de", "--lang", "de"],
        ["report", "study.toml"],
        ["report", RECIPE],
        ["inspect", RECIPE],
        ["translate", "--recipe", RECIPE, "-i", "test.en", "-o", "out.de"],
    ],
    ids=" ".join,
)
def test_other_code_is_one_warning(complete: Path, arguments: list[str]) -> None:
    (complete / "study.toml").write_text(STUDY, encoding="utf-8", newline="\n")
    before = contents(complete / "runs")
    for changes in ({"nmtkit": "0.0.1"}, {"source": "0" * 16}):
        with another_nmtkit(**changes):
            ended = done(nmtkit(complete, *arguments))
        assert ended.err.count("was built by nmtkit") == 1, ended.err
        assert changes.popitem()[1][:12] in ended.err
    assert "was built by" not in done(nmtkit(complete, *arguments)).err
    assert contents(complete / "runs") == before  # nothing is rebuilt


def test_bundle_of_other_code_warns(complete: Path) -> None:
    bundle = str(artifact(complete, "average"))
    with another_nmtkit(nmtkit="0.0.1"):
        for arguments in (["translate"], ["export", "--format=ctranslate2", "exported"]):
            name, *options = arguments
            place = ["--bundle", bundle] if name == "translate" else [bundle]
            ended = done(nmtkit(complete, name, *place, *options[::-1], stdin=b"a b\n"))
            assert ended.err.count("was built by nmtkit") == 1, ended.err
            assert "pass --force" in ended.err


def test_bundle_outside_a_recipe_has_no_force(complete: Path) -> None:
    done(nmtkit(complete, "average", str(artifact(complete, "average")), "-o", "averaged"))
    with another_nmtkit(nmtkit="0.0.1"):
        ended = done(nmtkit(complete, "translate", "--bundle", "averaged", stdin=b"a b\n"))
    assert "was built by nmtkit" in ended.err
    assert "--force" not in ended.err


def test_force_rebuilds_all_stages(complete: Path) -> None:
    """The same bytes except for the version, and the same fingerprints."""
    before = {stage: artifact(complete, stage).name for stage in STAGES}
    with another_nmtkit(nmtkit="0.0.1"):
        done(nmtkit(complete, "run", RECIPE, "--force", "--workers=1"))
    for stage in STAGES:
        assert artifact(complete, stage).name == before[stage]
        assert open_directory(artifact(complete, stage)).manifest.made_by["nmtkit"] == "0.0.1"
    assert {stage["state"] for stage in status(complete).values()} == {"done"}
    done(nmtkit(complete, "verify", RECIPE))


def test_forced_training_marks_stale(complete: Path) -> None:
    """The fingerprints are the same, but the later stages read the artifact that was deleted."""
    old = {stage: open_directory(artifact(complete, stage)).manifest for stage in STAGES}
    with another_nmtkit(source="0" * 16):
        done(nmtkit(complete, "train", RECIPE, "--force"))
        states = {name: stage["state"] for name, stage in status(complete).items()}
        assert states == {
            "prepare": "done", "train": "done", "average": "stale", "translate": "stale",
            "score": "stale",
        }  # fmt: skip
        assert "`nmtkit translate " in sentence(nmtkit(complete, "score", RECIPE))
        assert "1 difference" in sentence(nmtkit(complete, "verify", RECIPE))
        assert artifact(complete, "score").is_dir()  # and not deleted before it can be rebuilt
        done(nmtkit(complete, "run", RECIPE))
    for stage in ("average", "translate", "score"):
        manifest = open_directory(artifact(complete, stage)).manifest
        assert manifest.fingerprint == old[stage].fingerprint
        # If a rebuilt bundle has the same bytes, the later artifacts are not rebuilt.
        is_rebuilt = manifest.made_by["source"] == "0" * 16
        assert is_rebuilt == (stage == "average")
    assert {stage["state"] for stage in status(complete).values()} == {"done"}


def test_training_is_not_rebuilt(complete: Path) -> None:
    """Also where the corpus was rebuilt with other content, which is an error."""
    trained = contents(artifact(complete, "train"))
    manifest = artifact(complete, "train") / "manifest.json"
    text = manifest.read_text(encoding="utf-8")
    prepared = open_directory(artifact(complete, "train")).manifest.inputs["prepare"]
    content = json.loads(text.replace(prepared, "0" * 64))
    del content["sha256"]
    write_json(manifest, sealed(content))
    for name in ("train", "run"):
        assert "--force" in sentence(nmtkit(complete, name, RECIPE))
    trained["manifest.json"] = contents(artifact(complete, "train"))["manifest.json"]
    assert contents(artifact(complete, "train")) == trained
    done(nmtkit(complete, "train", RECIPE, "--force"))
    assert status(complete)["train"]["state"] == "done"


def test_force_keeps_what_it_cannot_build(complete: Path) -> None:
    before = contents(complete / "runs" / "average")
    shutil.rmtree(artifact(complete, "train"))
    assert "`nmtkit train " in sentence(nmtkit(complete, "average", RECIPE, "--force"))
    (complete / "train.de").unlink()
    assert "train.de" in sentence(nmtkit(complete, "run", RECIPE, "--force"))
    assert contents(complete / "runs" / "average") == before


def test_forced_stage_after_kill(complete: Path) -> None:
    """The same command without --force finishes it, and nothing else has changed."""
    before = contents(complete / "runs")
    number = 1
    forced = command("average", RECIPE, "--force")
    while attempt(forced, complete, kill_at=BeforeOperation(number)).killed:
        done(nmtkit(complete, "average", RECIPE))
        assert contents(complete / "runs") == before
        number += 6
    assert number > 12
    assert contents(complete / "runs") == before


@pytest.mark.parametrize(
    ("stage", "upstream"),
    [("train", "prepare"), ("average", "train"), ("translate", "average"), ("score", "translate")],
)
def test_force_verifies_input(complete: Path, stage: str, upstream: str) -> None:
    """A damaged input cannot rebuild the result, which is kept."""
    folder = artifact(complete, upstream)
    names = [name for name in open_directory(folder).manifest.files if name != "counts.json"]
    flip_byte(folder / names[-1])
    before = contents(artifact(complete, stage))
    assert names[-1] in sentence(nmtkit(complete, stage, RECIPE, "--force"))
    assert contents(artifact(complete, stage)) == before


def test_force_reads_texts(complete: Path) -> None:
    before = contents(complete / "runs")
    (complete / "train.de").unlink()
    assert "train.de" in sentence(nmtkit(complete, "run", RECIPE, "--force"))
    assert contents(complete / "runs") == before


def test_changed_text_is_named(complete: Path) -> None:
    bundle = artifact(complete, "average")
    text = complete / "train.de"
    text.write_bytes(text.read_bytes().replace(b"ein", b"eins", 1))
    message = sentence(nmtkit(complete, "translate", "--recipe", RECIPE, stdin=b"a b\n"))
    assert "train.de changed" in message
    assert f"--bundle runs/average/{bundle.name}" in message
    assert "--set" not in message
    assert "train.en" not in message
    for stage in status(complete).values():
        assert "train.de changed since runs/" in stage["why"]
    done(nmtkit(complete, "translate", "--bundle", str(bundle), stdin=b"a b\n"))


def test_artifact_that_names_itself(complete: Path) -> None:
    manifest = artifact(complete, "train") / "manifest.json"
    content = json.loads(manifest.read_bytes())
    content["depends_on"]["upstream"] = {"train": content["fingerprint"]}
    del content["sha256"]
    write_json(manifest, sealed(content))
    assert "difference" in sentence(nmtkit(complete, "verify", str(manifest.parent)))
    done(nmtkit(complete, "report"))


def test_killed_average_leaves_no_lock(complete: Path) -> None:
    """The kill came after the bundle was complete: its command is refused, and removes the lock."""
    bundle = str(artifact(complete, "average"))
    done(nmtkit(complete, "average", bundle, "-o", "mean"))
    leftover = complete / ".mean.nmtkit"
    for has_lock in (True, False):
        leftover.mkdir()
        if has_lock:
            (leftover / "nmtkit.lock").touch()
        sentence(nmtkit(complete, "average", bundle, "-o", "mean"))
        assert not leftover.exists()
