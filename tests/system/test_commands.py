"""The commands beside the chain: status, plan, recipes, a bundle in a shell, two files' scores."""

import gzip
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from system.command import (
    PATIENCE_S,
    RECIPE,
    Outcome,
    artifact,
    done,
    environment,
    nmtkit,
    outcome,
    read_lines,
    sentence,
    start,
    status,
    steps_done,
    wait_until,
)
from system.conftest import LONG_LINE, N_TEST, ODD_LINES, Finished

STAGES = ("prepare", "train", "average", "translate", "score")

# nmtkit status, plan, recipes


def test_status_tells_state_fingerprint_and_path_of_each_stage(
    workplace: Path, finished: Finished
) -> None:
    for made in ([], ["prepare"], STAGES):
        for stage in made:
            place = workplace / "runs" / stage
            if not place.exists():
                place.parent.mkdir(exist_ok=True)
                place.symlink_to(finished.folder / "runs" / stage, target_is_directory=True)
        stages = status(workplace)
        assert set(stages) == set(STAGES)
        for stage, state in stages.items():
            fingerprint = finished.artifact(stage).name
            assert state["state"] == ("fresh" if stage in made else "missing")
            assert state["fingerprint"] == fingerprint
            assert state["path"] == f"runs/{stage}/{fingerprint}"


def test_damaged_artifact_is_told_and_run_refuses_it_by_the_name_of_the_file(
    complete: Path,
) -> None:
    damaged = artifact(complete, "train") / "checkpoints" / "step-00000120" / "model.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    states = status(complete)
    assert [states[stage]["state"] for stage in STAGES] == ["fresh", "damaged", *["fresh"] * 3]
    name = damaged.relative_to(complete).as_posix()
    assert name in states["train"]["why"]
    assert name in sentence(nmtkit(complete, "run", RECIPE))


def test_results_of_a_run_are_json_where_that_is_asked_for(finished: Finished) -> None:
    told = json.loads(done(nmtkit(finished.folder, "run", RECIPE, "--json")).out)
    assert [stage["name"] for stage in told["stages"]] == list(STAGES)
    assert told["scores"] == json.loads((finished.artifact("score") / "scores.json").read_bytes())
    assert told["samples"]


# nmtkit --help


def test_quiet_leaves_results_and_errors(complete: Path) -> None:
    """The stages that run again tell of their progress otherwise."""
    changed = ("--set", "decoding.beam_size=1")
    ended = done(nmtkit(complete, "--quiet", "run", RECIPE, *changed))
    assert ended.err == ""
    assert "what was made" in ended.out
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
def test_nothing_slow_is_imported_that_is_not_needed(
    workplace: Path, typed: list[str], slow: set[str]
) -> None:
    code = (
        f"import sys; sys.argv = ['nmtkit', *{typed}]\n"
        "from nmtkit.cli import main\n"
        "try: main()\n"
        "finally: print(*sorted(sys.modules), file=sys.stderr)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        cwd=workplace,
        env=environment(),
        capture_output=True,
        text=True,
    )
    modules = ended.stderr.split()
    assert "typer" in modules
    assert not slow & set(modules)


# nmtkit translate --bundle


def test_bundle_translates_standard_input_line_by_line(finished: Finished) -> None:
    hypotheses = read_lines(finished.artifact("translate") / "test/hypotheses.txt")
    text = (finished.folder / "test.en").read_bytes().removesuffix(b"\n")  # no end of the last line
    ended = done(_translate(finished, text, "--beam", "3", "--length-penalty", "0.6"))
    assert ended.out == "".join(f"{line}\n" for line in hypotheses)
    assert len(hypotheses) == N_TEST + len(ODD_LINES)


def test_lone_line_is_translated_as_beside_others_and_answered_at_once(
    finished: Finished, tmp_path: Path
) -> None:
    shutil.copytree(_bundle(finished), tmp_path / "moved")  # a bundle needs nothing but its folder
    lines = ["a b c", "h g f e d c", "", "a"]
    together = done(_translate(finished, "\n".join(lines).encode())).out.split("\n")
    assert len(together) == len(lines) + 1
    with start(tmp_path, "translate", "--bundle", "moved") as process:
        for line, expected in zip(lines, together, strict=False):
            assert _answer(process, f"{line}\n".encode()).decode() == f"{expected}\n"
        ended = outcome(process)
    assert (ended.code, ended.out) == (0, "")


