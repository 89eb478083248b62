"""Check nmtkit on this machine: what it finds, and what it computes."""

import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from nmtkit.errors import UserError
from nmtkit.languages import Language
from nmtkit.machine import Machine, Precision
from nmtkit.recipe_file import load_recipe
from nmtkit.reporting.facts import Check
from nmtkit.selftest import environment, references
from nmtkit.sources.catalog import RemoteFile, data_dir
from nmtkit.sources.file_pair import FilePair
from nmtkit.sources.parallel import find_corpus
from nmtkit.stages import prepare, train
from nmtkit.stages.chain import Chain
from nmtkit.training.metrics import METRICS, read_metrics

MAX_LINES = 20_000  # of the text that the references tokenize: they take a minute for it
DEMO_LINES = 2_000
# What the demo loses in some steps of its training: a wrong gradient shows within a few.
LOSSES = {1: 8.3535, 10: 7.4909, 20: 6.9920}
TOLERANCE = 1e-3  # float32 rounds otherwise on every processor


def selftest(machine: Machine, src: Path | None = None, tgt: Path | None = None) -> Iterator[Check]:
    """Yield each check as soon as it is made.

    Args:
        machine: Its `runs_dir` is where the disk is tried.
        src: A text to compare implementations on; None: a part of the demo corpus.
        tgt: Its translation, line by line.

    Raises:
        UserError: The text cannot be read, or only one of both is there.
    """
    source, langs, n_lines = _text(src, tgt)
    yield from environment.examine(machine)
    pairs = find_corpus(source, *langs).pairs(_no_download)
    lines = list(islice(pairs, n_lines))
    yield from references.compare([pair[0] for pair in lines], [pair[1] for pair in lines], langs)
    with tempfile.TemporaryDirectory(prefix="nmtkit-selftest-") as name:
        yield _demo(Path(name))


def _text(src: Path | None, tgt: Path | None) -> tuple[FilePair, tuple[Language, Language], int]:
    if (src is None) != (tgt is None):
        raise UserError("--src and --tgt belong together; give both or neither")
    n_lines = MAX_LINES
    if src is None or tgt is None:
        src, tgt = (data_dir() / "demo" / f"train.{lang}" for lang in ("en", "de"))
        n_lines = DEMO_LINES
    langs = FilePair.languages(src, tgt)
    if langs is None:
        raise UserError(
            f"--src {src} and --tgt {tgt} do not tell the languages; rename or link the files, "
            "such as text.en and text.de"
        )
    src_lang, tgt_lang = map(Language.of, langs)
    return FilePair(src=str(src), tgt=str(tgt)), (src_lang, tgt_lang), n_lines


def _no_download(file: RemoteFile) -> Path:
    raise AssertionError(file)


def _demo(runs_dir: Path) -> Check:
    """Train the demo for some steps and compare its losses with those of other machines."""
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
