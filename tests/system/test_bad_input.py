"""Bad input: one sentence that names the mistake, and no artifact is published."""

import errno
import os
import resource
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from nmtkit.cli import app as cli
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
)
from system.conftest import N_TEST, N_TRAIN, UNUSUAL_LINES, Finished

Change = Callable[[bytes], bytes]  # of a file's content
PREPARE = ("prepare", RECIPE, "--workers", "1")


@pytest.mark.parametrize(
    ("files", "change", "command", "message"),
    [
        (RECIPE, lambda old: old.replace(b'"train.de"', b'"none.de"'), PREPARE, "none.de"),
        (RECIPE, lambda old: old.replace(b"beam_size", b"beam_sise"), PREPARE, "'beam_size'"),
        ("train.de", lambda old: old + b"ein\n", PREPARE, f"{N_TRAIN + 1}"),
        ("train.de", lambda old: old + b"ein\n", (*PREPARE[:-1], "2"), f"{N_TRAIN + 1}"),
        ("test.de", lambda old: old + b"ein\n", PREPARE, f"{N_TEST + len(UNUSUAL_LINES) + 1}"),
        ("train.en", lambda old: b"a\n" * 6 + b"\xff" + old, PREPARE, "train.en, line 7"),
        ("train.en train.de", lambda _: b"", PREPARE, "train.en-de has no sentence pairs"),
        ("test.en test.de", lambda _: b"\n \n", PREPARE, "contains only blank lines"),
        ("", None, (*PREPARE, "--set", "corpus.max_tokens=1"), f"{N_TRAIN} too long"),
        ("", None, ("run", "dmeo"), "'demo'"),
        ("", None, ("train", RECIPE), "nmtkit prepare"),
        ("", None, ("plan", RECIPE, "--device", "cuda:99"), "--device cuda:99"),
        ("", None, ("prepare", "multi30k-en-de", "--mirror", "nowhere"), "nowhere"),
        ("", None, (*PREPARE, "--runs-dir", "train.en"), "train.en"),
        ("", None, ("translate",), "--recipe"),
        ("", None, ("translate", "--bundle", "."), "."),
    ],
)
def test_mistake_is_one_sentence(
    workplace: Path, files: str, change: Change, command: tuple[str, ...], message: str
) -> None:
    for name in files.split():
        path = workplace / name
        path.write_bytes(change(path.read_bytes()))
    assert message in sentence(nmtkit(workplace, *command))
    assert not list(workplace.glob("runs/*/*/manifest.json"))


def test_hostile_names_are_escaped(workplace: Path) -> None:
    (workplace / "dev.tmx").write_text("<\u202etmx/>", encoding="utf-8", newline="\n")
    (workplace / "none\x1b[2J").symlink_to("nowhere")
    for dev in ('{ tmx = "dev.tmx" }', '{ src = "none\\u001b[2J\\n", tgt = "dev.de" }'):
        ended = nmtkit(workplace, *PREPARE, "--set", f"corpus.dev={dev}")
        assert sentence(ended).isprintable()
        ended = done(nmtkit(workplace, "status", RECIPE, "--set", f"corpus.dev={dev}"))
        assert "\x1b" not in ended.out + ended.err