def test_long_line_of_a_stream_is_told_by_its_number_and_delays_no_other(
    finished: Finished,
) -> None:
    letters = "abcdefgh" * 700
    with start(finished.folder, "translate", "--bundle", _bundle(finished)) as process:
        for _ in range(3):
            short = _answer(process, b"a b c\n")
        assert short.strip()
        text = f"{letters}\na b c\n\n{LONG_LINE}\na b c"
        ended = outcome(process, text.encode())
    giant, *rest = done(ended).out.removesuffix("\n").split("\n")
    assert len(giant.split(" ")) >= 22
    assert rest[0] == rest[3] == short.decode().removesuffix("\n")
    assert rest[1] == ""
    assert rest[2]
    assert len(rest) == 4
    engine, first, second = ended.err.removesuffix("\n").split("\n")
    assert engine == "engine: ctranslate2"
    assert "line 4 is too long" in first
    assert "line 7 is too long" in second
    assert "its 2 pieces" in second


def test_lines_before_a_bad_one_are_translated(finished: Finished) -> None:
    expected = done(_translate(finished, b"a b c\n\nh g\n")).out
    ended = _translate(finished, b"a b c\n\nh g\nb \xe9\na\n")
    assert "standard input, line 4: byte 3 is not valid UTF-8" in sentence(ended)
    assert ended.out == expected


def test_reader_that_goes_away_ends_it_without_a_word(finished: Finished) -> None:
    with start(finished.folder, "translate", "--bundle", _bundle(finished)) as process:
        assert _answer(process, b"a b c\n")
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.close()
        process.stdin.write(b"a b c\n")
        process.stdin.flush()
        process.wait(PATIENCE_S)
        assert process.stderr is not None
        assert process.stderr.read() == b"engine: ctranslate2\n"


def test_a_file_gets_the_same_bytes_as_a_pipe(finished: Finished, tmp_path: Path) -> None:
    text = b"\xef\xbb\xbf" + (finished.folder / "test.en").read_bytes() + b"a b\r\nh g"
    (tmp_path / "in.gz").write_bytes(gzip.compress(text))
    (tmp_path / "out").write_bytes(b"of an earlier run\n")
    expected = done(_translate(finished, text)).out.encode()
    ended = done(_translate(finished, b"", "-i", f"{tmp_path}/in.gz", "-o", f"{tmp_path}/out"))
    assert (tmp_path / "out").read_bytes() == expected
    assert {path.name for path in tmp_path.iterdir()} == {"in.gz", "out"}
    assert ended.out == ""
    n_lines = expected.count(b"\n")
    assert f"out: {n_lines} of {n_lines} lines" in ended.err
    ended = done(_translate(finished, text, "-o", f"{tmp_path}/out"))
    assert (tmp_path / "out").read_bytes() == expected
    assert done(_translate(finished, b"", "-i", f"{tmp_path}/in.gz")).out.encode() == expected


def test_output_that_would_lose_something_is_left_alone(finished: Finished, tmp_path: Path) -> None:
    text, out = tmp_path / "in", tmp_path / "out"
    text.write_bytes(b"a b c\nb \xe9\n")
    out.write_bytes(b"of an earlier run\n")
    ended = _translate(finished, b"", "-i", f"{text}", "-o", f"{out}")
    assert f"{text}, line 2: byte 3 is not valid UTF-8" in sentence(ended)
    ended = _translate(finished, b"", "-i", f"{text}", "-o", f"{tmp_path}/../{tmp_path.name}/in")
    assert "are both" in sentence(ended)
    assert (text.read_bytes(), out.read_bytes()) == (b"a b c\nb \xe9\n", b"of an earlier run\n")
    ended = nmtkit(finished.folder, "translate", RECIPE, "-o", f"{out}")
    assert "--bundle" in sentence(ended)


@pytest.mark.parametrize("to_file", [False, True])
def test_ctrl_c_promises_nothing_of_a_stream(
    finished: Finished, tmp_path: Path, to_file: bool
) -> None:
    out = tmp_path / "out"
    draft = tmp_path / ".out.nmtkit" / "draft" / "text"
    options = ["-o", str(out)] if to_file else []
    with start(tmp_path, "translate", "--bundle", f"{_bundle(finished)}", *options) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"a b c\n")
        process.stdin.flush()
        if to_file:
            wait_until(draft.with_name("journal.json").exists, process)
        else:
            assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        ended = outcome(process)
    assert ended.code == 128 + signal.SIGINT
    kept = f"; what has been translated is in {draft}" if to_file else ""
    assert ended.err == f"engine: ctranslate2\nnmtkit: stopped{kept}\n"
    assert not out.exists()


