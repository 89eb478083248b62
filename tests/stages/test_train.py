"""The stage `train`: checks before training, settings, manifest and page."""

import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
import torch
from chains import tiny_pipeline
from sacrebleu.tokenizers import tokenizer_ja_mecab

from nmtkit.config.loading import load_recipe
from nmtkit.config.settings import Accelerate, Precision, Settings
from nmtkit.model.weights import Description, count_parameters
from nmtkit.stages import prepare, train, training_setup
from nmtkit.stages.pipeline import Pipeline
from nmtkit.stages.run_all import run_all
from nmtkit.stages.train import _prepare_draft, _train
from nmtkit.stages.train_progress import TrainingReporter
from nmtkit.training import acceleration
from nmtkit.training.acceleration import Level
from nmtkit.training.checkpoint import checkpoints_bytes
from nmtkit.training.distributed import Group
from nmtkit.utils import progress
from nmtkit.utils.errors import Stopped, UserError
from nmtkit.utils.language import Language


def test_disk_space_for_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = load_recipe("demo")
    described = Description(config=recipe.model, n_rows=80)
    n_parameters = count_parameters(recipe.model, 80).total
    n_bytes = checkpoints_bytes(recipe.training, n_parameters)
    usage = shutil.disk_usage(tmp_path)._replace(free=n_bytes - 1)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    with pytest.raises(UserError, match=rf"{n_bytes:,} bytes in {tmp_path}"):
        _prepare_draft(tmp_path, recipe.training, described)
    assert list(tmp_path.iterdir()) == []
    checkpoint = tmp_path / "checkpoints" / "step-00000010"
    checkpoint.mkdir(parents=True)
    (checkpoint / "model.safetensors").write_bytes(b"1")
    _prepare_draft(tmp_path, recipe.training, described)
    assert (tmp_path / "model.json").is_file()


def test_missing_bleu_tokenizer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer_ja_mecab, "MeCab", None)
    pipeline = tiny_pipeline(tmp_path)
    corpus = pipeline.recipe.corpus.model_copy(update={"tgt_lang": Language.of("ja")})
    recipe = pipeline.recipe.model_copy(update={"corpus": corpus})
    with pytest.raises(UserError, match=r"sacrebleu\[ja\]"):
        train.run(Pipeline(recipe, pipeline.settings, "test"))


def test_accelerate_limits_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceleration, "has_compiler", lambda: True)
    monkeypatch.setattr(training_setup, "check_has_code", lambda _: None)
    monkeypatch.setattr(training_setup, "max_fitting_tokens", lambda *_: 5_000)
    recipe = load_recipe("demo")
    group = Group(0, 1, torch.device("cuda"))
    levels = []
    for accelerate in get_args(Accelerate):
        settings = Settings(tmp_path, device="cpu", accelerate=accelerate)
        setup = training_setup.choose_setup(Pipeline(recipe, settings, "demo"), group)
        assert setup.use_bins
        levels.append(setup.acceleration.level)
    assert levels == [Level.CAPTURED, Level.COMPILED, Level.EAGER]


def test_cpu_precision_depends_on_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    group = Group(0, 1, torch.device("cpu"))
    precisions = []
    for overrides in ([], ["model.d_model=256"], ["model.d_model=512"]):
        pipeline = Pipeline(load_recipe("demo", overrides), Settings(tmp_path), "demo", overrides)
        precisions.append(training_setup.choose_setup(pipeline, group).acceleration.precision)
    assert precisions == ["float32", "bfloat16", "bfloat16"]


def test_gpu_without_code_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the process that uses the GPU, here a worker."""
    for name, value in {
        "is_bf16_supported": False,
        "get_arch_list": ["sm_75", "sm_80"],
        "get_device_capability": (7, 0),
        "get_device_name": "Some GPU",
    }.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, value=value, **__: value)
    pipeline = Pipeline(load_recipe("demo"), Settings(tmp_path), "demo")
    gpu = torch.device("cuda", 0)
    with pytest.raises(UserError, match=r"not built for Some GPU, .*/whl/cu126`"):
        _train(pipeline, tmp_path, Group(0, 1, gpu), [])


def messages_of(stage: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The messages and warnings of a stage."""
    lines = capsys.readouterr().err.splitlines()
    return [line for line in lines if line.startswith((f"{stage}: ", f"warning: {stage}: "))]


def test_pairs_left_out_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline = tiny_pipeline(tmp_path, max_positions=5)
    prepare.run(pipeline)
    train.run(pipeline)
    (warning,) = [line for line in messages_of("train", capsys) if line.startswith("warning: ")]
    assert "2 of 6 pairs" in warning
    assert "max_positions = 5" in warning
    metrics = (pipeline.need("train").path / "metrics.jsonl").read_text(encoding="utf-8")
    [line] = metrics.split("\n")[:-1]
    assert f'"src_tokens": {2 + 3 + 4 + 5}' in line

    train.run(tiny_pipeline(tmp_path, max_positions=7))
    assert "warning: " not in " ".join(messages_of("train", capsys))


def test_manifest_records_precision(tmp_path: Path) -> None:
    found = []
    for dtype in get_args(Precision):
        pipeline = tiny_pipeline(tmp_path, dtype, runs=dtype)
        prepare.run(pipeline)
        found.append(train.run(pipeline))
    auto, float32, *halves = (artifact.manifest for artifact in found)
    assert auto.made_by["precision"] == "float32"  # a narrow model on a CPU
    for manifest, precision in zip(halves, ("bfloat16", "float16"), strict=True):
        assert manifest.made_by["precision"] == precision
        assert manifest.fingerprint == auto.fingerprint
        assert manifest.files != auto.files
    manifests = [(artifact.path / "manifest.json").read_bytes() for artifact in found]
    assert manifests[0] == manifests[1]
    assert float32 == auto


def test_processes_get_same_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = tiny_pipeline(tmp_path)
    prepare.run(pipeline)
    commands: list[list[str]] = []

    def launch(n_processes: int, command: list[str]) -> None:
        assert n_processes == 2
        commands.append(command)

    monkeypatch.setattr(training_setup, "launch", launch)
    settings = replace(pipeline.settings, processes=2, workers=None)
    several = Pipeline(pipeline.recipe, settings, "./tiny.toml", ["training.seed=2"])
    for is_quiet in (False, True):
        progress.console.quiet = is_quiet
        with pytest.raises(UserError, match="no artifact of `train`"):
            train.run(several)
    options = ["train", f"--runs-dir={tmp_path / 'runs'}", "--device=cpu", "--processes=2"]
    expected = [*options, "--set=training.seed=2", "--", "./tiny.toml"]
    assert commands == [expected, ["--quiet", *expected]]


def test_signal_in_last_step_stops_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training is over, but `run` must not start the next stage."""
    pipeline = tiny_pipeline(tmp_path)
    monkeypatch.setattr(TrainingReporter, "report", lambda *_: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(Stopped, match="SIGTERM; training is finished") as stopped:
        run_all(pipeline)
    assert stopped.value.exit_code == 128 + signal.SIGTERM
    assert pipeline.find("train") is not None
    assert pipeline.find("average") is None


def test_curves_are_next_to_artifact(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline = tiny_pipeline(tmp_path)
    prepare.run(pipeline)
    artifact = train.run(pipeline).path
    page = artifact.with_suffix(".html")
    assert f"curves are in {page}" in capsys.readouterr().err
    text = page.read_text(encoding="utf-8")
    assert "Finished, step 1 of 1." in text
    assert "reedy translations by the model of step 1<" in text
    assert not any(path.suffix == ".html" for path in artifact.rglob("*"))
