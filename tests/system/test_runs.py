"""nmtkit runs, verify and gc: artifacts are listed, checked and freed."""

import json
import os
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from packed import zipped
from terminals import on_terminal

from nmtkit.config.loading import load_recipe
from nmtkit.config.settings import Settings
from nmtkit.export.model_card import Origin, bundle_origin
from nmtkit.runs.checksums import verify_folder
from nmtkit.runs.freeing import decide
from nmtkit.runs.listing import list_artifacts
from nmtkit.sources import parallel
from nmtkit.stages import average, score, translate
from nmtkit.stages.pipeline import STAGES, Pipeline
from nmtkit.store import records
from nmtkit.store.artifacts import Store, differences, open_directory
from nmtkit.store.manifests import MEASUREMENTS
from nmtkit.store.records import SEAL, file_sha256, sealed, write_json
from nmtkit.utils.errors import UserError
from nmtkit.utils.interrupts import EXIT_CODE
from system.command import RECIPE, artifact, contents, done, flip_byte, nmtkit, sentence
from system.conftest import Finished
from system.kills import BeforeOperation, attempt, command

VARIANT = "decoding.beam_size=2"


@pytest.fixture
def complete(complete: Path) -> Path:
    """A finished run of the recipe in this folder, as its measurements record it."""
    for path in complete.glob("runs/*/*/measurements.json"):
        content = json.loads(path.read_bytes())
        del content["sha256"]
        content["run"]["recipe"] = str(complete / RECIPE)
        write_json(path, sealed(content))
    return complete


def local_settings(folder: Path) -> Settings:
    return Settings(folder / "runs", device="cpu", workers=1)


def load_pipeline(folder: Path, *overrides: str, recipe: str = RECIPE) -> Pipeline:
    path = str(folder / recipe)
    return Pipeline(load_recipe(path, overrides), local_settings(folder), path, overrides)


def run_variant(folder: Path, recipe: str = RECIPE) -> Pipeline:
    """Run the stages that depend on the beam size with another one."""
    pipeline = load_pipeline(folder, VARIANT, recipe=recipe)
    for stage in (average, translate, score):
        stage.run(pipeline)
    return pipeline


def change_beam_size(folder: Path) -> None:
    """Change the recipe so that the averaged, translated and scored artifacts are not needed."""
    text = (folder / RECIPE).read_text(encoding="utf-8")
    (folder / RECIPE).write_text(text.replace("beam_size = 3", "beam_size = 1"), encoding="utf-8")


def folders(folder: Path) -> set[str]:
    """STAGE/FINGERPRINT of every artifact."""
    store = Store(folder / "runs")
    names = set()
    for stage in STAGES:
        names |= {f"{stage}/{path.name}" for path in store.folders(stage)}
    return names


def freed(folder: Path, *keep: str, drafts: bool = False) -> list[str]:
    """The stages of the artifacts that gc would free."""
    decisions = decide(local_settings(folder), folder, keep, drafts=drafts)
    return [decision.artifact.stage for decision in decisions if decision.is_freed]


def kept_reasons(folder: Path, recipes: Path | None = None) -> set[str]:
    """The reasons for which gc would keep artifacts."""
    decisions = decide(local_settings(folder), recipes or folder)
    return {decision.reason for decision in decisions if not decision.is_freed}


# nmtkit runs


def test_runs_lists_artifacts(finished: Finished) -> None:
    listed = json.loads(done(nmtkit(finished.folder, "runs", "--json")).out)
    assert [row["stage"] for row in listed] == list(STAGES)
    scores = json.loads((finished.artifact("score") / "scores.json").read_bytes())
    for row in listed:
        path = finished.artifact(row["stage"])
        assert (row["run"], row["state"]) == (f"./{RECIPE}", "published")
        assert row["fingerprint"] == path.name
        assert row["n_bytes"] == sum(
            file.stat().st_size for file in path.rglob("*") if file.is_file()
        )
        assert 0 <= row["age_seconds"] < 10_000
        assert row["scores"] == (scores if row["stage"] == "score" else {})
    shown = done(nmtkit(finished.folder, "runs")).out
    assert f"test {scores['test']['sacrebleu']['score']:.2f} sacreBLEU" in shown
    assert scores["test"]["sacrebleu"]["signature"] in shown


