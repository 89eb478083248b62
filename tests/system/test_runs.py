"""nmtkit runs, verify and gc: what there is, whether it is what was published, what can go."""

import json
import os
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from packed import zipped

from nmtkit import files
from nmtkit.cli import gc
from nmtkit.cli.runs import made
from nmtkit.errors import UserError
from nmtkit.files import sealed, sha256_of, write_json
from nmtkit.machine import Machine
from nmtkit.provenance import provenance
from nmtkit.recipe_file import load_recipe
from nmtkit.sources import parallel
from nmtkit.stages import average, score, translate
from nmtkit.stages.chain import STAGES, Chain
from nmtkit.store import Store, differences, open_directory
from system.command import RECIPE, artifact, contents, done, flip_byte, nmtkit, sentence
from system.conftest import Finished
from system.kills import BeforeOperation, attempt, command

VARIANT = "decoding.beam_size=2"


@pytest.fixture
def complete(complete: Path) -> Path:
    """A finished run of the recipe in this very folder."""
    for path in complete.glob("runs/*/*/measurements.json"):
        content = json.loads(path.read_bytes())
        del content["sha256"]
        content["run"]["recipe"] = str(complete / RECIPE)
        write_json(path, sealed(content))
    return complete


def machine_of(folder: Path) -> Machine:
    return Machine(folder / "runs", device="cpu", workers=1)


def chain_of(folder: Path, *overrides: str, recipe: str = RECIPE) -> Chain:
    path = str(folder / recipe)
    return Chain(load_recipe(path, overrides), machine_of(folder), path, overrides)


def run_variant(folder: Path, recipe: str = RECIPE) -> Chain:
    """Run what another beam makes again."""
    chain = chain_of(folder, VARIANT, recipe=recipe)
    for stage in (average, translate, score):
        stage.run(chain)
    return chain


def changed(folder: Path) -> None:
    """Change the recipe so that what was averaged, translated and scored is not needed."""
    text = (folder / RECIPE).read_text(encoding="utf-8")
    (folder / RECIPE).write_text(text.replace("beam_size = 3", "beam_size = 1"), encoding="utf-8")


def folders(folder: Path) -> set[str]:
    return {
        f"{stage}/{path.name}" for stage in STAGES for path in Store(folder / "runs").folders(stage)
    }


def freed(folder: Path, *keep: str, drafts: bool = False) -> list[str]:
    garbage, _ = gc.find_garbage(machine_of(folder), keep, drafts=drafts)
    return [each.stage for each, _ in garbage]


# nmtkit runs


def test_runs_lists_every_artifact_with_its_run_size_and_score(finished: Finished) -> None:
    listed = json.loads(done(nmtkit(finished.folder, "runs", "--json")).out)
    assert [each["stage"] for each in listed] == list(STAGES)
    scores = json.loads((finished.artifact("score") / "scores.json").read_bytes())
    for each in listed:
        path = finished.artifact(each["stage"])
        assert (each["run"], each["state"]) == (f"./{RECIPE}", "published")
        assert each["fingerprint"] == path.name
        assert each["n_bytes"] == sum(
            file.stat().st_size for file in path.rglob("*") if file.is_file()
        )
        assert 0 <= each["age_seconds"] < 10_000
        assert each["scores"] == (scores if each["stage"] == "score" else {})
    shown = done(nmtkit(finished.folder, "runs")).out
    assert f"test {scores['test']['sacrebleu']['score']:.2f} sacreBLEU" in shown
    assert scores["test"]["sacrebleu"]["signature"] in shown


def test_drafts_damage_and_artifacts_of_older_versions_are_listed(complete: Path) -> None:
    train = artifact(complete, "train")
    train.rename(train.with_suffix(".partial"))
    (artifact(complete, "translate") / "test" / "hypotheses.txt").unlink()
    measurements = artifact(complete, "average") / "measurements.json"
    measurements.write_text('{"host": "a", "seconds": 1}', encoding="utf-8")
    found = {each.stage: each for each in made(complete / "runs")}
    assert {stage: each.state for stage, each in found.items()} == {
        "prepare": "published",
        "train": "stopped",
        "average": "published",
        "translate": "damaged",
        "score": "published",
    }
    assert found["average"].run is None
    copied = shutil.copytree(artifact(complete, "prepare"), complete / "runs/score" / train.name)
    assert {each.path: each.state for each in made(complete / "runs")}[str(copied)] == "damaged"
    shutil.rmtree(copied)
    with Store(complete / "runs").draft("train", train.name, resume=True):
        found = {each.stage: each for each in made(complete / "runs")}
        assert found["train"].state == "being made"


# nmtkit verify


