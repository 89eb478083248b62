"""The command `translate` on text, and the options of its two forms."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from system.command import done
from system.command import nmtkit as nmtkit_command
from typer.testing import CliRunner

from nmtkit.cli import app as cli
from nmtkit.utils.errors import UserError

SENTENCES = ["Who looked?", "The cat sat.", "A dog ran away."]


@pytest.mark.parametrize("output_format", ["text", "json", "fairseq", "moses"])
def test_command_splits_lines(output_format: str, bundle: Path, tmp_path: Path) -> None:
    """A line of sentences stays one line, without a warning; --no-split translates it whole."""
    line = " ".join(SENTENCES[:2])
    command = ["translate", "--bundle", f"{bundle}", "--format", output_format]
    stdin = f"{line}\n\n".encode()
    split = done(nmtkit_command(tmp_path, *command, stdin=stdin))
    whole = done(nmtkit_command(tmp_path, *command, "--no-split", stdin=stdin))
    assert split.out != whole.out
    n_lines = 8 if output_format == "fairseq" else 2
    assert split.out.count("\n") == whole.out.count("\n") == n_lines
    assert "warning" not in split.err + whole.err
    if output_format == "text":
        separate_lines = "".join(f"{sentence}\n" for sentence in SENTENCES[:2]).encode()
        separate = done(nmtkit_command(tmp_path, *command, stdin=separate_lines)).out
        assert split.out == f"{separate.removesuffix(chr(10)).replace(chr(10), ' ')}\n\n"


def test_dash_is_standard_stream(bundle: Path, tmp_path: Path) -> None:
    command = ["translate", "--bundle", f"{bundle}"]
    expected = done(nmtkit_command(tmp_path, *command, stdin=b"cat!\n")).out
    dashes = ["--input", "-", "--output", "-"]
    assert done(nmtkit_command(tmp_path, *command, *dashes, stdin=b"cat!\n")).out == expected
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "-").write_bytes(b"cat!\n")
    assert done(nmtkit_command(tmp_path, *command, "-i", "./-", "-o", "-")).out == expected
    assert (
        done(nmtkit_command(tmp_path, *command, "-i", "-", "-o", "./-", stdin=b"cat!\n")).out == ""
    )
    assert (tmp_path / "-").read_text(encoding="utf-8") == expected


def test_samples_are_repeated_by_seed(bundle: Path, tmp_path: Path) -> None:
    command = ["translate", "--bundle", f"{bundle}", "--sample", "--engine", "torch"]
    stdin = "".join(f"{sentence}\n" for sentence in SENTENCES).encode()
    drawn = []
    for options in ("--temperature 4", "--temperature 4 --seed 1", "--temperature 4 --seed 2"):
        drawn.append(done(nmtkit_command(tmp_path, *command, *options.split(), stdin=stdin)).out)
    assert drawn[0] == drawn[1] != drawn[2]
    # A file has its lines in parts, with other batches.
    (tmp_path / "in").write_bytes(stdin)
    files = ["-i", "in", "-o", "out", "--temperature", "4"]
    done(nmtkit_command(tmp_path, *command, *files))
    assert (tmp_path / "out").read_text(encoding="utf-8") == drawn[0]
    # The most probable token is that of greedy search.
    greedy = ["translate", "--bundle", f"{bundle}", "--engine", "torch", "--beam", "1"]
    expected = done(nmtkit_command(tmp_path, *greedy, stdin=stdin)).out
    assert done(nmtkit_command(tmp_path, *command, "--top-k", "1", stdin=stdin)).out == expected


@pytest.mark.parametrize(
    "options",
    [
        "--sample --beam 2",
        "--sample --n-best 2",
        "--top-k 2",
        "--temperature 2",
        "--seed 0",
        "--sample --temperature 0",
        "--sample --top-k 0",
        "--sample --seed -1",
    ],
)
def test_options_of_sampling(options: str, bundle: Path) -> None:
    command = ["translate", "--bundle", f"{bundle}", "--input", os.devnull, *options.split()]
    ended = CliRunner().invoke(cli.app, command)
    assert ended.exit_code != 0
    assert options.split(" ")[-2] in f"{ended.exception} {ended.stderr}"


# The two forms

TEXT_OPTIONS = (
    "--bundle b",
    "--recipe demo",
    "--input i",
    "--output o",
    "--plain",
    "--beam 2",
    "--length-penalty 0",
    "--n-best 2",
    "--format json",
    "--alignment",
    "--engine torch",
    "--dtype int8",
    "--no-split",
    "--sample",
    "--top-k 2",
    "--temperature 2",
    "--seed 0",
)


@pytest.mark.parametrize("option", TEXT_OPTIONS)
def test_recipe_form_refuses_options_of_text(option: str) -> None:
    ended = CliRunner().invoke(cli.app, ["translate", "demo", *option.split()])
    assert isinstance(ended.exception, UserError)
    assert option.split(" ", maxsplit=1)[0] in str(ended.exception)
    assert "--recipe RECIPE -i FILE" in str(ended.exception)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ("--bundle b --mirror .", "--mirror"),
        ("--bundle b --force", "--force"),
        ("--recipe demo --force", "--force"),
        ("--bundle b --set decoding.beam_size=2", "--set"),
        ("--bundle b --runs-dir other", "--runs-dir"),
        ("--bundle b --recipe demo", "--bundle"),
        ("--input text", "--bundle"),
        ("--bundle b --format text --n-best 2", "--n-best"),
        ("--bundle b --format pharaoh --n-best 2", "--n-best"),
        ("--bundle b --format moses --alignment", "--alignment"),
        ("--bundle b --alignment", "--alignment"),
    ],
)
def test_text_form_refuses_other_options(options: str, named: str) -> None:
    ended = CliRunner().invoke(cli.app, ["translate", *options.split()])
    assert isinstance(ended.exception, UserError)
    assert named in str(ended.exception)


def test_recipe_in_place_of_bundle(bundle: Path, tmp_path: Path) -> None:
    """A name that is no folder is explained; two models, or none, are refused."""
    text = tmp_path / "a.en"
    text.write_text("cat!\n", encoding="utf-8", newline="\n")
    for command in (
        ["attention", "cat!"],
        ["force", str(text), str(text)],
        ["bench", "translate", "-i", str(text)],
        ["export", str(tmp_path / "new"), "--format=ctranslate2"],
    ):
        no_model = "expected one source" if command[0] == "export" else "the model is missing"
        for options, message in (
            ([], no_model),
            (["--recipe=demo"], "recipe demo: .* no artifact of `average`"),
        ):
            with pytest.raises(UserError, match=message):
                run_in(tmp_path, [*command, *options])
        if command[0] != "export":
            with pytest.raises(UserError, match="pass --recipe demo"):
                run_in(tmp_path, [*command, "--bundle=demo"])
            with pytest.raises(UserError, match=r"mine.toml does not exist; .* --recipe"):
                run_in(tmp_path, [*command, "--bundle=mine.toml"])
            # The beginning of a recipe's name is no recipe.
            with pytest.raises(UserError, match="dem does not exist"):
                run_in(tmp_path, [*command, "--bundle=dem"])
            with pytest.raises(UserError, match="both name a model"):
                run_in(tmp_path, [*command, "--recipe=demo", f"--bundle={bundle}"])


def run_in(folder: Path, command: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        CliRunner().invoke(cli.app, command, catch_exceptions=False)


@pytest.mark.parametrize("command", ["-q translate", "translate -q", "translate --quiet"])
def test_quiet_before_and_after_command(command: str, bundle: Path, tmp_path: Path) -> None:
    words = [*command.split(" "), "--bundle", str(bundle)]
    outcome = done(nmtkit_command(tmp_path, *words, stdin=b"cat!\n"))
    assert outcome.err == ""
    assert outcome.out


def test_terminal_has_a_prompt(bundle: Path, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "nmtkit", "translate", "--bundle", str(bundle)]
    with subprocess.Popen(command, cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs) as run:
        os.close(theirs)
        assert read_until(ours, b"> ").endswith(b"en> ")
        os.write(ours, b"cat!\n")
        assert read_until(ours, b"> ").endswith(b"\nen> ")
        os.write(ours, b"\x04")
        assert run.wait(60) == 0
    os.close(ours)


def read_until(descriptor: int, end: bytes) -> bytes:
    text = b""
    while not text.endswith(end):
        text += os.read(descriptor, 4_096)
    return text
