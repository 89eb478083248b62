"""Bad input: each mistake gets one sentence that names what is wrong, and nothing else happens."""

import os
import resource
import shlex
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from system.command import (
    RECIPE,
    artifact,
    contents,
    done,
    environment,
    flip_byte,
    nmtkit,
    sentence,
    start,
    status,
    steps_done,
    wait_until,
)
from system.conftest import N_TRAIN, Finished

Change = Callable[[bytes], bytes]  # of a file's content
APPENDED: dict[str, Change] = {"train.de": lambda old: old + b"ein\n"}
PREPARE = ("prepare", RECIPE, "--workers", "1")
MISTAKES: dict[str, tuple[dict[str, Change], tuple[str, ...], tuple[str, ...]]] = {
    # what is spoilt, the command that meets it, and what its sentence must hold
    "missing file": (
        {RECIPE: lambda old: old.replace(b'"train.de"', b'"none.de"')},
        PREPARE,
        ("there is no file", "none.de"),
    ),
    "sides of different length": (
        APPENDED,
        PREPARE,
        (f"train.en has {N_TRAIN} lines", f"train.de has {N_TRAIN + 1}"),
    ),
    "sides of different length, in several processes": (
        APPENDED,
        ("prepare", RECIPE, "--workers", "2"),
        (f"{N_TRAIN}", f"{N_TRAIN + 1}"),
    ),
    "invalid UTF-8": (
        {"train.en": lambda old: b"a\n" * 6 + b"\xff" + old},
        PREPARE,
        ("train.en, line 7", "not valid UTF-8"),
    ),
    "empty corpus": (
        dict.fromkeys(("train.en", "train.de"), lambda _: b""),
        PREPARE,
        ("train.en", "is empty"),
    ),
    "blank test set": (
        dict.fromkeys(("test.en", "test.de"), lambda _: b"\n \n"),
        PREPARE,
        ("the test set test has blank lines alone",),
    ),
    "cleaning drops everything": (
        {},
        (*PREPARE, "--set", "corpus.max_tokens=1"),
        ("cleaning dropped every training pair", f"{N_TRAIN} too_long"),
    ),
    "unknown recipe key": (
        {RECIPE: lambda old: old.replace(b"beam_size", b"beam_sise")},
        PREPARE,
        (RECIPE, "[decoding] beam_sise = 3", "did you mean 'beam_size'"),
    ),
    "unknown recipe": ({}, ("run", "dmeo"), ("'dmeo'", "did you mean 'demo'")),
    "no such device": ({}, ("plan", RECIPE, "--device", "cuda:99"), ("--device cuda:99",)),
    "no mirror": ({}, ("prepare", "multi30k-en-de", "--mirror", "nowhere"), ("nowhere",)),
    "a file as the runs folder": ({}, (*PREPARE, "--runs-dir", "train.en"), ("train.en",)),
    "neither recipe nor bundle": ({}, ("translate",), ("recipe", "--bundle DIR")),
    "no bundle": ({}, ("translate", "--bundle", "."), (".",)),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_is_told_in_one_sentence(workplace: Path, name: str) -> None:
    spoilt, args, says = MISTAKES[name]
    for file, change in spoilt.items():
        old = (workplace / file).read_bytes()
        assert change(old) != old
        (workplace / file).write_bytes(change(old))
    said = sentence(nmtkit(workplace, *args))
    for part in says:
        assert part in said
    assert not list(workplace.glob("runs/*/*/manifest.json"))


def test_what_a_hostile_file_says_cannot_act_on_the_terminal(workplace: Path) -> None:
    with tarfile.open(workplace / "a.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("\x1b]0;title\x07\x1b[2J\n\u202e.en"))
    (workplace / "dev.tmx").write_text("<\u202etmx/>", encoding="utf-8", newline="\n")
    (workplace / "none\x1b[2J").symlink_to("nowhere")
    for dev in ('{ tmx = "dev.tmx" }', '{ src = "none\\u001b[2J\\n", tgt = "dev.de" }'):
        ended = nmtkit(workplace, *PREPARE, "--set", f"corpus.dev={dev}")
        assert sentence(ended).isprintable()
        told = done(nmtkit(workplace, "status", RECIPE, "--set", f"corpus.dev={dev}"))
        assert "\x1b" not in told.out + told.err


def test_a_runs_folder_need_not_be_unicode(workplace: Path) -> None:
    runs = "runs\udcff"  # as Python has the byte 0xff
    process = start(workplace, *PREPARE, "--runs-dir", runs)
    with process:
        out, err = process.communicate()
    assert process.returncode == 0, err
    assert (workplace / os.fsdecode(out.removesuffix(b"\n")) / "manifest.json").is_file()
    state = status(workplace, "--runs-dir", runs)["prepare"]
    assert (workplace / state["path"] / "manifest.json").is_file()
    done(nmtkit(workplace, "status", RECIPE, "--runs-dir", runs))


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])  # by a shell
def test_closed_streams_are_no_mistake_but_of_what_needs_them(
    workplace: Path, finished: Finished, closed: str
) -> None:
    def shell(*args: str) -> tuple[int, bytes]:
        command = f"{shlex.join([sys.executable, '-m', 'nmtkit', *args])} {closed}"
        ended = subprocess.run(
            command, shell=True, check=False, cwd=workplace, env=environment(),
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        return ended.returncode, ended.stderr

    code, err = shell("prepare", RECIPE, "--workers", "2")
    assert (code, b"Traceback" in err) == (0, False)
    assert contents(artifact(workplace, "prepare")) == contents(finished.artifact("prepare"))
    code, err = shell("translate", "--bundle", str(finished.artifact("average")))
    if closed == "2>&-":
        assert code == 0
        return
    assert code == 1
    assert b"one of them is closed" in err or "2>&-" in closed


def test_closed_streams_are_filled_before_a_file_takes_their_place() -> None:
    code = (
        "import os\n"
        "from nmtkit import cli\n"
        "for descriptor in (0, 1, 2): os.close(descriptor)\n"
        "cli._fill_closed_streams()\n"
        "os._exit(os.open(os.devnull, os.O_RDONLY))\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 3


def _little_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (250_000 * 1_024,) * 2)


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_want_of_memory_is_told_in_one_sentence(workplace: Path, workers: str) -> None:
    words = (" ".join(f"{n:x}{i:x}" for i in range(50)) for n in range(40_000))
    text = "\n".join(words) + "\n"
    for side in ("en", "de"):
        (workplace / f"train.{side}").write_text(text, encoding="utf-8", newline="\n")
    command = ("prepare", RECIPE, "--workers", workers, "--set", "corpus.tokenizer=none")
    alone = environment(OPENBLAS_NUM_THREADS="1")
    said = sentence(nmtkit(workplace, *command, preexec_fn=_little_memory, env=alone))
    assert "out of memory" in said or "lack of memory" in said


@pytest.mark.parametrize(
    "raised",
    [
        "MemoryError()",
        "OSError(12, 'Cannot allocate memory')",
        'RuntimeError("DefaultCPUAllocator: can\'t allocate memory")',
        "RuntimeError('std::bad_alloc')",
        'RuntimeError("can\'t start new thread")',
    ],
)
def test_out_of_memory_anywhere_is_one_sentence(raised: str) -> None:
    code = f"from nmtkit import cli\ndef app(): raise {raised}\ncli.app = app\ncli.main()\n"
    ended = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, cwd="/"
    )
    assert ended.returncode == 1
    assert ended.stderr.startswith("nmtkit: out of memory; ")
    assert ended.stderr.count("\n") == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_folder_that_may_not_be_written_is_named(workplace: Path) -> None:
    (workplace / "runs").mkdir(mode=0o555)
    said = sentence(nmtkit(workplace, *PREPARE))
    assert "Permission denied" in said
    assert "runs/prepare" in said


