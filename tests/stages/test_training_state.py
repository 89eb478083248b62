"""A larger max_steps: training continues, and ends like one that was never shorter."""

import dataclasses
import json
import math
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from chains import Killed, tiny_pipeline, train_until_killed
from system.command import contents, flip_byte

from nmtkit.stages import average, prepare, train
from nmtkit.stages.pipeline import Pipeline
from nmtkit.stages.training_state import NOTE, read_note, write_note
from nmtkit.store import code_version
from nmtkit.store.artifacts import Artifact
from nmtkit.store.code_version import versions
from nmtkit.store.manifests import TEMPORARY
from nmtkit.store.records import DamagedError
from nmtkit.training import checkpoint
from nmtkit.training.checkpoint import share_checkpoint
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError

CONTINUES = "train: continuing "


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    pipeline = tiny_pipeline(tmp_path_factory.mktemp("prepared"), dropout=0.1)
    prepare.run(pipeline)
    return pipeline


def load_pipeline(prepared: Pipeline, runs: Path, max_steps: int, **training: Any) -> Pipeline:
    """A pipeline with its own folder of artifacts, in which the prepared corpus exists."""
    if not runs.exists():
        runs.mkdir()
        (runs / "prepare").symlink_to(prepared.settings.runs_dir / "prepare")
    changes = {
        "max_steps": max_steps,
        "src_tokens_per_update": 9,
        "tgt_tokens_per_update": 9,
        "checkpoint_every_steps": 2,
        "keep_checkpoints": 3,
        "dev_every_steps": 0,
        "warmup_steps": 4,
        **training,
    }
    recipe = prepared.recipe
    recipe = recipe.model_copy(
        update={
            "training": recipe.training.model_copy(update=changes),
            "averaging": recipe.averaging.model_copy(update={"n_checkpoints": 3}),
        }
    )
    return Pipeline(recipe, dataclasses.replace(prepared.settings, runs_dir=runs), "test")


