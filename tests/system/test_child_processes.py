"""Child processes run the installed code, whatever modules are in the working directory."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nmtkit.utils.processes import nmtkit_command
from system.command import PATIENCE_S, RECIPE, artifact, environment

SLOW = pytest.mark.slow
# Modules that Python, multiprocessing, torch and nmtkit import at their start.
SHADOWS = ("random.py", "socket.py", "copyreg.py", "typing.py", "numpy.py", "torch.py")
PACKAGES = ("nmtkit", "multiprocessing")
# As pip installs it: the folder of this script is in the import path, not the working directory.
SCRIPT = f"""#!{sys.executable}
import sys
from nmtkit.__main__ import main
if __name__ == "__main__":
    sys.exit(main())
"""
STUDY = f"""
name = "one"
description = "One row"
recipe = "{RECIPE}"
bleu = "sacrebleu"
set = ["averaging.n_checkpoints=1"]

[[rows]]
name = "base"
"""
SHORT = "--set=training.max_steps=4"
TORCHRUN = (sys.executable, "-P", "-m", "torch.distributed.run", "--standalone", "--no-python")


def add_shadows(folder: Path) -> None:
    """Fill a folder with modules that end every Python that imports one of them."""
    text = 'raise SystemExit("a module of the working directory was imported")\n'
    for name in SHADOWS:
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
    for name in PACKAGES:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(text, encoding="utf-8", newline="\n")


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (["nmtkit", "prepare", RECIPE, "--workers=2"], "prepare"),
        (["nmtkit", "train", RECIPE, "--processes=2", SHORT], "train"),
        pytest.param(
            ["nmtkit", "study", "one.toml", "--processes=2", "--workers=2", SHORT],
            "score",
            marks=SLOW,
        ),
        pytest.param(
            [*TORCHRUN, "--nproc-per-node=2", "nmtkit", "train", RECIPE, SHORT],
            "train",
            marks=SLOW,
        ),
    ],
    ids=["prepare", "train", "study", "torchrun"],
)
def test_working_folder_is_not_imported(prepared: Path, words: list[str], kind: str) -> None:
    if kind != "train":
        shutil.rmtree(prepared / "runs")
    (prepared / "one.toml").write_text(STUDY, encoding="utf-8", newline="\n")
    add_shadows(prepared)
    script = prepared / "bin" / "nmtkit"
    script.parent.mkdir()
    script.write_text(SCRIPT, encoding="utf-8", newline="\n")
    script.chmod(0o755)
    command = [str(script) if word == "nmtkit" else word for word in words]
    command += ["--set=averaging.n_checkpoints=1"] if kind == "train" else []
    ended = subprocess.run(
        command,
        cwd=prepared,
        env=environment(),
        check=False,
        capture_output=True,
        timeout=PATIENCE_S,
    )
    assert ended.returncode == 0, ended.stderr
    assert artifact(prepared, kind).is_dir()


def test_uninstalled_clone_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`python -m nmtkit` finds itself only in the working directory, and so do its children."""
    monkeypatch.chdir(tmp_path)
    assert "-P" in nmtkit_command("train")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "-P" not in nmtkit_command("train")
