"""Converted models are cached, and translation works without a usable cache or CTranslate2."""

import errno
import fcntl
import hashlib
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import gettempdir
from typing import TextIO

import ctranslate2
import pytest
import torch
from bundles import LINES, N_ROWS, publish_bundle
from models import tiny
from system.command import done, environment, flip_byte, nmtkit, outcome, start

from nmtkit.config.model import DecodingConfig
from nmtkit.config.settings import EngineName, EnginePrecision, Settings
from nmtkit.corpus.special_tokens import EOS_ID
from nmtkit.decoding import ctranslate2_engine
from nmtkit.decoding.bundle import Bundle, open_bundle
from nmtkit.decoding.ctranslate2_engine import CONVERTER, cache_folder
from nmtkit.decoding.engine import Engine
from nmtkit.interchange.ctranslate2 import write_model
from nmtkit.model.transformer import Transformer
from nmtkit.translator import load_engine
from nmtkit.utils.errors import UserError

PAPERS = tiny()
FAIRSEQS = tiny(
    positions="fairseq", tie_embeddings=False, attention_bias=True, layer_norm_epsilon=0.01
)
PRE_NORM = FAIRSEQS.model_copy(update={"norm": "pre", "positions": "learned"})


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new cache for every test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "nmtkit" / "ctranslate2"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish_bundle(tmp_path_factory.mktemp("original") / "b", PAPERS)


def load(
    *folders: Path,
    dtype: EnginePrecision = EnginePrecision.AUTO,
    device: str = "cpu",
    engine: EngineName = EngineName.CTRANSLATE2,
) -> Engine:
    settings = Settings(folders[0], device=device)
    return load_engine([open_bundle(folder) for folder in folders], settings, engine, dtype)


def conversions(cache: Path) -> list[Path]:
    return [path for path in cache.iterdir() if path.is_dir()]


def test_bundle_is_converted_once(original: Path, cache: Path, tmp_path: Path) -> None:
    load(original)
    (converted,) = conversions(cache)
    before = {path: path.stat().st_mtime_ns for path in converted.iterdir()}
    load(original, dtype=EnginePrecision.FLOAT32)
    load(Path(shutil.copytree(original, tmp_path / "moved")))
    assert conversions(cache) == [converted]
    assert {path: path.stat().st_mtime_ns for path in converted.iterdir()} == before
    load(original, dtype=EnginePrecision.INT8)
    assert len(conversions(cache)) == 2


def test_damaged_conversion_is_rebuilt(original: Path, cache: Path) -> None:
    load(original)
    (converted,) = conversions(cache)
    intact = (converted / "model.bin").read_bytes()
    flip_byte(converted / "model.bin")
    load(original)
    assert conversions(cache) == [converted]
    assert (converted / "model.bin").read_bytes() == intact


@pytest.mark.parametrize("engine", list(EngineName))
def test_altered_bundle_with_conversion_is_refused(
    engine: EngineName, original: Path, cache: Path, tmp_path: Path
) -> None:
    load(original)
    assert conversions(cache)
    bundle = Path(shutil.copytree(original, tmp_path / "bundle"))
    flip_byte(bundle / "model.safetensors")
    with pytest.raises(UserError, match=r"model\.safetensors was altered"):
        load(bundle, engine=engine)


@pytest.mark.parametrize("engine", [EngineName.AUTO, EngineName.CTRANSLATE2])
def test_altered_bundle_is_not_converted(
    engine: EngineName, original: Path, cache: Path, tmp_path: Path
) -> None:
    bundle = Path(shutil.copytree(original, tmp_path / "bundle"))
    flip_byte(bundle / "model.safetensors")
    with pytest.raises(UserError, match=r"model\.safetensors was altered"):
        load(bundle, engine=engine)
    assert not cache.exists()