def test_runs_lists_drafts_and_damage(complete: Path) -> None:
    train = artifact(complete, "train")
    train.rename(train.with_suffix(".partial"))
    (artifact(complete, "translate") / "test" / "hypotheses.txt").unlink()
    measurements = artifact(complete, "average") / "measurements.json"
    measurements.write_text('{"host": "a", "seconds": 1}', encoding="utf-8")
    found = {row.stage: row for row in list_artifacts(complete / "runs")}
    assert {stage: row.state for stage, row in found.items()} == {
        "prepare": "published",
        "train": "stopped",
        "average": "published",
        "translate": "damaged",
        "score": "published",
    }
    assert found["average"].run is None
    copied = shutil.copytree(artifact(complete, "prepare"), complete / "runs/score" / train.name)
    states = {row.path: row.state for row in list_artifacts(complete / "runs")}
    assert states[str(copied)] == "damaged"
    shutil.rmtree(copied)
    with Store(complete / "runs").draft("train", train.name, resume=True):
        found = {row.stage: row for row in list_artifacts(complete / "runs")}
        assert found["train"].state == "being built"


# nmtkit verify


@pytest.mark.parametrize("date", ["0001-01-01T00:00:00", "0001-01-01T00:00:00+14:00"])
def test_runs_reads_any_date(complete: Path, date: str) -> None:
    path = artifact(complete, "average") / MEASUREMENTS
    measured = json.loads(path.read_bytes())
    del measured[SEAL]
    write_json(path, sealed({**measured, "published": date}))
    for name in ("runs", "report", "gc"):
        done(nmtkit(complete, name))


def test_verify_unchanged_artifacts(finished: Finished) -> None:
    before = contents(finished.folder)
    shown = done(nmtkit(finished.folder, "verify", RECIPE)).out
    assert shown.count(" yes ") == 7
    path = f"runs/score/{finished.artifact('score').name}"
    checks = json.loads(done(nmtkit(finished.folder, "verify", path, "--json")).out)
    assert [check["what"] for check in checks if check["what"] != "texts"] == list(STAGES)
    assert not any(check["differences"] for check in checks)
    assert contents(finished.folder) == before


