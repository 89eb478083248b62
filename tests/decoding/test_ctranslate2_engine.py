"""CTranslate2 computes what our model computes, and finds what our search finds."""

import copy
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
from itertools import product
from pathlib import Path
from tempfile import gettempdir
from typing import TextIO

import ctranslate2
import pytest
import torch
from bundles import LINES, N_ROWS, copying_model, publish_bundle, random_model, random_sources
from models import random_transformer, tiny
from system.command import done, environment, flip_byte, nmtkit, outcome, start

from nmtkit.config.recipe import DecodingConfig, ModelConfig
from nmtkit.config.settings import EngineName, EnginePrecision, Settings
from nmtkit.corpus.special_tokens import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from nmtkit.decoding import ctranslate2_engine
from nmtkit.decoding.bundle import Bundle, open_bundle
from nmtkit.decoding.ctranslate2_engine import CONVERTER, CTranslate2Engine, cache_folder
from nmtkit.decoding.engine import Engine, Hypothesis
from nmtkit.decoding.forced import force_ids
from nmtkit.decoding.torch_engine import TorchEngine
from nmtkit.fast.accelerate import accelerate
from nmtkit.interchange.ctranslate2 import write_model
from nmtkit.model.transformer import Transformer
from nmtkit.translator import load_engine
from nmtkit.utils.errors import UserError

N_TOKENS = 50
LONGEST = 7
FORBIDDEN = {PAD_ID, BOS_ID, UNK_ID, *range(N_TOKENS, N_ROWS)}
PAPERS = tiny()
FAIRSEQS = tiny(
    positions="fairseq", tie_embeddings=False, attention_bias=True, layer_norm_epsilon=0.01
)
MARIANS = tiny(activation="swish", output_bias=True, attention_bias=True)
UNLIKE = FAIRSEQS.model_copy(update={"norm": "pre", "positions": "learned"})


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own for each test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "nmtkit" / "ctranslate2"


def engine_of(model: Transformer, folder: Path, dtype: str = "float32") -> Engine:
    """An engine of CTranslate2 that runs `model`."""
    write_model(folder, model, [str(id_) for id_ in range(N_ROWS)], dtype, n_positions=64)
    open_model = partial(ctranslate2.Translator, str(folder), compute_type=dtype, intra_threads=1)
    return CTranslate2Engine(open_model, N_TOKENS, N_ROWS)


def translate(
    engine: Engine, sources: list[list[int]], beam_size: int, n_best: int = 1, extra: int = 20
) -> list[list[Hypothesis]]:
    decoding = DecodingConfig(beam_size=beam_size, length_penalty=0.6, max_extra_tokens=extra)
    return engine.translate(sources, decoding, n_best, lambda _: None)


# The model


@pytest.mark.parametrize("config", [PAPERS, UNLIKE, FAIRSEQS, MARIANS])
def test_log_probabilities_are_those_of_our_model(config: ModelConfig, tmp_path: Path) -> None:
    model = random_model(config)
    sources = random_sources(30, N_TOKENS, longest=20)  # longer than `max_positions`
    targets = [source[:-1] for source in random_sources(30, N_TOKENS, longest=20, seed=6)]
    ours = force_ids([model], sources, targets, align=False)
    engine = engine_of(model, tmp_path)
    theirs = engine.force(sources, targets, align=False)
    for one, other in zip(ours, theirs, strict=True):
        assert one.log_probs == pytest.approx(other.log_probs, abs=1e-4)
    with pytest.raises(UserError, match="does not compute alignments"):
        engine.force(sources, targets, align=True)


# The search


@pytest.fixture(scope="module")
def copying() -> Transformer:
    return copying_model(N_TOKENS, LONGEST)


def is_as_good(one: Hypothesis, other: Hypothesis) -> bool:
    """Whether two engines agree: on the tokens, or where rounding decides, on their score."""
    return one.tokens == other.tokens or one.score == pytest.approx(other.score, abs=1e-3)


