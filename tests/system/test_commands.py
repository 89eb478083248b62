"""Other commands: results as JSON, a bundle in a shell, a running training."""

import csv
import gzip
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nmtkit.stages.pipeline import STAGES
from system.command import (
    PATIENCE_S,
    RECIPE,
    Outcome,
    artifact,
    done,
    nmtkit,
    outcome,
    sentence,
    start,
    status,
    steps_done,
    wait_until,
)
from system.conftest import LONG_LINE, Finished

# nmtkit status, run


def test_status_of_stages(complete: Path, finished: Finished) -> None:
    shutil.rmtree(complete / "runs" / "score")
    damaged = artifact(complete, "train") / "checkpoints" / "step-00000120" / "model.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    stages = status(complete)
    assert {name: stage["state"] for name, stage in stages.items()} == {
        "prepare": "done",
        "train": "damaged",
        "average": "done",
        "translate": "done",
        "score": "missing",
    }
    for name, stage in stages.items():
        assert stage["fingerprint"] == finished.artifact(name).name
        assert stage["path"] == f"runs/{name}/{stage['fingerprint']}"
    damage = damaged.relative_to(complete).as_posix()
    assert damage in stages["train"]["why"]
    assert damage in sentence(nmtkit(complete, "run", RECIPE))


def test_run_prints_json(finished: Finished) -> None:
    results = json.loads(done(nmtkit(finished.folder, "run", RECIPE, "--json")).out)
    assert [stage["name"] for stage in results["stages"]] == list(STAGES)
    scores = json.loads((finished.artifact("score") / "scores.json").read_bytes())
    assert results["scores"] == scores
    assert results["samples"]


def test_run_prints_scores_as_csv(finished: Finished) -> None:
    printed = done(nmtkit(finished.folder, "run", RECIPE, "--table", "csv")).out
    scored = [(row["system"], row["metric"]) for row in csv.DictReader(io.StringIO(printed))]
    # The run, as `nmtkit runs` prints it: two of them can be told apart.
    assert (f"./{RECIPE}", "sacrebleu") in scored
    assert {system for system, _ in scored} == {f"./{RECIPE}"}


# nmtkit --help


def test_quiet_leaves_results_and_errors(complete: Path) -> None:
    """Without --quiet, the stages that are run print their progress."""
    changed = ("--set", "decoding.beam_size=1")
    (artifact(complete, "prepare") / "measurements.json").write_bytes(b"\xff")
    ended = done(nmtkit(complete, "--quiet", "run", RECIPE, *changed))
    assert ended.err == ""
    assert "artifacts" in ended.out
    assert re.search(r"│ +[0-9,]+ pairs", ended.out)  # and no seconds before them
    ended = nmtkit(complete, "--quiet", "train", RECIPE, "--device", "cuda:99")
    assert ended.err == f"{sentence(ended)}\n"
    assert ended.out == ""


SLOW = {"torch", "numpy", "sacremoses", "sacrebleu", "datasets", "subword_nmt", "jinja2"}


@pytest.mark.parametrize(
    ("typed", "slow"),
    [
        (["--help"], {*SLOW, "pydantic", "rich"}),
        (["status", RECIPE], SLOW),
        *(([name, "-h"], {"torch", "sacrebleu"}) for name in ("run", "translate", "score", "new")),
    ],
)
def test_commands_import_nothing_slow(workplace: Path, typed: list[str], slow: set[str]) -> None:
    code = (
        f"import sys; sys.argv = ['nmtkit', *{typed}]\n"
        "from nmtkit.cli.app import main\n"
        "try: main()\n"
        "finally: print(*sorted(sys.modules), file=sys.stderr)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], check=True, cwd=workplace, capture_output=True, text=True
    )
    modules = ended.stderr.split()
    assert "typer" in modules
    assert not slow & set(modules)


# nmtkit translate --bundle

# The engine of a recipe's stages, and the only one whose output does not depend on batching.
TORCH = ("--engine", "torch")


def test_bundle_translates_stdin(finished: Finished) -> None:
    text = (finished.folder / "test.en").read_bytes().removesuffix(b"\n")  # no end of the last line
    options = (*TORCH, "--beam", "3", "--length-penalty", "0.6")
    ended = done(translate(finished, text, *options))
    hypotheses = finished.artifact("translate") / "test/hypotheses.txt"
    assert ended.out == hypotheses.read_text(encoding="utf-8")


def test_bundle_of_recipe_is_found(
    finished: Finished,
) -> None:
    typed = ("translate", "--recipe", RECIPE, *TORCH, "-i", "test.en")
    ended = done(nmtkit(finished.folder, *typed))
    hypotheses = finished.artifact("translate") / "test/hypotheses.txt"
    assert ended.out == hypotheses.read_text(encoding="utf-8")
    other = ("--set", "averaging.n_checkpoints=1")
    message = sentence(nmtkit(finished.folder, *typed, *other))
    assert f"`nmtkit average {RECIPE} --set={other[1]}`" in message


def test_typed_lines_equal_batch(finished: Finished, tmp_path: Path) -> None:
    shutil.copytree(bundle(finished), tmp_path / "moved")  # a bundle needs nothing but its folder
    lines = ["a b c", "h g f e d c", "", "a"]
    together = done(translate(finished, "\n".join(lines).encode(), *TORCH)).out
    with start(tmp_path, "translate", "--bundle", "moved", *TORCH) as process:
        answers = [answer(process, f"{line}\n".encode()).decode() for line in lines]
        text = f"{'abcdefgh' * 700}\na b c\n\n{LONG_LINE}\na b c"
        ended = done(outcome(process, text.encode()))
    assert "".join(answers) == together
    giant, short, empty, long, last = ended.out.removesuffix("\n").split("\n")
    assert len(giant.split(" ")) >= 22
    assert (f"{short}\n", f"{empty}\n", f"{last}\n") == (answers[0], answers[2], answers[0])
    assert long
    assert re.findall(r"warning: line (\d) has", ended.err) == ["5", "8"]