def test_verify_finds_flipped_bytes(complete: Path) -> None:
    """At the start, the end and two places between, in every file of every artifact."""
    n_files = 0
    for stage in STAGES:
        path = artifact(complete, stage)
        for file in sorted(file for file in path.rglob("*") if file.is_file()):
            content = file.read_bytes()
            if not content:
                continue
            n_files += 1
            for place in {0, len(content) // 3, len(content) // 2, len(content) - 1}:
                change_beam_size = bytearray(content)
                change_beam_size[place] ^= 1
                file.write_bytes(change_beam_size)
                found = list(differences(path))
                assert found, f"{file}, byte {place}"
                assert any(str(file) in difference for difference in found)
            file.write_bytes(content)
        assert list(differences(path)) == []
    assert n_files > 40


@pytest.mark.parametrize("name", ["train.de", "test.en"])
def test_verify_finds_changed_text(complete: Path, name: str) -> None:
    flip_byte(complete / name)
    path = str(artifact(complete, "score").relative_to(complete))
    ended = nmtkit(complete, "verify", path)
    assert "differs from its manifest" in sentence(ended)
    assert f"{complete / name}" in ended.out
    if name == "train.de":
        ended = nmtkit(complete, "verify", RECIPE)
        assert f"{complete / name}: not the text that was read" in ended.out


@pytest.mark.slow
def test_verify_finds_changed_download(shared_data: Path, tmp_path: Path) -> None:
    shutil.copytree(shared_data / "mirror", tmp_path / "mirror", copy_function=shutil.copyfile)
    run = ("multi30k-en-de", "--mirror", "mirror")
    done(nmtkit(tmp_path, "prepare", *run))
    done(nmtkit(tmp_path, "verify", *run))
    (altered,) = tmp_path.rglob("train.de.gz")
    flip_byte(altered)
    ended = nmtkit(tmp_path, "verify", *run)
    assert "1 difference" in sentence(ended)
    assert str(altered.relative_to(tmp_path)) in ended.out


def test_verify_corpus_without_hash(complete: Path) -> None:
    path = complete / "mirror/object.pouta.csc.fi/OPUS-Tiny/v1/moses/de-en.txt.zip"
    path.parent.mkdir(parents=True)
    texts = {
        f"Tiny.de-en.{lang}": (complete / f"train.{lang}").read_bytes() for lang in ("de", "en")
    }
    path.write_bytes(zipped(texts))
    run = (RECIPE, "--set", 'corpus.train=["opus:Tiny/v1"]', "--mirror", "mirror")
    prepared = open_directory(complete / done(nmtkit(complete, "prepare", *run)).out.strip())
    url = f"https://{path.relative_to(complete / 'mirror')}"
    sha256 = file_sha256(path)
    assert prepared.manifest.downloads == {url: f"sha256 {sha256}"}
    path.write_bytes(zipped({**texts, "README": b""}))
    ended = nmtkit(complete, "verify", *run)
    assert f"instead of {sha256}" in ended.out
    (record,) = complete.glob("runs/downloads/*/*.sha256")
    record.unlink()
    ended = nmtkit(complete, "verify", *run)
    assert f"was read with sha256 {sha256}" in ended.out


def test_verify_finds_missing_inputs(complete: Path) -> None:
    path = artifact(complete, "average")
    shutil.rmtree(artifact(complete, "train"))
    (path / "stray").write_bytes(b"")
    ended = nmtkit(complete, "verify", str(path))
    assert "2 differences" in sentence(ended)
    assert "manifest.json cannot be read" in ended.out
    assert f"{path / 'stray'} was not published with it" in ended.out


def test_verify_names_stage_of_damaged_copy(complete: Path) -> None:
    shutil.copytree(artifact(complete, "average"), complete / "copy")
    (complete / "copy" / "model.json").unlink()
    ended = nmtkit(complete, "verify", "copy", "--json")
    assert [check["what"] for check in json.loads(ended.out)] == ["average"]
    (complete / "copy" / "manifest.json").write_text("{}", encoding="utf-8")
    ended = nmtkit(complete, "verify", "copy", "--json")
    assert [check["what"] for check in json.loads(ended.out)] == ["unknown"]


def test_copied_bundle_is_verified_alone(complete: Path, tmp_path: Path) -> None:
    shutil.copytree(artifact(complete, "average"), tmp_path / "copy")
    ended = done(nmtkit(tmp_path, "verify", "copy", "--json"))
    assert [check["path"] for check in json.loads(ended.out)] == ["copy"]
    assert "warning: verify: the inputs of copy are not verified" in ended.err
    flip_byte(tmp_path / "copy" / "model.safetensors")
    assert "1 difference" in sentence(nmtkit(tmp_path, "verify", "copy"))


def test_artifact_in_root_folder(tmp_path: Path) -> None:
    """A container may have a bundle at /bundle."""
    (verified,) = verify_folder(Path("/absent"), local_settings(tmp_path))
    assert verified.differences
    assert bundle_origin(Path("/absent")) == Origin([], [])


# nmtkit gc


def test_gc_keeps_variants_and_seeds(complete: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_variant(complete)
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    score.run(load_pipeline(complete))
    assert len(Store(complete / "runs").folders("score")) == 3
    assert freed(complete) == []
    monkeypatch.delenv("SACREBLEU_SEED")
    assert freed(complete) == []


def test_gc_reads_every_file_once(complete: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(10):
        monkeypatch.setenv("SACREBLEU_SEED", str(seed))
        score.run(load_pipeline(complete))
    n_read: Counter[Path] = Counter()

    def counted(path: Path, *n_bytes: int) -> Any:
        n_read[path] += 1
        return read(path, *n_bytes) if n_bytes else file_sha256(path)

    read = records.read_bytes
    monkeypatch.setattr(records, "read_bytes", counted)
    monkeypatch.setattr(parallel, "file_sha256", counted)
    assert freed(complete) == []
    assert {path.name for path in n_read} >= {"manifest.json", "measurements.json", RECIPE}
    assert n_read.pop(complete / RECIPE) < 20  # once for every run
    assert max(n_read.values()) < 10


def test_gc_frees_unneeded_artifacts(
    complete: Path,
) -> None:
    text = (complete / RECIPE).read_text(encoding="utf-8")
    (complete / "other.toml").write_text(text, encoding="utf-8", newline="\n")
    before = folders(complete)
    other = run_variant(complete, "other.toml")
    assert freed(complete) == []
    (complete / "other.toml").write_text(
        text.replace("n_merges = 20", "n_merges = 9"), encoding="utf-8"
    )
    ended = nmtkit(complete, "gc")
    assert "--yes" in sentence(ended)
    assert "./other.toml" in ended.out
    assert len(folders(complete)) == len(before) + 3
    assert freed(complete, str(other.need("average").path)) == ["translate", "score"]
    ended = done(nmtkit(complete, "gc", "--yes"))
    assert ended.out.split("\n")[-2].startswith("deleted ")
    assert folders(complete) == before
    done(nmtkit(complete, "verify", RECIPE))
    assert done(nmtkit(complete, "gc")).out.startswith("nothing to delete")


def test_gc_after_recipe_changed(complete: Path) -> None:
    text = (complete / RECIPE).read_text(encoding="utf-8")
    change_beam_size = text.replace("beam_size = 3", "beam_size = 1")
    (complete / RECIPE).write_text(change_beam_size, encoding="utf-8", newline="\n")
    assert freed(complete) == ["average", "translate", "score"]


def test_gc_keeps_unknown_recipe(complete: Path) -> None:
    (complete / RECIPE).unlink()
    assert freed(complete) == list(STAGES)
    (artifact(complete, "average") / "measurements.json").write_text("{}", encoding="utf-8")
    assert freed(complete) == ["translate", "score"]


def test_gc_keeps_parent_of_recipe(
    complete: Path,
) -> None:
    key = f'start_from = "{artifact(complete, "average")}"'
    (complete / "runs" / "average").rename(complete / "elsewhere")
    (complete / "runs" / "average").symlink_to("../elsewhere")
    text = (complete / RECIPE).read_text(encoding="utf-8")
    tuned = text.replace("[training]", f"[training]\n{key}")
    (complete / RECIPE).unlink()
    (complete / "tuned.toml").write_text(tuned, encoding="utf-8", newline="\n")
    done(nmtkit(complete, "verify", f"runs/average/{artifact(complete, 'average').name}"))
    for keep in ("tuned.toml", f"runs/average/{artifact(complete, 'average').name}"):
        assert freed(complete, str(complete / keep)) == ["translate", "score"]


@pytest.mark.parametrize("name", ["notes.txt", "test/notes.txt"])
def test_gc_keeps_files_of_the_user(complete: Path, name: str) -> None:
    change_beam_size(complete)
    notes = artifact(complete, "translate") / name
    notes.write_bytes(b"mine")
    ended = done(nmtkit(complete, "gc", "--yes"))
    assert f"does not list {name}" in " ".join(ended.out.split())
    assert notes.read_bytes() == b"mine"
    assert {name.split("/")[0] for name in folders(complete)} == {*STAGES} - {"score"}


def test_gc_after_recipe_moved(complete: Path, tmp_path: Path) -> None:
    """No recipe under the current folder needs its artifacts; those of other folders are kept."""
    run_variant(complete)
    elsewhere = tmp_path.parent / f"{tmp_path.name}-elsewhere"
    elsewhere.mkdir()
    (complete / RECIPE).rename(elsewhere / RECIPE)
    assert {*freed(complete)} == {*STAGES}
    (elsewhere / "empty").mkdir()
    reasons = kept_reasons(complete, elsewhere / "empty")
    assert reasons == {f"its recipe {complete / RECIPE} is gone"}
    (elsewhere / RECIPE).rename(complete / "renamed.toml")
    assert freed(complete) == ["average", "translate", "score"]  # of the variant


def test_gc_after_move_and_rename(complete: Path) -> None:
    (complete / "pyproject.toml").write_text("[tool]\n", encoding="utf-8")
    (complete / RECIPE).rename(complete / "renamed.toml")
    assert freed(complete) == []
    moved = complete.rename(complete.with_name("moved"))
    assert freed(moved) == []
    assert done(nmtkit(moved, "gc")).out.startswith("nothing to delete")  # a run there finds all
    moved.rename(complete)


def test_gc_keeps_unreadable_recipe(complete: Path) -> None:
    text = (complete / RECIPE).read_text(encoding="utf-8")
    source = complete / "train.de"
    (complete / RECIPE).write_text("name = ", encoding="utf-8")
    assert freed(complete) == []
    (complete / RECIPE).write_text(text, encoding="utf-8")
    source.unlink()
    source.symlink_to("/proc/self/mem")  # an I/O error
    assert freed(complete) == []


@pytest.mark.parametrize(
    "text",
    [
        "name = ",
        f"[{'.'.join(['a'] * 3_000)}]\n",
        f"a = {'[' * 3_000}{']' * 3_000}\n",
        "[corpus]\ntrain = 1\n",
        "\x00\x01",
    ],
)
def test_gc_next_to_unreadable_recipe(complete: Path, text: str) -> None:
    change_beam_size(complete)
    assert freed(complete) == ["average", "translate", "score"]
    (complete / "recipes").mkdir()
    (complete / "recipes" / "damaged.toml").write_text(text, encoding="utf-8")
    (complete / "pyproject.toml").write_text("[tool]\n", encoding="utf-8")
    ended = done(nmtkit(complete, "gc", "--yes"))
    assert "nothing to delete" in ended.out
    assert any("damaged.toml" in reason for reason in kept_reasons(complete))


def test_gc_from_another_folder(complete: Path) -> None:
    """Relative paths in --set start at the folder of the run, not at that of gc."""
    override = 'corpus.train=[{ src = "own/train.en", tgt = "own/train.de" }]'
    for name, n_lines in (("own", 300), ("elsewhere/own", 200)):
        (complete / name).mkdir(parents=True)
        for lang in ("en", "de"):
            lines = (complete / f"train.{lang}").read_bytes().split(b"\n")[:n_lines]
            (complete / name / f"train.{lang}").write_bytes(b"\n".join(lines) + b"\n")
    done(nmtkit(complete, "prepare", RECIPE, "--set", override, "--workers=1"))
    before = folders(complete)
    ended = done(nmtkit(complete / "elsewhere", "gc", "--yes", "--runs-dir=../runs"))
    assert folders(complete) == before, ended.out


def test_gc_with_another_variable(complete: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """gc uses the value that a variable had when an artifact was built."""
    text = (complete / RECIPE).read_text(encoding="utf-8").replace("n_merges = 20", "n_merges = 9")
    for lang in ("en", "de"):
        text = text.replace(f'"train.{lang}"', f'"$TEXTS/train.{lang}"')
        content = (complete / f"train.{lang}").read_bytes()
        for name, n_bytes in (("one", len(content)), ("two", content.index(b"\n") + 1)):
            (complete / name).mkdir(exist_ok=True)
            (complete / name / f"train.{lang}").write_bytes(content[:n_bytes])
    (complete / "variable.toml").write_text(text, encoding="utf-8", newline="\n")
    monkeypatch.setenv("TEXTS", str(complete / "one"))
    done(nmtkit(complete, "prepare", "variable.toml", "--workers=1"))
    for value in ("two", "missing", ""):
        monkeypatch.setenv("TEXTS", str(complete / value) if value else "")
        assert freed(complete) == []
    monkeypatch.delenv("TEXTS")
    assert freed(complete) == []
    assert "TEXTS" not in os.environ
    shutil.rmtree(complete / "one")
    assert freed(complete) == []
    assert any("cannot be read" in reason for reason in kept_reasons(complete))


def test_gc_of_one_run(complete: Path) -> None:
    run_variant(complete)
    before = folders(complete)
    variant = f"{RECIPE} --set {VARIANT}"
    ended = nmtkit(complete, "gc", "--run", variant)
    assert "--yes" in sentence(ended)
    assert folders(complete) == before
    ended = done(nmtkit(complete, "gc", "--run", variant, "--yes"))
    assert ended.out.split("\n")[-2].startswith("deleted ")
    # The corpus and the training are those of the recipe itself.
    assert {name.split("/")[0] for name in before - folders(complete)} == set(STAGES) - {
        "prepare",
        "train",
    }
    done(nmtkit(complete, "verify", RECIPE))

    run_variant(complete)
    kept = done(nmtkit(complete, "gc", "--run", f"./{RECIPE}", "--yes")).out
    assert "another run" in kept
    assert {name.split("/")[0] for name in before - folders(complete)} == {
        "average",
        "translate",
        "score",
    }
    done(nmtkit(complete, "verify", RECIPE, f"--set={VARIANT}"))
    done(nmtkit(complete, "gc", "--run", variant, "--yes"))
    assert {name.split("/")[0] for name in folders(complete)} == {"prepare", "train"}


def test_gc_of_unknown_run(complete: Path) -> None:
    before = folders(complete)
    assert "'nope'" in sentence(nmtkit(complete, "gc", "--run", "nope", "--yes"))
    assert "--set" in sentence(nmtkit(complete, "gc", "--run", f"{RECIPE} --set {VARIANT}"))
    assert folders(complete) == before


def test_missing_artifact_lists_others(complete: Path) -> None:
    other = nmtkit(complete, "score", RECIPE, f"--set={VARIANT}")
    assert f"({Path('runs', 'translate')}/" in sentence(other)


def test_gc_frees_drafts_on_request(complete: Path) -> None:
    draft = complete / "runs" / "train" / f"{16 * 'a'}.partial"
    draft.mkdir()
    (draft.with_suffix(".damaged")).mkdir()
    assert freed(complete) == []
    assert freed(complete, drafts=True) == ["train", "train"]
    with Store(complete / "runs").draft("train", 16 * "a", resume=True):
        assert freed(complete, drafts=True) == ["train"]


def test_gc_frees_links_only(complete: Path, tmp_path: Path) -> None:
    text = (complete / RECIPE).read_text(encoding="utf-8")
    moved = artifact(complete, "score")
    elsewhere = Path(shutil.move(moved, tmp_path / "elsewhere"))
    moved.symlink_to(elsewhere)
    before = contents(elsewhere)
    (complete / RECIPE).write_text(text.replace("beam_size = 3", "beam_size = 1"), encoding="utf-8")
    done(nmtkit(complete, "gc", "--yes"))
    assert contents(elsewhere) == before
    assert list((complete / "runs" / "score").glob("*[!k]")) == []  # but locks
    assert done(nmtkit(complete, "gc")).out.startswith("nothing to delete")


def test_gc_and_stages_exclude_each_other(
    complete: Path,
) -> None:
    change_beam_size(complete)
    store = Store(complete / "runs")
    with store.draft("train", 16 * "a"):
        process = f"process {os.getpid()} on "
        assert f"being built by {process}" in sentence(nmtkit(complete, "gc", "--yes"))
    with store.freeing():
        with pytest.raises(UserError, match="is being freed by"), store.draft("train", "b"):
            pytest.fail("a draft was opened")
        assert "in use by another process" in sentence(nmtkit(complete, "gc", "--yes"))
    assert f"train/{artifact(complete, 'train').name}" in folders(complete)


def test_gc_after_kills(complete: Path) -> None:
    run_variant(complete)
    text = (complete / RECIPE).read_text(encoding="utf-8")
    change_beam_size = text.replace("beam_size = 3", "beam_size = 1")
    (complete / RECIPE).write_text(change_beam_size, encoding="utf-8", newline="\n")
    assert set(freed(complete)) == {"score", "translate", "average"}
    number = 1
    while attempt(command("gc", "--yes"), complete, kill_at=BeforeOperation(number)).killed:
        assert "damaged" not in [row.state for row in list_artifacts(complete / "runs")]
        number += 2  # every run resumes where the one before was killed
    assert number > 9
    assert not list(complete.glob("runs/*/*.discarded"))
    assert freed(complete) == []


@pytest.mark.parametrize(
    ("keys", "code", "sentence"),
    [
        ("\x03", EXIT_CODE, "stopped; nothing was deleted"),  # Ctrl-C
        ("\x04", 1, "nothing was deleted"),  # Ctrl-D
        ("n\n", 1, "nothing was deleted"),
    ],
)
def test_gc_without_consent_deletes_nothing(
    complete: Path, keys: str, code: int, sentence: str
) -> None:
    command = [sys.executable, "-m", "nmtkit", "gc", "--run", f"./{RECIPE}"]
    before = contents(complete)
    with on_terminal(command, complete) as (process, terminal):
        terminal.read(until="[y/N]: ")
        terminal.type(keys)
        printed = terminal.read()
    assert process.returncode == code
    lines = printed.removesuffix("\r\n").split("\r\n")
    assert lines[1:] == [f"nmtkit: {sentence}"]
    assert contents(complete) == before