def check_rated(model: Transformer, source: list[int], found: list[Hypothesis]) -> None:
    """Check the scores and the order of hypotheses by our own ratings."""
    assert found == sorted(found, key=lambda hypothesis: -hypothesis.score)
    targets = [hypothesis.tokens for hypothesis in found]
    assert len({tuple(target) for target in targets}) == len(targets)
    forced = force_ids([model], [source] * len(found), targets, align=False)
    for hypothesis, rating in zip(found, forced, strict=True):
        log_prob = sum(rating.log_probs)  # that of the EOS too
        assert hypothesis.log_prob == pytest.approx(log_prob, abs=1e-3)
        penalty = ((5 + len(hypothesis.tokens) + 1) / 6) ** 0.6
        assert hypothesis.score == pytest.approx(log_prob / penalty, abs=1e-3)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_translations_are_those_of_our_search(
    copying: Transformer, beam_size: int, tmp_path: Path
) -> None:
    sources = random_sources(200, N_TOKENS, LONGEST, seed=1_000)
    ours = translate(TorchEngine([copying], N_TOKENS), sources, beam_size, n_best=beam_size)
    theirs = translate(engine_of(copying, tmp_path), sources, beam_size, n_best=beam_size)
    assert len({tuple(best.tokens) for best, *_ in ours}) > 100
    n_as_good = 0
    for (one, *_), (other, *_) in zip(ours, theirs, strict=True):
        assert one.score >= other.score - 1e-3  # ours finishes all that theirs does, and more
        n_as_good += is_as_good(one, other)
    assert n_as_good >= 199
    for source, found in zip(sources[:50], theirs, strict=False):
        assert len(found) == beam_size
        check_rated(copying, source, found)


def test_forbidden_tokens_are_never_produced(copying: Transformer, tmp_path: Path) -> None:
    model = copy.deepcopy(copying)
    with torch.no_grad():  # more probable than the tokens in whose places they are
        model.output_matrix[UNK_ID] = 1.1 * model.output_matrix[7]
        model.output_matrix[N_TOKENS + 3] = 1.1 * model.output_matrix[8]
    sources = random_sources(50, N_TOKENS, LONGEST, seed=1_000)
    engine = engine_of(model, tmp_path)
    for beam_size in (1, 3):
        ours = translate(TorchEngine([model], N_TOKENS), sources, beam_size)
        theirs = translate(engine, sources, beam_size)
        assert any(7 in best.tokens or 8 in best.tokens for [best] in theirs)
        assert all(FORBIDDEN.isdisjoint(best.tokens) for [best] in theirs)
        as_good = [is_as_good(one, other) for [one], [other] in zip(ours, theirs, strict=True)]
        assert sum(as_good) >= 48


@pytest.mark.parametrize("beam_size", [1, 3])
def test_translation_that_does_not_end_is_ended_at_its_own_maximum_length(
    copying: Transformer, beam_size: int, tmp_path: Path
) -> None:
    model = copy.deepcopy(copying)
    with torch.no_grad():
        model.output_matrix[EOS_ID] = 0
    sources = [[5, 6, 7, EOS_ID], [5, EOS_ID]]
    engine = engine_of(model, tmp_path)
    both = translate(engine, sources, beam_size, n_best=beam_size, extra=4)
    assert [len(best.tokens) for best, *_ in both] == [3 + 4, 1 + 4]
    alone = [translate(engine, [source], beam_size, beam_size, extra=4)[0] for source in sources]
    for source, found, found_alone in zip(sources, both, alone, strict=True):
        assert is_as_good(found[0], found_alone[0])
        assert len(found_alone) == beam_size  # cut from longer ones, some would be the same
        check_rated(model, source, found)


@pytest.mark.parametrize("beam_size", [7, 8, 9, 30, 200])
def test_beam_larger_than_vocabulary(beam_size: int, tmp_path: Path) -> None:
    """Nothing is pruned any more, so that both engines find the best of all translations."""
    model = random_transformer(tiny(), 8, seed=3).eval()
    write_model(tmp_path, model, [str(id_) for id_ in range(8)], "float32", n_positions=64)
    open_model = partial(ctranslate2.Translator, str(tmp_path), intra_threads=1)
    engines = [TorchEngine([accelerate(model)], 8), CTranslate2Engine(open_model, 8, 8)]
    source = [5, 6, EOS_ID]
    targets = [list(ids) for n in range(4) for ids in product(range(4, 8), repeat=n)]
    ratings = force_ids([model], [source] * len(targets), targets, align=False)
    scores = [sum(rating.log_probs) for rating in ratings]
    for engine in engines:
        decoding = DecodingConfig(beam_size=beam_size, length_penalty=0.0, max_extra_tokens=1)
        ((best,),) = engine.translate([source], decoding, 1, lambda _: None)
        assert best.log_prob == pytest.approx(max(scores), abs=1e-4)
        assert best.tokens == targets[scores.index(max(scores))]