def test_verify_says_yes(finished: Finished) -> None:
    before = contents(finished.folder)
    shown = done(nmtkit(finished.folder, "verify", RECIPE)).out
    assert shown.count(" yes ") == 7
    path = f"runs/score/{finished.artifact('score').name}"
    told = json.loads(done(nmtkit(finished.folder, "verify", path, "--json")).out)
    assert [each["what"] for each in told if each["what"] != "texts"] == list(STAGES)
    assert not any(each["differences"] for each in told)
    assert contents(finished.folder) == before


def test_verify_finds_a_flipped_byte_in_every_file(complete: Path) -> None:
    """Of all artifacts, in every third byte of the small ones, and of the texts."""
    n_files = 0
    for stage in STAGES:
        path = artifact(complete, stage)
        for file in sorted(each for each in path.rglob("*") if each.is_file()):
            content = file.read_bytes()
            if not content:
                continue
            n_files += 1
            for place in {0, len(content) // 3, len(content) // 2, len(content) - 1}:
                changed = bytearray(content)
                changed[place] ^= 1
                file.write_bytes(changed)
                found = list(differences(path))
                assert found, f"{file}, byte {place}"
                assert any(str(file) in each for each in found)
            file.write_bytes(content)
        assert list(differences(path)) == []
    assert n_files > 40


@pytest.mark.parametrize("name", ["train.de", "test.en"])
def test_verify_finds_a_flipped_byte_of_a_text(complete: Path, name: str) -> None:
    flip_byte(complete / name)
    path = str(artifact(complete, "score").relative_to(complete))
    ended = nmtkit(complete, "verify", path)
    assert "is not as it was published: " in sentence(ended)
    assert f"{complete / name}" in ended.out
    if name == "train.de":
        ended = nmtkit(complete, "verify", RECIPE)
        assert f"{complete / name}: not the text that was read" in ended.out


@pytest.mark.slow
def test_verify_finds_a_flipped_byte_of_a_download(shared_data: Path, tmp_path: Path) -> None:
    shutil.copytree(shared_data / "mirror", tmp_path / "mirror", copy_function=shutil.copyfile)
    run = ("multi30k-en-de", "--mirror", "mirror")
    done(nmtkit(tmp_path, "prepare", *run))
    done(nmtkit(tmp_path, "verify", *run))
    (altered,) = tmp_path.rglob("train.de.gz")
    flip_byte(altered)
    ended = nmtkit(tmp_path, "verify", *run)
    assert "1 difference" in sentence(ended)
    assert str(altered.relative_to(tmp_path)) in ended.out


def test_verify_finds_other_bytes_of_a_corpus_without_a_published_hash(complete: Path) -> None:
    path = complete / "mirror/object.pouta.csc.fi/OPUS-Tiny/v1/moses/de-en.txt.zip"
    path.parent.mkdir(parents=True)
    texts = {
        f"Tiny.de-en.{lang}": (complete / f"train.{lang}").read_bytes() for lang in ("de", "en")
    }
    path.write_bytes(zipped(texts))
    run = (RECIPE, "--set", 'corpus.train=["opus:Tiny/v1"]', "--mirror", "mirror")
    prepared = open_directory(complete / done(nmtkit(complete, "prepare", *run)).out.strip())
    url, sha256 = f"https://{path.relative_to(complete / 'mirror')}", sha256_of(path)
    assert prepared.manifest.downloads == {url: f"sha256 {sha256}"}
    path.write_bytes(zipped({**texts, "README": b""}))
    ended = nmtkit(complete, "verify", *run)
    assert f"instead of {sha256}" in ended.out
    (record,) = complete.glob("runs/downloads/*/*.sha256")
    record.unlink()
    ended = nmtkit(complete, "verify", *run)
    assert f"was read with sha256 {sha256}" in ended.out


def test_verify_misses_what_an_artifact_was_made_from(complete: Path) -> None:
    path = artifact(complete, "average")
    shutil.rmtree(artifact(complete, "train"))
    (path / "stray").write_bytes(b"")
    ended = nmtkit(complete, "verify", str(path))
    assert "2 differences" in sentence(ended)
    assert "manifest.json cannot be read" in ended.out
    assert f"{path / 'stray'} was not published with it" in ended.out


# nmtkit gc


def test_variants_and_the_scores_of_other_seeds_are_needed(
    complete: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_variant(complete)
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    score.run(chain_of(complete))
    assert len(Store(complete / "runs").folders("score")) == 3
    assert freed(complete) == []
    monkeypatch.delenv("SACREBLEU_SEED")
    assert freed(complete) == []


def test_work_does_not_grow_with_the_square_of_what_there_is(
    complete: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(10):
        monkeypatch.setenv("SACREBLEU_SEED", str(seed))
        score.run(chain_of(complete))
    n_read: Counter[Path] = Counter()

    def counted(path: Path, *n_bytes: int) -> Any:
        n_read[path] += 1
        return read(path, *n_bytes) if n_bytes else sha256_of(path)

    read = files.read_bytes
    monkeypatch.setattr(files, "read_bytes", counted)
    monkeypatch.setattr(parallel, "sha256_of", counted)
    assert freed(complete) == []
    assert {path.name for path in n_read} >= {"manifest.json", "measurements.json", RECIPE}
    assert max(n_read.values()) < 10


def test_what_no_recipe_needs_is_shown_and_freed_and_the_rest_still_verifies(
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
    assert "add --yes" in sentence(ended)
    assert "./other.toml" in ended.out
    assert len(folders(complete)) == len(before) + 3
    assert freed(complete, str(other.need("average").path)) == ["translate", "score"]
    ended = done(nmtkit(complete, "gc", "--yes"))
    assert ended.out.split("\n")[-2].startswith("freed ")
    assert folders(complete) == before
    done(nmtkit(complete, "verify", RECIPE))
    assert done(nmtkit(complete, "gc")).out == "nothing to free\n"


def test_changed_recipe_frees_what_it_was_before_and_keeps_what_it_shares(complete: Path) -> None:
    text = (complete / RECIPE).read_text(encoding="utf-8")
    changed = text.replace("beam_size = 3", "beam_size = 1")
    (complete / RECIPE).write_text(changed, encoding="utf-8", newline="\n")
    assert freed(complete) == ["average", "translate", "score"]


def test_what_does_not_tell_its_recipe_is_kept_with_all_it_was_made_from(complete: Path) -> None:
    (complete / RECIPE).unlink()
    assert freed(complete) == list(STAGES)
    (artifact(complete, "average") / "measurements.json").write_text("{}", encoding="utf-8")
    assert freed(complete) == ["translate", "score"]


def test_bundle_that_a_recipe_is_to_start_from_is_kept_with_all_it_was_made_from(
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
def test_what_nmtkit_did_not_write_is_never_deleted(complete: Path, name: str) -> None:
    changed(complete)
    notes = artifact(complete, "translate") / name
    notes.write_bytes(b"mine")
    ended = done(nmtkit(complete, "gc", "--yes"))
    assert f"did not write {name}" in " ".join(ended.out.split())
    assert notes.read_bytes() == b"mine"
    assert {each.split("/")[0] for each in folders(complete)} == {*STAGES} - {"score"}


@pytest.mark.parametrize(
    ("stage", "name"),
    [
        ("train", "checkpoints/step-00000100/notes.txt"),
        ("train", "temporary/notes.txt"),
        ("train", "checkpoints/step-00000090/model.safetensors"),  # a link
        ("translate", "notes.json"),
        ("prepare", "a/b/c/metrics.jsonl"),
    ],
)
def test_draft_with_what_nmtkit_did_not_write_stays(complete: Path, stage: str, name: str) -> None:
    made = artifact(complete, stage)
    draft = made.rename(made.with_suffix(".partial"))
    assert stage in freed(complete, drafts=True)
    (draft / name).parent.mkdir(parents=True, exist_ok=True)
    if name.endswith(".safetensors"):
        (draft / name).symlink_to(complete / RECIPE)
    else:
        (draft / name).write_bytes(b"mine")
    assert stage not in freed(complete, drafts=True)
    done(nmtkit(complete, "gc", "--drafts", "--yes"))
    assert os.path.lexists(draft / name)


def test_what_a_draft_had_of_somebody_elses_stays_when_it_is_published(complete: Path) -> None:
    (complete / "runs" / "average").rename(complete / "before")
    chain = chain_of(complete)
    with Store(complete / "runs").draft("average", 16 * "a") as draft:
        (draft / "notes.txt").write_bytes(b"mine")
        measured = {"run": {**provenance("tiny", RECIPE, [VARIANT]).model_dump()}}
        chain.store.publish("average", 16 * "a", depends_on={}, measurements=measured)
    assert "average" not in freed(complete)


def test_recipe_that_is_gone_or_was_moved_keeps_all_that_it_would_find(
    complete: Path, tmp_path: Path
) -> None:
    run_variant(complete)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    before = folders(complete)
    (complete / RECIPE).rename(elsewhere / RECIPE)
    ended = done(nmtkit(complete, "gc", "--yes"))
    assert "was it moved?" in " ".join(re.sub("[^ -~]", " ", ended.out).split())
    assert folders(complete) == before
    assert {*freed(complete)} == {*STAGES}  # a user is asked
    (elsewhere / RECIPE).rename(complete / "renamed.toml")
    assert freed(complete) == []  # with the overrides of the variant


def test_moved_or_renamed_recipe_keeps_its_artifacts(complete: Path) -> None:
    (complete / "pyproject.toml").write_text("[tool]\n", encoding="utf-8")
    (complete / RECIPE).rename(complete / "renamed.toml")
    assert freed(complete) == []
    moved = complete.rename(complete.with_name("moved"))
    assert freed(moved) == []
    assert done(nmtkit(moved, "gc")).out == "nothing to free\n"  # a run there finds all
    elsewhere = done(nmtkit(moved.parent, "gc", "--runs-dir", str(moved / "runs")))
    assert "was it moved?" in elsewhere.out
    moved.rename(complete)


def test_recipe_that_cannot_be_read_keeps_its_artifacts(complete: Path) -> None:
    text, source = (complete / RECIPE).read_text(encoding="utf-8"), complete / "train.de"
    (complete / RECIPE).write_text("name = ", encoding="utf-8")
    assert freed(complete) == []
    (complete / RECIPE).write_text(text, encoding="utf-8")
    source.unlink()
    source.symlink_to("/proc/self/mem")  # an I/O error
    assert freed(complete) == []


def test_unreadable_neighbours_are_skipped(
    complete: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, text in (("deep", f"[{'.'.join('a' * 3_000)}]\n"), ("broken", "name = \n")):
        (complete / f"{name}.toml").write_text(text, encoding="utf-8", newline="\n")
    (complete / "pyproject.toml").write_text("[tool]\n", encoding="utf-8")  # no recipe
    (complete / RECIPE).unlink()
    assert {*freed(complete)} == {*STAGES}
    lines = capfd.readouterr().err.removesuffix("\n").split("\n")
    for name in ("deep.toml", "broken.toml"):
        assert len([line for line in lines if line.startswith("warning: ") and name in line]) == 1
    assert "pyproject" not in "".join(lines)


def test_drafts_are_kept_unless_asked_for(complete: Path) -> None:
    draft = complete / "runs" / "train" / f"{16 * 'a'}.partial"
    draft.mkdir()
    (draft.with_suffix(".damaged")).mkdir()
    assert freed(complete) == []
    assert freed(complete, drafts=True) == ["train", "train"]
    with Store(complete / "runs").draft("train", 16 * "a", resume=True):
        assert freed(complete, drafts=True) == ["train"]


def test_only_the_link_to_a_folder_elsewhere_is_freed(complete: Path, tmp_path: Path) -> None:
    text = (complete / RECIPE).read_text(encoding="utf-8")
    moved = artifact(complete, "score")
    elsewhere = Path(shutil.move(moved, tmp_path / "elsewhere"))
    moved.symlink_to(elsewhere)
    before = contents(elsewhere)
    (complete / RECIPE).write_text(text.replace("beam_size = 3", "beam_size = 1"), encoding="utf-8")
    done(nmtkit(complete, "gc", "--yes"))
    assert contents(elsewhere) == before
    assert list((complete / "runs" / "score").glob("*[!k]")) == []  # but locks
    assert done(nmtkit(complete, "gc")).out == "nothing to free\n"


def test_nothing_is_freed_while_a_stage_works_nor_made_while_something_is_freed(
    complete: Path,
) -> None:
    changed(complete)
    store = Store(complete / "runs")
    with store.draft("train", 16 * "a"):
        process = f"process {os.getpid()} on "
        assert f"being made by {process}" in sentence(nmtkit(complete, "gc", "--yes"))
    with store.freeing():
        with pytest.raises(UserError, match="is being freed by"), store.draft("train", "b"):
            pytest.fail("made")
        assert "is being used by another process" in sentence(nmtkit(complete, "gc", "--yes"))
    assert f"train/{artifact(complete, 'train').name}" in folders(complete)


def test_kill_in_the_middle_leaves_nothing_half_believed(complete: Path) -> None:
    run_variant(complete)
    text = (complete / RECIPE).read_text(encoding="utf-8")
    changed = text.replace("beam_size = 3", "beam_size = 1")
    (complete / RECIPE).write_text(changed, encoding="utf-8", newline="\n")
    assert set(freed(complete)) == {"score", "translate", "average"}
    number = 1
    while attempt(command("gc", "--yes"), complete, death=BeforeOperation(number)).killed:
        assert "damaged" not in [each.state for each in made(complete / "runs")]
        number += 2  # each goes on where the one before was killed
    assert number > 9
    assert not list(complete.glob("runs/*/*.discarded"))
    assert freed(complete) == []