@pytest.mark.parametrize(
    ("dtype", "device", "message"),
    [
        ("bfloat16", "cpu", "bfloat16 on this CPU.*--dtype float32"),
        ("float32", "cuda:99", "--device cuda:99"),
        ("float32", "cuda:x", "--device cuda:x"),
        ("float32", "tpu", "--device tpu"),
    ],
)
def test_unsupported_options_are_refused(
    original: Path, dtype: str, device: str, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        load(original, dtype=EnginePrecision(dtype), device=device)


def test_relative_cache_home_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    default = tmp_path / ".cache" / "nmtkit"
    for ignored in ("", "runs", "./runs", "~/cache"):
        monkeypatch.setenv("XDG_CACHE_HOME", ignored)
        assert cache_folder() == default
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    assert cache_folder() == tmp_path / "other" / "nmtkit"


# The hash of converted files by version of the converter. Another version of CTranslate2 may change
# it as well; the key of the cache contains that version too.
CONVERTED = {2: "73208284b5be88a824fe9241fce3204ec1c17968351c54c61597285bb7f561bf"}


def test_converter_version_of_files(tmp_path: Path) -> None:
    """If the converter changes, CONVERTER must increase, or caches keep older conversions."""
    digest = hashlib.sha256()
    for number, config in enumerate((PAPERS, FAIRSEQS, PRE_NORM)):
        model = Transformer(config, N_ROWS)
        # The same values on all processors; their random numbers differ.
        for parameter in model.parameters():
            values = torch.arange(parameter.numel()).mul(37).remainder(101).sub(50)
            parameter.data.copy_(values.float().div(64).view_as(parameter))
        for dtype in ("float32", "int8"):
            folder = tmp_path / f"{number}-{dtype}"
            folder.mkdir()
            write_model(folder, model, [str(id_) for id_ in range(N_ROWS)], dtype, n_positions=64)
            for path in sorted(folder.iterdir()):
                digest.update(path.name.encode() + path.read_bytes())
    assert {CONVERTER: digest.hexdigest()} == CONVERTED


def test_cache_of_other_converter(
    original: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(original)
    monkeypatch.setattr(ctranslate2_engine, "CONVERTER", CONVERTER + 1)
    load(original)
    assert len(conversions(cache)) == 2


# The command

WITHOUT_SLOW_MODULES = """
import sys
from nmtkit.cli.app import main

sys.argv = ["nmtkit", "translate", *sys.argv[1:]]
try:
    main()
finally:
    slow = {"torch", "transformers", "datasets", "sacrebleu", "nltk", "jinja2", "tabulate"}
    # Recipes, the readers of files and the stages; a line of standard input needs none of them.
    slow |= {"nmtkit.config.recipe", "nmtkit.sources.kinds", "nmtkit.sources.text_file"}
    slow |= {"nmtkit.corpus.ids", "nmtkit.stages", "nmtkit.training"}
    sys.exit(" ".join(slow & sys.modules.keys()) or 0)
"""


@pytest.mark.parametrize("options", [(), ("--device", "cpu")])
def test_cached_model_imports_nothing_slow(
    options: tuple[str, ...], original: Path, tmp_path: Path
) -> None:
    text = f"{LINES[0]}\n".encode()
    typed = ("--bundle", str(original), *options)
    converted = done(nmtkit(tmp_path, "translate", *typed, stdin=text))
    command = [sys.executable, "-c", WITHOUT_SLOW_MODULES, *typed]
    ended = subprocess.run(command, input=text, capture_output=True, env=environment(), check=True)
    assert ended.stdout.decode("utf-8") == converted.out


# --engine auto


load_auto = partial(load, engine=EngineName.AUTO)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, None),
        ({"d_v": 5}, "CTranslate2 does not support models with .* d_k = 4, d_v = 5 and"),
        ({"neighbourhood": 3}, "CTranslate2 does not support models with .* neighbourhood = 3"),
    ],
)
def test_auto_depends_on_model(
    change: dict[str, int], why: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = publish_bundle(tmp_path / "b", tiny(**change))
    assert load_auto(bundle).name == ("torch" if why else "ctranslate2")
    message = capsys.readouterr().err
    assert f"engine: {'torch' if why else 'ctranslate2'}" in message
    assert re.search(why or "", message)
    if why:
        with pytest.raises(UserError, match=f"{why}.*--engine torch"):
            load(bundle)


def test_auto_depends_on_precision(
    original: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load_auto(original, original).name == "torch"
    assert load_auto(original, dtype=EnginePrecision.INT8).name == "ctranslate2"
    monkeypatch.setattr(ctranslate2, "get_supported_compute_types", lambda *_: {"int8"})
    assert load_auto(original).name == "torch"
    ensemble, int8, unsupported, end = capsys.readouterr().err.split("\n")
    assert "engine: torch" in ensemble
    assert "ensembles" in ensemble
    assert int8 == "engine: ctranslate2"
    assert "engine: torch" in unsupported
    assert "--dtype int8" in unsupported
    assert end == ""


def test_auto_is_torch_on_a_gpu(original: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Settings, "torch_device", lambda _: torch.device("cpu"))
    assert load_auto(original, device="auto").name == "ctranslate2"
    assert load_auto(original, device="cuda:1").name == "torch"
    monkeypatch.setattr(ctranslate2, "get_cuda_device_count", lambda: 1)
    assert load_auto(original, device="auto").name == "torch"


def file_instead_of_folder(cache: Path, _: pytest.MonkeyPatch) -> None:
    cache.parent.mkdir(parents=True)
    cache.touch()


def full_disk(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    convert = ctranslate2_engine._convert

    def converted_elsewhere(bundle: Bundle, dtype: str, folder: Path) -> None:
        if folder.is_relative_to(cache):
            (folder / "model.bin").write_bytes(bytes(1000))
            raise OSError(28, "No space left on device")
        convert(bundle, dtype, folder)

    monkeypatch.setattr(ctranslate2_engine, "_convert", converted_elsewhere)


def no_locks(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flock = fcntl.flock

    def locked_elsewhere(file: TextIO, operation: int) -> None:
        if Path(file.name).is_relative_to(cache.parent):
            raise OSError(errno.ENOLCK, "No locks available")
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", locked_elsewhere)


def being_freed(cache: Path, _: pytest.MonkeyPatch) -> TextIO:
    cache.parent.mkdir(parents=True)
    lock = (cache.parent / "gc.lock").open("w", encoding="utf-8")
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def converted_for_ever(cache: Path, monkeypatch: pytest.MonkeyPatch) -> TextIO:
    monkeypatch.setattr(ctranslate2_engine, "WAIT_S", 0.1)
    monkeypatch.setattr(ctranslate2_engine, "compute_fingerprint", lambda *_: 16 * "a")
    cache.mkdir(parents=True)
    lock = (cache / f"{16 * 'a'}.lock").open("w", encoding="utf-8")
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


@pytest.mark.parametrize(
    "trouble",
    [file_instead_of_folder, full_disk, no_locks, being_freed, converted_for_ever],
)
@pytest.mark.parametrize("engine", [EngineName.AUTO, EngineName.CTRANSLATE2])
def test_unusable_cache_is_skipped(
    trouble: Callable[[Path, pytest.MonkeyPatch], TextIO | None],
    engine: EngineName,
    original: Path,
    cache: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = trouble(cache, monkeypatch)
    loaded = load(original, engine=engine)
    if held:
        held.close()
    assert loaded.name == "ctranslate2"
    decoding = DecodingConfig(beam_size=2, length_penalty=0.6, max_extra_tokens=20)
    assert loaded.translate([[5, 6, EOS_ID]], decoding, 1, lambda _: None)[0]
    message = capsys.readouterr().err
    assert message.startswith("warning: ")
    assert str(cache.parent) in message
    assert not [*cache.glob("*/*")]  # nothing is left that fills the disk


@pytest.mark.parametrize("engine", ["auto", "ctranslate2"])
def test_full_disks_are_named(engine: str, original: Path, cache: Path, tmp_path: Path) -> None:
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (20_000, 20_000))
    command = ["translate", "--bundle", str(original), "--engine", engine]
    ended = nmtkit(tmp_path, *command, stdin=b"cat!\n", preexec_fn=limit)
    named = re.findall(rf"\(.*({cache}|{gettempdir()}/.nmtkit-|--runs-dir)", ended.err)
    assert named == [str(cache), f"{gettempdir()}/.nmtkit-"]
    assert (ended.code, ended.out.count("\n")) == ((1, 0) if engine == "ctranslate2" else (0, 1))


def test_waiting_names_lock_holder(original: Path, cache: Path, tmp_path: Path) -> None:
    load(original)
    (converted,) = conversions(cache)
    shutil.rmtree(converted)
    with converted.with_suffix(".lock").open(encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = start(tmp_path, "translate", "--bundle", str(original))
        assert process.stderr is not None
        message = process.stderr.readline().decode()
        assert f"process {os.getpid()} on " in message
        assert f"lock {lock.name}" in message
    assert done(outcome(process, b"cat!\n")).out.count("\n") == 1
    assert conversions(cache) == [converted]


@pytest.mark.parametrize("trouble", [OSError(28, "No space left on device"), RuntimeError("MKL")])
def test_auto_falls_back_to_torch(
    trouble: Exception,
    original: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def convert(*_: object) -> None:
        raise trouble

    monkeypatch.setattr(ctranslate2_engine, "_convert", convert)
    assert load_auto(original).name == "torch"
    message = capsys.readouterr().err
    assert "engine: torch" in message
    assert str(trouble) in message


def test_command_prints_engine(original: Path, tmp_path: Path) -> None:
    command = ["translate", "--bundle", str(original)]
    assert done(nmtkit(tmp_path, *command, stdin=b"cat!\n")).err == "engine: ctranslate2\n"
    command += ["--engine", "auto", "--format", "json", "--alignment"]
    ended = done(nmtkit(tmp_path, *command, stdin=b"cat!\n"))
    assert ended.err.startswith("engine: torch (")