def test_model_that_diverged_is_said_to_have(tmp_path: Path) -> None:
    model = Transformer(PAPERS, N_ROWS)
    for parameter in model.parameters():
        parameter.data.fill_(torch.nan)
    with pytest.raises(UserError, match="NaN instead of probabilities"):
        translate(engine_of(model, tmp_path), [[5, EOS_ID]], beam_size=2)


# The conversion


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


def test_bundle_is_converted_once_for_each_precision(
    original: Path, cache: Path, tmp_path: Path
) -> None:
    load(original)
    (made,) = conversions(cache)
    before = {path: path.stat().st_mtime_ns for path in made.iterdir()}
    load(original, dtype=EnginePrecision.FLOAT32)
    load(Path(shutil.copytree(original, tmp_path / "moved")))
    assert conversions(cache) == [made]
    assert {path: path.stat().st_mtime_ns for path in made.iterdir()} == before
    load(original, dtype=EnginePrecision.INT8)
    assert len(conversions(cache)) == 2


def test_damaged_conversion_is_made_again(original: Path, cache: Path) -> None:
    load(original)
    (made,) = conversions(cache)
    intact = (made / "model.bin").read_bytes()
    flip_byte(made / "model.bin")
    load(original)
    assert conversions(cache) == [made]
    assert (made / "model.bin").read_bytes() == intact


@pytest.mark.parametrize("engine", [EngineName.AUTO, EngineName.CTRANSLATE2])
def test_altered_bundle_is_not_converted(
    engine: EngineName, original: Path, cache: Path, tmp_path: Path
) -> None:
    bundle = Path(shutil.copytree(original, tmp_path / "bundle"))
    flip_byte(bundle / "model.safetensors")
    with pytest.raises(UserError, match=r"model\.safetensors was altered"):
        load(bundle, engine=engine)
    assert conversions(cache) == []


@pytest.mark.parametrize(
    ("dtype", "device", "says"),
    [
        ("bfloat16", "cpu", "CTranslate2 has no bfloat16 on this cpu; use --dtype float32"),
        ("float32", "cuda:99", "--device cuda:99 is not available to CTranslate2"),
        ("float32", "cuda:x", "--device cuda:x is not available to CTranslate2"),
        ("float32", "tpu", "--device tpu is not available to CTranslate2"),
    ],
)
def test_what_the_engine_cannot_do_is_refused(
    original: Path, dtype: str, device: str, says: str
) -> None:
    with pytest.raises(UserError, match=says):
        load(original, dtype=EnginePrecision(dtype), device=device)


def test_relative_cache_home_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    default = tmp_path / ".cache" / "nmtkit"
    for ignored in ("", "runs", "./runs", "~/cache"):
        monkeypatch.setenv("XDG_CACHE_HOME", ignored)
        assert cache_folder() == default
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    assert cache_folder() == tmp_path / "other" / "nmtkit"


# The files of a conversion by version of the converter. Another version of CTranslate2, which the
# key of the cache contains too, may change them as well.
CONVERTED = {2: "73208284b5be88a824fe9241fce3204ec1c17968351c54c61597285bb7f561bf"}


def test_converter_version_is_that_of_its_files(tmp_path: Path) -> None:
    """Who changes the converter increases CONVERTER, or caches keep what was converted before."""
    digest = hashlib.sha256()
    for number, config in enumerate((PAPERS, FAIRSEQS, UNLIKE)):
        model = Transformer(config, N_ROWS)
        # The same values on all processors, which draw other random numbers.
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


