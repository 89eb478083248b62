"""Files that commands write: they replace no input, change no artifact, and keep permissions."""

import json
import os
import pty
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from nmtkit.rendering.show import as_json
from nmtkit.store.output_check import check_output
from system.command import RECIPE, artifact, contents, done, environment, nmtkit, sentence


@pytest.fixture
def hypotheses(complete: Path) -> None:
    """Write two systems' translations of the test set, one.de and two.de."""
    for name in ("one.de", "two.de"):
        shutil.copyfile(complete / "test.de", complete / name)


def with_bundle(folder: Path) -> str:
    return str(artifact(folder, "average").relative_to(folder))


INPUTS = {
    "translate --recipe ./tiny.toml -i dev.en -o": ["tiny.toml", "test.de", "train.en", "dev.en"],
    "translate --bundle BUNDLE -i dev.en -o": ["dev.en"],
    "inspect tiny.toml --html": ["tiny.toml", "train.de"],
    "compare one.de two.de --ref test.de --lang de --src test.en --html": [
        "one.de",
        "two.de",
        "test.de",
        "test.en",
    ],
    "compare tiny.toml one.de --html": ["tiny.toml", "test.de", "one.de"],
}


@pytest.mark.usefixtures("hypotheses")
@pytest.mark.parametrize("link", ["", "symlink", "hard link"])
@pytest.mark.parametrize("command", INPUTS)
def test_outputs_replace_no_input(command: str, link: str, complete: Path) -> None:
    words = command.replace("BUNDLE", with_bundle(complete)).split(" ")
    for name in INPUTS[command]:
        output = name
        if link:
            output = f"linked-{name}"
            create = os.symlink if link == "symlink" else os.link
            create(complete / name, complete / output)
        before = contents(complete)
        message = sentence(nmtkit(complete, *words, output))
        assert output in message
        assert contents(complete) == before