def test_lines_before_invalid_utf8(finished: Finished) -> None:
    expected = done(translate(finished, b"a b c\n\nh g\n", *TORCH)).out
    ended = translate(finished, b"a b c\n\nh g\nb \xe9\na\n", *TORCH)
    assert "standard input, line 4: byte 3" in sentence(ended)
    assert ended.out == expected


def test_closed_reader_is_silent(finished: Finished) -> None:
    for command in (("translate", "--bundle", bundle(finished)), ("recipes",)):
        with start(finished.folder, "--quiet", *command) as process:
            assert command == ("recipes",) or answer(process, b"a b c\n")
            assert process.stdout
            assert process.stderr
            process.stdout.close()
            send(process, b"a b c\n")
            assert process.wait(PATIENCE_S) == 128 + signal.SIGPIPE
            assert process.stderr.read() == b""


def test_file_equals_pipe(finished: Finished, tmp_path: Path) -> None:
    text = b"\xef\xbb\xbf" + (finished.folder / "test.en").read_bytes() + b"a b\r\nh g"
    source = tmp_path / "in.gz"
    out = tmp_path / "out"
    source.write_bytes(gzip.compress(text))
    out.write_bytes(b"of an earlier run\n")
    expected = done(translate(finished, text, *TORCH)).out
    assert done(translate(finished, b"", *TORCH, "-i", f"{source}", "-o", f"{out}")).out == ""
    assert out.read_bytes() == expected.encode()
    assert {path.name for path in tmp_path.iterdir()} == {"in.gz", "out"}
    done(translate(finished, text, *TORCH, "-o", f"{out}"))
    assert out.read_bytes() == expected.encode()
    assert done(translate(finished, b"", *TORCH, "-i", f"{source}")).out == expected


def test_failed_command_keeps_output(finished: Finished, tmp_path: Path) -> None:
    text = tmp_path / "in"
    out = tmp_path / "out"
    text.write_bytes(b"a b c\nb \xe9\n")
    out.write_bytes(b"of an earlier run\n")
    ended = translate(finished, b"", "-i", f"{text}", "-o", f"{out}")
    assert f"{text}, line 2: byte 3" in sentence(ended)
    same = f"{tmp_path}/../{tmp_path.name}/in"
    assert same in sentence(translate(finished, b"", "-i", f"{text}", "-o", same))
    assert (text.read_bytes(), out.read_bytes()) == (b"a b c\nb \xe9\n", b"of an earlier run\n")


@pytest.mark.parametrize("options", [[], ["-o", "out"]])
def test_ctrl_c_stops_translation(finished: Finished, tmp_path: Path, options: list[str]) -> None:
    draft = tmp_path / ".out.nmtkit" / "draft" / "text"
    with start(tmp_path, "translate", "--bundle", bundle(finished), *options) as process:
        if options:
            send(process, b"a b c\n")
            wait_until(lambda: draft.exists() and draft.stat().st_size > 0, process)
        else:
            assert answer(process, b"a b c\n")
        process.send_signal(signal.SIGINT)
        ended = outcome(process)
    assert ended.code == 128 + signal.SIGINT
    assert "stopped" in sentence(ended)
    assert "resume" not in sentence(ended)
    assert not (tmp_path / "out").exists()


def test_damaged_pipe_keeps_finished_lines(finished: Finished, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ended = translate(finished, b"a b c\nb \xe9\n", "-o", str(out))
    assert ended.code == 1
    draft = tmp_path / ".out.nmtkit" / "draft" / "text"
    assert f"the finished lines are in {draft}\n" in ended.err
    assert draft.read_bytes().count(b"\n") == 1
    assert not out.exists()


def send(process: subprocess.Popen[bytes], line: bytes) -> None:
    assert process.stdin
    process.stdin.write(line)
    process.stdin.flush()


def answer(process: subprocess.Popen[bytes], line: bytes) -> bytes:
    """Send a line, and return the line that is printed before the next one is sent."""
    send(process, line)
    assert process.stdout
    return process.stdout.readline()


def bundle(finished: Finished) -> str:
    return os.fspath(finished.artifact("average"))


def translate(finished: Finished, text: bytes, *args: str) -> Outcome:
    return nmtkit(finished.folder, "translate", "--bundle", bundle(finished), *args, stdin=text)


# nmtkit average


def test_average_of_running_training(
    prepared: Path,
) -> None:
    keep = "--set", "training.keep_checkpoints=100"
    process = start(prepared, "train", RECIPE, *keep)
    wait_until(lambda: steps_done(prepared) >= 25, process)
    process.send_signal(signal.SIGSTOP)
    assert status(prepared, *keep)["train"]["state"] == "running"
    message = sentence(nmtkit(prepared, "average", RECIPE, *keep))
    assert "is running" in message
    command = shlex.split(message.split("`")[1])
    done(nmtkit(prepared, *command[1:]))
    assert (prepared / command[-1] / "model.safetensors").is_file()
    process.kill()
    outcome(process)
    assert status(prepared, *keep)["train"]["state"] == "partial"
    assert "was stopped" in sentence(nmtkit(prepared, "average", RECIPE, *keep))