def test_forced_decoding_rates_translations_as_the_search_does(
    finished: Finished, tmp_path: Path
) -> None:
    text = "a b c\n\nh g f e d c\na\n"
    (tmp_path / "src").write_text(text, encoding="utf-8", newline="\n")
    ended = done(_translate(finished, text.encode(), "--n-best", "3", "--format", "json"))
    told = [json.loads(line)["translations"] for line in ended.out.removesuffix("\n").split("\n")]
    assert [len(translations) for translations in told] == [3, 1, 3, 3]
    best = [translations[0] for translations in told]
    hypotheses = "".join(f"{translation['text']}\n" for translation in best)
    (tmp_path / "tgt").write_text(hypotheses, encoding="utf-8", newline="\n")
    files = [f"{tmp_path}/{side}" for side in ("src", "tgt")]
    options = ["--bundle", _bundle(finished), "--format", "json"]
    ended = done(nmtkit(finished.folder, "force", *files, *options))
    for line, translation in zip(ended.out.split("\n"), best, strict=False):
        (rated,) = json.loads(line)["translations"]
        assert rated["tokens"] == translation["tokens"]
        for key in ("score", "log_prob", "token_log_probs"):
            assert rated[key] == pytest.approx(translation[key], abs=2e-4)
    assert "force: 4 lines" in ended.err


def _answer(process: subprocess.Popen[bytes], line: bytes) -> bytes:
    """Send a line, and return what is answered before the next is sent."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(line)
    process.stdin.flush()
    return process.stdout.readline()


def _bundle(finished: Finished) -> str:
    return os.fspath(finished.artifact("average"))


def _translate(finished: Finished, text: bytes, *args: str) -> Outcome:
    return nmtkit(finished.folder, "translate", "--bundle", _bundle(finished), *args, stdin=text)


# nmtkit score HYP REF


def test_scores_of_two_files_are_named_and_say_how_they_were_counted(finished: Finished) -> None:
    hypotheses = os.fspath(finished.artifact("translate") / "test/hypotheses.txt")
    ended = done(nmtkit(finished.folder, "score", hypotheses, "test.de", "--lang", "de", "--json"))
    scores = json.loads(ended.out)[hypotheses]
    of_run = json.loads((finished.artifact("score") / "scores.json").read_bytes())["test"]
    for key in ("sacrebleu", "tokenized_bleu", "compound_split_bleu"):
        assert 0 <= scores[key]["score"] <= 100.0001
        assert scores[key]["how"]
        assert scores[key] == of_run[key]
    assert "bleu" not in scores


# nmtkit COMMAND | head


@pytest.mark.parametrize("command", ["recipes", "translate"])
def test_a_closed_pipe_ends_a_command_like_sigpipe(finished: Finished, command: str) -> None:
    options = ("--bundle", _bundle(finished)) if command == "translate" else ()
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.run(
        [sys.executable, "-m", "nmtkit", "--quiet", command, *options],
        check=False, cwd=finished.folder, env=environment(),
        input=b"a b\n", stdout=writer, stderr=subprocess.PIPE, timeout=PATIENCE_S,
    )  # fmt: skip
    os.close(writer)
    assert (process.returncode, process.stderr) == (128 + signal.SIGPIPE, b"")


# nmtkit average -o


def test_checkpoints_alone_average_to_the_bundle_of_their_recipe(
    finished: Finished, tmp_path: Path
) -> None:
    checkpoints = sorted(finished.artifact("train").glob("checkpoints/step-*"))[-2:]
    done(nmtkit(tmp_path, "average", *map(str, checkpoints), "-o", "mean"))
    bundle = finished.artifact("average")
    for name in ("model.safetensors", "model.json", "codes.bpe", "tokenization.json"):
        assert (tmp_path / "mean" / name).read_bytes() == (bundle / name).read_bytes()
    test = (finished.folder / "test.en").read_bytes()
    ended = done(nmtkit(tmp_path, "translate", "--bundle", "mean", stdin=test))
    hypotheses = read_lines(finished.artifact("translate") / "test/hypotheses.txt")
    assert ended.out == "".join(f"{line}\n" for line in hypotheses)
    shutil.copytree(checkpoints[0], tmp_path / "copy")
    refused = nmtkit(tmp_path, "average", "copy", "-o", "more")
    assert "copy is not in the folder of its training" in sentence(refused)
    both = done(nmtkit(tmp_path, "average", "copy", str(bundle), "-o", "more"))
    assert both.out == "more\n"


def test_average_tells_what_there_is_of_a_running_training_and_how_to_average_it(
    prepared: Path,
) -> None:
    process = start(prepared, "train", RECIPE)
    wait_until(lambda: steps_done(prepared) >= 25, process)
    process.send_signal(signal.SIGSTOP)
    assert status(prepared)["train"]["state"] == "running"
    told = sentence(nmtkit(prepared, "average", RECIPE))
    assert "is running" in told
    command = shlex.split(told.split("`")[1])
    done(nmtkit(prepared, *command[1:]))
    assert (prepared / command[-1] / "model.safetensors").is_file()
    process.kill()
    outcome(process)
    assert status(prepared)["train"]["state"] == "partial"
    assert "was stopped" in sentence(nmtkit(prepared, "average", RECIPE))