def test_runs_folder_without_unicode(workplace: Path) -> None:
    runs = "runs\udcff"  # the byte 0xff, as Python decodes it
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
def test_closed_streams(workplace: Path, finished: Finished, closed: str) -> None:
    def shell(*args: str) -> tuple[int, bytes]:
        command = f"{shlex.join([sys.executable, '-m', 'nmtkit', *args])} {closed}"
        ended = subprocess.run(
            command, shell=True, check=False, cwd=workplace, env=environment(),
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        return ended.returncode, ended.stderr

    code, err = shell("prepare", RECIPE, "--workers", "2")
    # The artifact is published, but its path could not be printed.
    is_printed = closed in ("<&-", "2>&-")
    assert (code, b"Traceback" in err) == (0 if is_printed else 1, False)
    assert contents(artifact(workplace, "prepare")) == contents(finished.artifact("prepare"))
    code, err = shell("translate", "--bundle", str(finished.artifact("average")))
    is_read = "<&-" not in closed  # an empty input, and so no output
    assert (code, b"Traceback" in err) == (0 if is_read else 1, False)


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_prepare_with_little_memory(workplace: Path, workers: str) -> None:
    words = (" ".join(f"{n:x}{i:x}" for i in range(50)) for n in range(40_000))
    text = "\n".join(words) + "\n"
    for side in ("en", "de"):
        (workplace / f"train.{side}").write_text(text, encoding="utf-8", newline="\n")
    command = ("prepare", RECIPE, "--workers", workers, "--set", "corpus.tokenizer=none")
    variables = environment(OPENBLAS_NUM_THREADS="1")
    limit = partial(resource.setrlimit, resource.RLIMIT_AS, (250_000 * 1_024,) * 2)
    message = sentence(nmtkit(workplace, *command, preexec_fn=limit, env=variables))
    assert "out of memory" in message or "lack of memory" in message


@pytest.mark.slow
@pytest.mark.parametrize("kibibytes", [700_000, 400_000, 200_000])
@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
def test_translate_with_little_memory(finished: Finished, kibibytes: int, engine: str) -> None:
    """One sentence, also if the libraries do not fit into memory."""
    command = ("translate", "--bundle", str(finished.artifact("average")), "--engine", engine)
    limit = partial(resource.setrlimit, resource.RLIMIT_AS, (kibibytes * 1_024,) * 2)
    variables = environment(OPENBLAS_NUM_THREADS="1")
    ended = nmtkit(finished.folder, *command, stdin=b"a\n", preexec_fn=limit, env=variables)
    assert ended.code == 0 or "out of memory" in sentence(ended)
    assert kibibytes > 200_000 or ended.code == 1


@pytest.mark.parametrize(
    "error",
    [
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
        RuntimeError("mkl_malloc: failed to allocate memory"),
        MemoryError(),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("can't start new thread"),
    ],
)
def test_out_of_memory_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(cli, "app", fail)
    assert "out of memory" in sentence(nmtkit(tmp_path))


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_read_only_folder_is_named(workplace: Path) -> None:
    (workplace / "runs").mkdir(mode=0o555)
    assert "runs/prepare" in sentence(nmtkit(workplace, *PREPARE))


def test_full_disk_keeps_finished_work(workplace: Path, finished: Finished) -> None:
    def message_with_limit(n_bytes: int, *args: str) -> str:
        limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (n_bytes, n_bytes))
        env = environment(PYTHONDONTWRITEBYTECODE="1")
        return sentence(nmtkit(workplace, *args, preexec_fn=limit, env=env))

    assert "the disk is full" in message_with_limit(4_000, *PREPARE)
    assert not list(workplace.glob("runs/*/*/manifest.json"))
    done(nmtkit(workplace, *PREPARE))
    assert contents(artifact(workplace, "prepare")) == contents(finished.artifact("prepare"))
    assert "model.safetensors" in message_with_limit(80_000, "train", RECIPE)
    assert status(workplace)["train"]["state"] == "partial"


NEWEST, OLDER = (f"checkpoints/step-{step:08d}/" for step in (110, 100))


@pytest.mark.parametrize(
    ("stage", "file", "absent", "command"),  # a command that would print the file or use it
    [
        ("score", "scores.json", "", ("score", RECIPE, "--json")),
        ("score", "scores.json", "", ("run", RECIPE)),
        ("translate", "test/hypotheses.txt", "", ("run", RECIPE)),
        ("translate", "test/reference.txt", "", ("run", RECIPE)),
        ("prepare", "counts.json", "", ("plan", RECIPE)),
        ("prepare", "train.tgt.ids", "", ("inspect", RECIPE)),
        ("prepare", "train.src.ids", "train", ("train", RECIPE)),
        ("train", f"{NEWEST}model.safetensors", "average", ("average", RECIPE)),
        ("train", f"{NEWEST}progress.json", "average", ("average", RECIPE)),
        ("train", "model.json", "average", ("average", RECIPE)),
        # CTranslate2 would use its cached conversion of the original bundle.
        ("average", "model.safetensors", "", ("translate", "--engine=torch", "--bundle")),
    ],
)
def test_altered_file_is_refused(
    complete: Path, stage: str, file: str, absent: str, command: tuple[str, ...]
) -> None:
    altered = artifact(complete, stage) / file
    content = altered.read_bytes()
    alnum = next((i for i in range(len(content)) if content[i : i + 1].isalnum()), 0)
    altered.write_bytes(content[:alnum] + b"7" + content[alnum + 1 :])
    if absent:
        shutil.rmtree(complete / "runs" / absent)
    if command[-1] == "--bundle":
        command = (*command, f"runs/average/{artifact(complete, stage).name}")
    ended = nmtkit(complete, *command, stdin=b"a b c\n")
    assert f"{altered.relative_to(complete)}" in sentence(ended)
    assert ended.out == ""
    assert not absent or not list(complete.glob(f"runs/{absent}/*/manifest.json"))


def test_average_reads_only_its_inputs(complete: Path) -> None:
    before = contents(artifact(complete, "average"))
    shutil.rmtree(artifact(complete, "average"))
    flip_byte(artifact(complete, "train") / OLDER / "progress.json")
    done(nmtkit(complete, "average", RECIPE))
    assert contents(artifact(complete, "average")) == before