def metrics(artifact: Artifact) -> list[dict[str, Any]]:
    lines = (artifact.path / "metrics.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
    return [{**json.loads(line), "seconds": 0, "dev_seconds": 0} for line in lines]


def assert_same(ours: Pipeline, theirs: Pipeline) -> None:
    """Assert that the artifacts of train and average are equal."""
    for stage in (train, average):
        ours_built = stage.run(ours)
        theirs_built = stage.run(theirs)
        assert contents(ours_built.path) == contents(theirs_built.path)
    assert metrics(ours.need("train")) == metrics(theirs.need("train"))


@pytest.mark.parametrize(
    ("steps", "training"),
    [
        ((4, 9), {}),
        ((5, 6), {"checkpoint_every_steps": 4, "dev_every_steps": 2}),  # between two checkpoints
        ((1, 3, 4, 7), {"dev_every_steps": 3}),
        ((10, 20), {"dev_every_steps": 2, "patience": 1, "learning_rate_scale": 40.0}),
        ((5, 7, 12), {"dev_every_steps": 2, "patience_metric": "sacrebleu"}),
    ],
)
def test_continued_training_is_the_same(
    prepared: Pipeline,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    steps: tuple[int, ...],
    training: dict[str, Any],
) -> None:
    before = None
    for max_steps in steps:
        pipeline = load_pipeline(prepared, tmp_path / "continued", max_steps, **training)
        trained = train.run(pipeline)
        printed = capsys.readouterr().err
        if before is None:
            assert CONTINUES not in printed
        else:
            assert f"{CONTINUES}{before[0]}" in printed
            assert "train: resuming after step " in printed
            assert contents(before[0]) == before[1]
        before = trained.path, contents(trained.path)
    assert_same(
        pipeline, load_pipeline(prepared, tmp_path / "uninterrupted", steps[-1], **training)
    )
    if "patience" in training:
        assert len(metrics(pipeline.need("train"))) < steps[-1]


def test_other_training_is_not_continued(
    prepared: Pipeline, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train.run(load_pipeline(prepared, tmp_path / "runs", 4))
    train.run(load_pipeline(prepared, tmp_path / "runs", 6, seed=2))
    assert CONTINUES not in capsys.readouterr().err


@pytest.fixture
def stopped(prepared: Pipeline, tmp_path: Path, request: pytest.FixtureRequest) -> Pipeline:
    """A training of 8 steps, killed in the sixth; with the parameter 0.0, it saves every step."""
    pipeline = load_pipeline(prepared, tmp_path / "runs", 8)
    train_until_killed(pipeline, 6, save_every_s=getattr(request, "param", math.inf))
    return pipeline


def draft_of(pipeline: Pipeline) -> Path:
    return pipeline.store.draft_place("train", pipeline.fingerprint("train"))


@pytest.mark.parametrize(("stopped", "last"), [(math.inf, 4), (0.0, 5)], indirect=["stopped"])
def test_stopped_training_is_continued(
    stopped: Pipeline,
    last: int,
    prepared: Pipeline,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = contents(draft_of(stopped))
    longer = load_pipeline(prepared, tmp_path / "runs", 10)
    train.run(longer)
    printed = capsys.readouterr().err
    assert f"{CONTINUES}{draft_of(stopped)}" in printed
    assert f"train: resuming after step {last} of 10\n" in printed
    assert contents(draft_of(stopped)) == before
    assert_same(longer, load_pipeline(prepared, tmp_path / "uninterrupted", 10))
    assert_same(stopped, load_pipeline(prepared, tmp_path / "uninterrupted", 8))


def in_bfloat16(pipeline: Pipeline) -> Pipeline:
    return Pipeline(
        pipeline.recipe, dataclasses.replace(pipeline.settings, dtype="bfloat16"), "test"
    )


def test_every_precision_is_stated(stopped: Pipeline) -> None:
    first = train.run(in_bfloat16(stopped))  # resumes after step 4
    assert first.manifest.made_by["precision"] == "float32+bfloat16"


def test_running_training_is_not_continued(
    stopped: Pipeline, prepared: Pipeline, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with stopped.store.lock("train", stopped.fingerprint("train")):
        train.run(load_pipeline(prepared, tmp_path / "runs", 10))
    assert CONTINUES not in capsys.readouterr().err


def test_kill_while_sharing_checkpoints(
    prepared: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train.run(load_pipeline(prepared, tmp_path / "runs", 7))
    longer = load_pipeline(prepared, tmp_path / "runs", 9)
    share = share_checkpoint
    shared: list[Path] = []

    def share_one(path: Path, directory: Path) -> None:
        if shared:
            raise Killed
        shared.append(path)
        share(path, directory)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "share_checkpoint", share_one)
        with pytest.raises(Killed):
            train.run(longer)
    assert_same(longer, load_pipeline(prepared, tmp_path / "uninterrupted", 9))


def test_damaged_checkpoint_is_not_used(prepared: Pipeline, tmp_path: Path) -> None:
    """The last checkpoint, of a step that is not scheduled otherwise, gets a new manifest."""
    path = train.run(load_pipeline(prepared, tmp_path / "runs", 5)).path
    flip_byte(path / "checkpoints/step-00000005/model.safetensors")
    longer = load_pipeline(prepared, tmp_path / "runs", 9)
    assert_same(longer, load_pipeline(prepared, tmp_path / "uninterrupted", 9))


@pytest.mark.parametrize(
    "name",
    ["checkpoints/step-00000002/model.safetensors", "checkpoints/step-00000002/manifest.json"],
)
def test_damaged_old_checkpoint_is_refused(prepared: Pipeline, tmp_path: Path, name: str) -> None:
    pipeline = load_pipeline(prepared, tmp_path / "runs", 7, keep_checkpoints=4)
    train_until_killed(pipeline, 7, save_every_s=math.inf)
    flip_byte(draft_of(pipeline) / name)
    with pytest.raises(DamagedError, match=name) as refused:
        train.run(pipeline)
    shutil.rmtree((draft_of(pipeline) / name).parent)  # as the message suggests
    assert f"delete {(draft_of(pipeline) / name).parent} " in str(refused.value)
    train.run(pipeline)


@contextmanager
def other_code() -> Iterator[None]:
    """Run another commit of nmtkit, with other source files."""
    other = {**versions(), "commit": "0" * 40, "source": "0" * 16}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(code_version, "source_hash", lambda: other["source"])
        for name, module in list(sys.modules.items()):
            if name.startswith("nmtkit.") and vars(module).get("versions") is versions:
                patch.setattr(module, "versions", lambda: other)
        yield


@pytest.mark.parametrize("is_quiet", [False, True])
def test_commits_of_training_recorded(
    is_quiet: bool,
    prepared: Pipeline,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress.console.quiet = is_quiet
    runs = tmp_path / "runs"
    with other_code():
        train.run(load_pipeline(prepared, runs, 4))
    present = versions()["commit"]
    both = f"{'0' * 40}+{present}"
    capsys.readouterr()
    trained = train.run(load_pipeline(prepared, runs, 6))
    assert trained.manifest.made_by["commit"] == both
    printed = capsys.readouterr().err
    assert "warning: steps before 5 " in printed
    assert printed.count("\n") == 1 or not is_quiet
    assert train.run(load_pipeline(prepared, runs, 8)).manifest.made_by["commit"] == both
    uninterrupted = train.run(load_pipeline(prepared, tmp_path / "uninterrupted", 8))
    assert uninterrupted.manifest.made_by["commit"] == present


def test_altered_or_missing_note(
    stopped: Pipeline,
) -> None:
    folder = draft_of(stopped) / TEMPORARY
    content = (folder / NOTE).read_bytes()
    for place in range(0, len(content), 5):
        (folder / NOTE).write_bytes(content)
        flip_byte(folder / NOTE, place)
        with pytest.raises(DamagedError):
            read_note(folder.parent)
    with pytest.raises(DamagedError):
        train.run(stopped)
    shutil.rmtree(folder)
    made_by = train.run(stopped).manifest.made_by
    assert made_by["precision"] == "unknown+float32"
    assert made_by["commit"] == f"unknown+{versions()['commit']}"


@pytest.mark.usefixtures("stopped")
def test_forced_training_starts_over(
    prepared: Pipeline, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither those of a shorter training, nor those in the draft of another commit."""
    for max_steps in (8, 10):
        pipeline = load_pipeline(prepared, tmp_path / "runs", max_steps)
        forced = Pipeline(pipeline.recipe, pipeline.settings, "test", force=["train"])
        with other_code():
            trained = train.run(forced)
            assert trained.manifest.made_by["commit"] == "0" * 40
        printed = capsys.readouterr().err
        assert CONTINUES not in printed
        assert "resuming" not in printed


def test_forced_training_resumes_after_kill(
    stopped: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    """A scheduler repeats the same command, with --force, after it was killed."""
    train.run(Pipeline(stopped.recipe, stopped.settings, "test", force=["train"]))
    assert "train: resuming after step 4 of 8\n" in capsys.readouterr().err


def test_draft_of_another_corpus_is_refused(stopped: Pipeline) -> None:
    note = read_note(draft_of(stopped))
    assert note is not None
    assert note.inputs == stopped.inputs("train") != {}
    write_note(draft_of(stopped), note.model_copy(update={"inputs": {"prepare": "0" * 64}}))
    with pytest.raises(UserError, match="--force"):
        train.run(stopped)
    trained = train.run(Pipeline(stopped.recipe, stopped.settings, "test", force=["train"]))
    assert trained.manifest.inputs == stopped.inputs("train")


def test_measurements_describe_all_parts(prepared: Pipeline, tmp_path: Path) -> None:
    """Deterministic only if all parts are. A longer training has the parts of a shorter one."""
    runs = tmp_path / "runs"
    first = load_pipeline(prepared, runs, 4)
    train.run(with_settings(first, deterministic=True, dtype="float32"))
    second = with_settings(load_pipeline(prepared, runs, 6), dtype="bfloat16")
    measured = measurements(train.run(second))
    assert (measured["dtype"], measured["deterministic"]) == ("float32+bfloat16", False)
    parts = [(part["first_step"], part["dtype"]) for part in measured["parts"]]
    assert parts == [(1, "float32"), (5, "bfloat16")]
    assert [part["deterministic"] for part in measured["parts"]] == [True, False]
    third = with_settings(load_pipeline(prepared, runs, 8), dtype="bfloat16")
    assert measurements(train.run(third))["parts"] == measured["parts"]  # as the part before
    alone = with_settings(load_pipeline(prepared, tmp_path / "alone", 6), deterministic=True)
    measured = measurements(train.run(alone))
    assert measured["deterministic"]
    assert len(measured["parts"]) == 1
    assert measured["processes"] == 1


def with_settings(pipeline: Pipeline, **changes: Any) -> Pipeline:
    settings = dataclasses.replace(pipeline.settings, **changes)
    return Pipeline(pipeline.recipe, settings, "test")


def measurements(trained: Artifact) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((trained.path / "measurements.json").read_bytes())
    return content