def test_output_keeps_standard_input(complete: Path) -> None:
    text = (complete / "dev.en").read_bytes()
    command = ["translate", "--bundle", with_bundle(complete), "-o", "dev.en"]
    with (complete / "dev.en").open("rb") as stdin:
        ended = subprocess.run(
            [sys.executable, "-m", "nmtkit", *command],
            cwd=complete,
            env=environment(),
            stdin=stdin,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert ended.returncode == 1
    assert b"Traceback" not in ended.stderr
    assert (complete / "dev.en").read_bytes() == text


OUTPUTS = (
    "translate --bundle BUNDLE -i dev.en -o BUNDLE/out.de",
    "translate --bundle BUNDLE -i dev.en -o BUNDLE/deep/out.de",
    "translate --recipe tiny.toml -i dev.en -o linked/out.de",
    "translate --bundle BUNDLE -i dev.en -o BUNDLE/model.json",
    "attention abc --bundle BUNDLE --svg BUNDLE/a.svg",
    "attention abc --bundle BUNDLE --html linked/a.html",
    "compare one.de two.de --ref test.de --lang de --html BUNDLE/c.html",
    "inspect tiny.toml --html BUNDLE/i.html",
    "report tiny.toml -o BUNDLE/report",
    "report tiny.toml -o BUNDLE",
    "export BUNDLE BUNDLE/exported --format huggingface",
    "export BUNDLE BUNDLE --format huggingface",
    "average BUNDLE BUNDLE -o BUNDLE/mean",
    "import model.pt BUNDLE/bundle --codes codes --lang en-de",
    "train tiny.toml --tensorboard BUNDLE/events",
)


@pytest.mark.usefixtures("hypotheses")
@pytest.mark.parametrize("command", OUTPUTS)
def test_outputs_change_no_artifact(command: str, complete: Path) -> None:
    bundle = with_bundle(complete)
    (complete / bundle / "deep").mkdir()
    (complete / "linked").symlink_to(bundle)
    before = contents(complete)
    message = sentence(nmtkit(complete, *command.replace("BUNDLE", bundle).split(" ")))
    assert artifact(complete, "average").name in message
    assert contents(complete) == before
    assert not list(artifact(complete, "average").glob(".*"))


def test_same_output_twice_is_refused(complete: Path) -> None:
    command = ("attention", "abc", "--bundle", with_bundle(complete), "--html", "out")
    assert "out" in sentence(nmtkit(complete, *command, "--svg", "./out"))
    assert not (complete / "out").exists()


def test_looped_link_is_replaced(complete: Path) -> None:
    (complete / "loop").symlink_to("loop")
    command = ("translate", "--bundle", with_bundle(complete), "-i", "dev.en", "-o", "loop")
    done(nmtkit(complete, *command))
    assert (complete / "loop").is_file()


def test_foreign_manifests_are_ignored(tmp_path: Path) -> None:
    manifest = tmp_path / "manifest.json"
    for text in ('{"name": "app", "icons": []}', "no JSON", '{"format": 2, "kind": "average"}'):
        manifest.write_text(text, encoding="utf-8")
        check_output("--output", tmp_path / "out.de", [])


def test_report_keeps_altered_files(complete: Path) -> None:
    done(nmtkit(complete, "report", RECIPE))
    listed = json.loads((complete / "report" / "report.json").read_bytes())
    own, _ = listed["files"].popitem()
    (complete / "report" / own).write_text("mine", encoding="utf-8")
    (complete / "report" / "report.json").write_text(json.dumps(listed), encoding="utf-8")
    assert own in sentence(nmtkit(complete, "report", RECIPE))
    assert (complete / "report" / own).read_text(encoding="utf-8") == "mine"


# Permissions


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("hypotheses")
@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("translate --recipe tiny.toml -i dev.en -o out", "out"),
        ("inspect tiny.toml --html out", "out"),
        ("attention abc --bundle BUNDLE --html out", "out"),
        ("compare one.de two.de --ref test.de --lang de --html out", "out"),
        ("report tiny.toml", "report/report.html"),
    ],
)
@pytest.mark.parametrize("bits", [0o600, 0o664])
def test_output_keeps_permissions(command: str, output: str, bits: int, complete: Path) -> None:
    command = command.replace("BUNDLE", with_bundle(complete))
    old_mask = os.umask(0o027)
    try:
        done(nmtkit(complete, *command.split(" ")))
        assert mode(complete / output) == 0o640
        (complete / output).chmod(bits)
        done(nmtkit(complete, *command.split(" ")))
        assert mode(complete / output) == bits
    finally:
        os.umask(old_mask)


# Control characters

UNSEEN = "a\x9bb\u202ec\x7f\U000e0041"


def test_json_escapes_unseen_characters() -> None:
    value = {UNSEEN: [UNSEEN, "\u200d\n\ud800 ü"]}
    text = as_json(value)
    assert json.loads(text) == value
    assert all(line.replace("\u200d", "").isprintable() for line in text.split("\n"))


def test_printed_path_of_any_bytes(complete: Path) -> None:
    """`$(nmtkit average tiny)` must find the folder, whatever its name is."""
    runs = os.fsdecode(b"runs \x9b\xe2\x80\xae\xff")
    (complete / "runs").rename(complete / runs)
    command = ("average", RECIPE, "--runs-dir", runs)
    words = [sys.executable, "-m", "nmtkit", *command]
    piped = subprocess.run(
        words, cwd=complete, env=environment(), stdout=subprocess.PIPE, check=True
    )
    assert (complete / os.fsdecode(piped.stdout.removesuffix(b"\n"))).is_dir()
    terminal, its_end = pty.openpty()
    subprocess.run(words, cwd=complete, env=environment(), stdout=its_end, check=True)
    os.close(its_end)
    assert b"<U+202E>" in os.read(terminal, 10_000)
    os.close(terminal)
