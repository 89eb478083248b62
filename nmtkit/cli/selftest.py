"""nmtkit selftest: check nmtkit on this machine, what it finds and what it computes."""

import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nmtkit.cli.options import Src, Tgt, command
from nmtkit.errors import UserError
from nmtkit.languages import Language
from nmtkit.machine import Machine, Precision
from nmtkit.recipe_file import load_recipe
from nmtkit.reporting.grid import Grid
from nmtkit.reporting.show import Form, show
from nmtkit.sources.catalog import RemoteFile, data_dir
from nmtkit.sources.file_pair import FilePair
from nmtkit.sources.parallel import find_corpus
from nmtkit.stages.chain import Chain
from nmtkit.visible import visible

if TYPE_CHECKING:
    from nmtkit.selftest.environment import Check

MAX_LINES = 20_000  # of the text that the references tokenize: they take a minute for it
DEMO_LINES = 2_000
# What the demo loses in some steps of its training: a wrong gradient shows within a few.
LOSSES = {1: 8.3535, 10: 7.4909, 20: 6.9920}
TOLERANCE = 1e-3  # float32 rounds otherwise on every processor


@command("nmtkit selftest")
def selftest(machine: Machine, form: Form, src: Src = None, tgt: Tgt = None) -> None:
    """Check machine, references and the demo's first steps."""
    is_for_terminal = form == Form()
    found = []
    for each in checks(machine, src, tgt):
        found.append(each)
        if is_for_terminal:
            typer.echo(visible(f"{each.state:<8} {each.what:<16} {each.seen}"))
    if not is_for_terminal:
        rows = [(each.state, each.what, each.seen) for each in found]
        show(form, found, [Grid.of("", ("state", "what", "seen"), rows, 3)])
    if failed := [each.what for each in found if each.state == "failed"]:
        raise UserError(f"{', '.join(failed)} failed, as said above")


def checks(machine: Machine, src: Path | None, tgt: Path | None) -> Iterator["Check"]:
    """Yield each check as soon as it is made.

    Args:
        machine: Its `runs_dir` is where the disk is tried.
        src: A text to compare implementations on; None: a part of the demo corpus.
        tgt: Its translation, line by line.

    Raises:
        UserError: The text cannot be read, or only one of both is there.
    """
    if (src is None) != (tgt is None):
        raise UserError("--src and --tgt belong together; give both or neither")
    for option, path in {"--src": src, "--tgt": tgt}.items():
        if path is not None and not path.exists():
            raise UserError(f"{option} {path} does not exist; name a text")
    demo = data_dir() / "demo"
    n_lines = MAX_LINES if src else DEMO_LINES
    src, tgt = src or demo / "train.en", tgt or demo / "train.de"
    named = FilePair.languages(src, tgt)
    if named is None:
        raise UserError(
            f"--src {src} and --tgt {tgt} do not tell the languages; rename or link the files, "
            "such as text.en and text.de"
        )
    from nmtkit.selftest import environment, references

    langs = Language.of(named[0]), Language.of(named[1])
    yield from environment.examine(machine)
    pairs = find_corpus(FilePair(src=str(src), tgt=str(tgt)), *langs).pairs(_no_download)
    lines = list(islice(pairs, n_lines))
    yield from references.compare([pair[0] for pair in lines], [pair[1] for pair in lines], langs)
    with tempfile.TemporaryDirectory(prefix="nmtkit-selftest-") as name:
        yield _demo(Path(name))


def _no_download(file: RemoteFile) -> Path:
    raise AssertionError(file)


def _demo(runs_dir: Path) -> "Check":
    """Train the demo for some steps and compare its losses with those of other machines."""
    from nmtkit.selftest.environment import Check
    from nmtkit.stages import prepare, train
    from nmtkit.training.metrics import METRICS, read_metrics

    overrides = (f"training.max_steps={max(LOSSES)}", "averaging.n_checkpoints=1")
    machine = Machine(runs_dir, device="cpu", dtype=Precision.FLOAT32)
    chain = Chain(load_recipe("demo", overrides), machine, "demo", overrides)
    prepare.run(chain)
    metrics = read_metrics(train.run(chain).path / METRICS)
    for step, expected in LOSSES.items():
        loss = metrics[step - 1]["loss"]
        if loss is None or abs(loss - expected) > TOLERANCE:  # None: not finite
            seen = f"step {step} has a loss of {loss}, but of {expected} on other machines"
            return Check("demo", "failed", seen)
    return Check("demo", "held", f"{max(LOSSES)} steps of training end with a loss of {loss:.4f}")