def test_altered_download_is_not_used(shared_data: Path, tmp_path: Path) -> None:
    mirror = tmp_path / "mirror"
    shutil.copytree(shared_data / "mirror", mirror, copy_function=shutil.copyfile)
    (altered,) = mirror.rglob("val.de.gz")
    flip_byte(altered)
    said = sentence(nmtkit(tmp_path, "prepare", "multi30k-en-de", "--mirror", "mirror"))
    assert altered.relative_to(tmp_path).as_posix() in said
    assert "has sha256" in said
    altered.write_bytes(altered.read_bytes()[:-1])
    said = sentence(nmtkit(tmp_path, "prepare", "multi30k-en-de", "--mirror", "mirror"))
    assert "has 24,680 bytes" in said
    assert "24,681" in said


def _at_most(n_bytes: int) -> Callable[[], None]:
    """Make a process's files end where a full disk would end them."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, n_bytes))


def test_full_disk_is_told_and_what_was_done_is_kept(workplace: Path, finished: Finished) -> None:
    quiet = environment(PYTHONDONTWRITEBYTECODE="1")
    said = sentence(nmtkit(workplace, *PREPARE, preexec_fn=_at_most(4_000), env=quiet))
    assert "the disk is full" in said
    assert not list(workplace.glob("runs/*/*/manifest.json"))
    done(nmtkit(workplace, *PREPARE))
    assert contents(artifact(workplace, "prepare")) == contents(finished.artifact("prepare"))
    said = sentence(nmtkit(workplace, "train", RECIPE, preexec_fn=_at_most(50_000), env=quiet))
    assert "model.safetensors can't be written" in said
    assert "is the disk full?" in said
    assert status(workplace)["train"]["state"] == "partial"


def _killed_in_training(folder: Path) -> list[Path]:
    """The checkpoints of a training that was killed, oldest first."""
    process = start(folder, "train", RECIPE)
    wait_until(lambda: steps_done(folder) >= 31, process)
    process.kill()
    with process:
        process.communicate()
    found = folder.glob("runs/train/*.partial/checkpoints/*/manifest.json")
    whole = sorted(path.parent for path in found if path.parent.suffix != ".partial")  # a draft
    assert len(whole) >= 2
    return whole


def test_altered_checkpoint_is_refused_by_name_and_training_resumes_from_the_one_before(
    prepared: Path, finished: Finished
) -> None:
    *_, before, newest = _killed_in_training(prepared)
    flip_byte(newest / "model.safetensors")
    damaged = contents(newest)
    went_on = done(nmtkit(prepared, "train", RECIPE))
    name = newest.relative_to(prepared)
    aside = prepared / f"{name.parts[0]}/train/{finished.artifact('train').name}.damaged"
    assert f"train: {name} is damaged ({name / 'model.safetensors'} was altered" in went_on.err
    assert f" moved to {(aside / newest.name).relative_to(prepared)}.1\n" in went_on.err
    assert f"train: resuming after step {int(before.name.removeprefix('step-'))} of" in went_on.err
    assert contents(aside / f"{newest.name}.1") == damaged
    assert contents(artifact(prepared, "train")) == contents(finished.artifact("train"))


ALTERED = {  # what is altered at equal size, and a command that would show it or pass it on
    "score": ("score", "scores.json", ("score", "--json")),
    "score shown by run": ("score", "scores.json", ("run",)),
    "hypotheses": ("translate", "test/hypotheses.txt", ("run",)),
    "references": ("translate", "test/reference.txt", ("run",)),
    "vocabulary": ("prepare", "counts.json", ("plan",)),
    "counts": ("prepare", "counts.json", ("inspect",)),
    "corpus": ("prepare", "train.tgt.ids", ("inspect",)),
}


@pytest.mark.parametrize("name", list(ALTERED))
def test_what_was_altered_is_refused_before_it_is_shown(complete: Path, name: str) -> None:
    stage, file, (command, *options) = ALTERED[name]
    altered = artifact(complete, stage) / file
    content = altered.read_bytes()
    digit = next((i for i in range(len(content)) if content[i : i + 1].isalnum()), 0)
    altered.write_bytes(content[:digit] + b"7" + content[digit + 1 :])
    ended = nmtkit(complete, command, RECIPE, *options)
    assert f"{altered.relative_to(complete)} was altered" in sentence(ended)
    assert ended.out == ""


@pytest.mark.parametrize("name", ["model.safetensors", "progress.json", "../../model.json"])
def test_average_refuses_an_altered_file_of_training_by_name(complete: Path, name: str) -> None:
    shutil.rmtree(artifact(complete, "average"))
    altered = artifact(complete, "train") / "checkpoints" / "step-00000110" / name
    flip_byte(altered)
    said = sentence(nmtkit(complete, "average", RECIPE))
    assert altered.resolve().relative_to(complete.resolve()).as_posix() in said
    assert f"delete {artifact(complete, 'train').relative_to(complete)}" in said
    assert not list(complete.glob("runs/average/*/manifest.json"))


def test_average_needs_no_checkpoint_that_it_does_not_average(complete: Path) -> None:
    before = contents(artifact(complete, "average"))
    shutil.rmtree(artifact(complete, "average"))
    flip_byte(artifact(complete, "train") / "checkpoints" / "step-00000100" / "progress.json")
    done(nmtkit(complete, "average", RECIPE))
    assert contents(artifact(complete, "average")) == before


def test_altered_prepared_corpus_is_refused_by_name(prepared: Path) -> None:
    altered = artifact(prepared, "prepare") / "train.src.ids"
    flip_byte(altered)
    said = sentence(nmtkit(prepared, "train", RECIPE))
    assert f"{altered.relative_to(prepared)} was altered" in said


def test_bundle_with_altered_weights_is_refused_by_name(complete: Path) -> None:
    altered = artifact(complete, "average") / "model.safetensors"
    flip_byte(altered)
    bundle = os.fspath(altered.parent.relative_to(complete))
    said = sentence(nmtkit(complete, "translate", "--bundle", bundle, stdin=b"a b c\n"))
    assert f"{altered.relative_to(complete)} was altered" in said