def test_cache_of_another_converter_is_not_used(
    original: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(original)
    monkeypatch.setattr(ctranslate2_engine, "CONVERTER", CONVERTER + 1)
    load(original)
    assert len(conversions(cache)) == 2


# After a fork

FORKED = """
import os, shutil, signal, sys
import nmtkit

bundle, engine, cache = sys.argv[1:]
line = "The well-known cat sat."
translator = nmtkit.Translator(bundle, engine=engine, device="cpu")
unused = nmtkit.Translator(bundle, engine=engine, device="cpu")
expected = translator.translate([line] * 40)[0].text


def fork(work):
    if (pid := os.fork()) == 0:
        signal.alarm(120)  # if it hangs
        work()
        sys.exit()  # with destructors
    assert os.waitpid(pid, 0)[1] == 0


def check():
    assert translator.translate([line] * 40)[0].text == expected
    assert unused.translate([line])[0].text == expected


def drop():
    global translator
    translator = None


fork(lambda: None)
fork(drop)
fork(check)
fork(lambda: (check(), fork(check)))
check()
if engine == "ctranslate2":
    shutil.rmtree(cache)
    try:
        fork(check)
    except AssertionError:
        print("refused")
"""


@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
def test_forked_child_translates(engine: str, original: Path, cache: Path) -> None:
    command = [sys.executable, "-c", FORKED, str(original), engine, str(cache)]
    ended = subprocess.run(command, capture_output=True, env=environment(), check=False)
    assert ended.returncode == 0, ended.stderr.decode()
    if engine == "ctranslate2":
        assert ended.stdout == b"refused\n"
        assert b"create the Translator in the child process" in ended.stderr


# The command

WITHOUT_SLOW_MODULES = """
import sys
from nmtkit.cli import main

sys.argv = ["nmtkit", "translate", "--bundle", sys.argv[1]]
try:
    main()
finally:
    slow = {"torch", "transformers", "datasets", "sacrebleu", "nltk", "jinja2"}
    sys.exit(" ".join(slow & sys.modules.keys()) or 0)
"""


def test_command_imports_nothing_slow_once_the_model_is_converted(
    original: Path, tmp_path: Path
) -> None:
    text = f"{LINES[0]}\n".encode()
    converted = done(nmtkit(tmp_path, "translate", "--bundle", str(original), stdin=text))
    command = [sys.executable, "-c", WITHOUT_SLOW_MODULES, str(original)]
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
def test_auto_is_ctranslate2_where_it_can_run_the_model(
    change: dict[str, int], why: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = publish_bundle(tmp_path / "b", tiny(**change))
    assert load_auto(bundle).name == ("torch" if why else "ctranslate2")
    says = "engine: ctranslate2"
    if why:
        says = rf"warning: engine: torch, since CTranslate2 failed \({why}"
    assert re.match(says, capsys.readouterr().err)
    if why:
        with pytest.raises(UserError, match=f"{why}.*--engine torch"):
            load(bundle)


def test_auto_is_torch_for_ensembles_and_precisions_that_ctranslate2_lacks(
    original: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load_auto(original, original).name == "torch"
    assert load_auto(original, dtype=EnginePrecision.INT8).name == "ctranslate2"
    monkeypatch.setattr(ctranslate2, "get_supported_compute_types", lambda *_: {"int8"})
    assert load_auto(original).name == "torch"
    assert capsys.readouterr().err.split("\n") == [
        "engine: torch (the default for ensembles and on a GPU)",
        "engine: ctranslate2",
        "warning: engine: torch, since CTranslate2 failed (CTranslate2 has no float32 on this cpu; "
        "use --dtype int8)",
        "",
    ]


def test_auto_is_torch_on_a_gpu(original: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Settings, "torch_device", lambda _: torch.device("cpu"))
    assert load_auto(original, device="auto").name == "ctranslate2"
    assert load_auto(original, device="cuda:1").name == "torch"
    monkeypatch.setattr(ctranslate2, "get_cuda_device_count", lambda: 1)
    assert load_auto(original, device="auto").name == "torch"


def a_file_in_its_place(cache: Path, _: pytest.MonkeyPatch) -> None:
    cache.parent.mkdir(parents=True)
    cache.touch()


def a_full_disk(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    convert = ctranslate2_engine._convert

    def converted_elsewhere(bundle: Bundle, dtype: str, folder: Path) -> None:
        if folder.is_relative_to(cache):
            (folder / "model.bin").write_bytes(bytes(1000))
            raise OSError(28, "No space left on device")
        convert(bundle, dtype, folder)

    monkeypatch.setattr(ctranslate2_engine, "_convert", converted_elsewhere)


def no_locks(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flock = fcntl.flock

    def locked_elsewhere(file: TextIO, how: int) -> None:
        if Path(file.name).is_relative_to(cache.parent):
            raise OSError(errno.ENOLCK, "No locks available")
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", locked_elsewhere)


def being_freed(cache: Path, _: pytest.MonkeyPatch) -> TextIO:
    cache.parent.mkdir(parents=True)
    lock = (cache.parent / "gc.lock").open("w", encoding="utf-8")
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def converted_for_ever(cache: Path, monkeypatch: pytest.MonkeyPatch) -> TextIO:
    monkeypatch.setattr(ctranslate2_engine, "WAIT_S", 0.1)
    monkeypatch.setattr(ctranslate2_engine, "fingerprint_of", lambda *_: 16 * "a")
    cache.mkdir(parents=True)
    lock = (cache / f"{16 * 'a'}.lock").open("w", encoding="utf-8")
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


@pytest.mark.parametrize(
    "trouble",
    [a_file_in_its_place, a_full_disk, no_locks, being_freed, converted_for_ever],
)
@pytest.mark.parametrize("engine", [EngineName.AUTO, EngineName.CTRANSLATE2])
def test_a_cache_is_never_in_the_way(
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
    assert translate(loaded, [[5, 6, EOS_ID]], beam_size=2)[0]
    said = capsys.readouterr().err
    assert said.startswith("warning: engine: the converted model could not be cached (")
    assert str(cache.parent) in said
    assert not [*cache.glob("*/*")]  # which fills the disk


@pytest.mark.parametrize("engine", ["auto", "ctranslate2"])
def test_disks_that_are_full_are_named(
    engine: str, original: Path, cache: Path, tmp_path: Path
) -> None:
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (20_000, 20_000))
    command = ["translate", "--bundle", str(original), "--engine", engine]
    ended = nmtkit(tmp_path, *command, stdin=b"cat!\n", preexec_fn=limit)
    named = re.findall(rf"\(.*({cache}|{gettempdir()}/.nmtkit-|--runs-dir)", ended.err)
    assert named == [str(cache), f"{gettempdir()}/.nmtkit-"]
    assert (ended.code, ended.out.count("\n")) == ((1, 0) if engine == "ctranslate2" else (0, 1))


def test_who_holds_up_a_conversion_is_said(original: Path, cache: Path, tmp_path: Path) -> None:
    load(original)
    (made,) = conversions(cache)
    shutil.rmtree(made)
    with made.with_suffix(".lock").open(encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = start(tmp_path, "translate", "--bundle", str(original))
        assert process.stderr is not None
        said = process.stderr.readline().decode()
        assert f"by process {os.getpid()} on " in said
        assert f"(lock {lock.name}); waiting" in said
    assert done(outcome(process, b"cat!\n")).out.count("\n") == 1
    assert conversions(cache) == [made]


@pytest.mark.parametrize("trouble", [OSError(28, "No space left on device"), RuntimeError("MKL")])
def test_auto_is_torch_where_ctranslate2_fails(
    trouble: Exception,
    original: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def convert(*_: object) -> None:
        raise trouble

    monkeypatch.setattr(ctranslate2_engine, "_convert", convert)
    assert load_auto(original).name == "torch"
    assert f"engine: torch, since CTranslate2 failed ({trouble})\n" in capsys.readouterr().err


def test_command_says_which_engine_auto_takes(original: Path, tmp_path: Path) -> None:
    command = ["translate", "--bundle", str(original)]
    assert done(nmtkit(tmp_path, *command, stdin=b"cat!\n")).err == "engine: ctranslate2\n"
    command += ["--engine", "auto", "--format", "json", "--alignment"]
    ended = done(nmtkit(tmp_path, *command, stdin=b"cat!\n"))
    assert ended.err == "engine: torch (CTranslate2 does not compute alignments)\n"
