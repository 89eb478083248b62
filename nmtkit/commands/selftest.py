"""Check nmtkit on this machine: what it finds, what it computes, and what kills it survives."""

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from nmtkit import progress
from nmtkit.duration import duration
from nmtkit.errors import UserError
from nmtkit.languages import Language
from nmtkit.machine import Machine
from nmtkit.reporting.facts import Check
from nmtkit.selftest import environment, references, tiny
from nmtkit.selftest.contents import contents, differing
from nmtkit.sources.catalog import RemoteFile, data_dir
from nmtkit.sources.file_pair import FilePair
from nmtkit.sources.parallel import find_corpus

MAX_LINES = 20_000  # of the text that the references tokenize: they take a minute for it
DEMO_LINES = 2_000
SAY_EVERY = 20  # rounds of kills


def selftest(
    machine: Machine,
    src: Path | None = None,
    tgt: Path | None = None,
    n_kills: int = 0,
    log: Path | None = None,
) -> Iterator[Check]:
    """Yield each check as soon as it is made.

    Args:
        machine: Its `runs_dir` is where the disk is tried.
        src: A text to compare implementations on; None: a part of the demo corpus.
        tgt: Its translation, line by line.
        n_kills: How many SIGKILLs the pipeline must survive.
        log: A file of their outcomes, which is continued.

    Raises:
        UserError: The text cannot be read, or the log is none.
    """
    source, langs, n_lines = _text(src, tgt)
    yield from environment.examine(machine)
    pairs = find_corpus(source, *langs).pairs(_no_download)
    lines = list(islice(pairs, n_lines))
    yield from references.compare([pair[0] for pair in lines], [pair[1] for pair in lines], langs)
    with tempfile.TemporaryDirectory(prefix="nmtkit-selftest-") as name:
        yield from _chain(Path(name))
    if n_kills:
        with tempfile.TemporaryDirectory(prefix="nmtkit-chaos-") as name:
            yield _chaos(Path(name), n_kills, log, machine.n_workers())


def _text(src: Path | None, tgt: Path | None) -> tuple[FilePair, tuple[Language, Language], int]:
    n_lines = MAX_LINES
    if src is None or tgt is None:
        src, tgt = (data_dir() / "demo" / f"train.{lang}" for lang in tiny.LANGS)
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


def _chain(folder: Path) -> Iterator[Check]:
    """Run the tiny demo in `folder`, verify it, and run it again."""
    tiny.write_texts(folder)
    run = ["run", tiny.RECIPE, *(f"--set={each}" for each in tiny.OVERRIDES), "--json"]
    first = _nmtkit(folder, *run)
    if first.returncode != 0:
        yield Check("demo", "failed", _last_line(first))
        return
    score = json.loads(first.stdout)["scores"]["test"]["sacrebleu"]["score"]
    yield Check("demo", "held", f"five stages at a tiny size end with sacreBLEU {score:.2f}")
    before = contents(folder)
    again = _nmtkit(folder, *run)
    verified = _nmtkit(folder, "verify", *run[1:])
    if again.returncode or verified.returncode:
        yield Check("rerun", "failed", _last_line(again if again.returncode else verified))
    elif names := differing(before, contents(folder)):
        yield Check("rerun", "failed", f"it changes {', '.join(names)}")
    else:
        yield Check("rerun", "held", f"{len(before):,} files verified, none changed")


def _nmtkit(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - nmtkit itself
        [sys.executable, "-m", "nmtkit", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


def _last_line(ended: subprocess.CompletedProcess[str]) -> str:
    return ended.stderr.rstrip("\n").rsplit("\n", 1)[-1]


def _chaos(folder: Path, n_kills: int, log: Path | None, n_cores: int) -> Check:
    from nmtkit.selftest.chaos import chaos

    kills: Counter[str] = Counter()
    problems, seconds = [], 0.0
    rounds = chaos(folder, n_kills, log, n_cores, can_convert=True)
    for n_rounds, each in enumerate(rounds, 1):
        kills[each.step] += len(each.kills)
        seconds += each.seconds
        if each.problem:
            problems.append(f"{each.step} killed {', then '.join(each.kills)}: {each.problem}")
            progress.say(f"selftest: {problems[-1]}")
        if n_rounds % SAY_EVERY == 0:
            progress.say(
                f"selftest: {kills.total():,} of {n_kills:,} kills, {len(problems)} problems"
            )
    of_each = ", ".join(f"{name} {n:,}" for name, n in sorted(kills.items()))
    tried = f"{kills.total():,} kills in {n_rounds:,} rounds, {duration(seconds)} ({of_each})"
    if problems:
        lost = f"{len(problems):,} rounds lost something, the first {problems[0]}"
        return Check("kills", "failed", f"{tried}; {lost}")
    return Check("kills", "held", f"{tried}: no byte differs, nothing hangs, nothing to repair")


def check_options(src: Path | None, tgt: Path | None, n_kills: int, log: Path | None) -> None:
    """Check the options that need one another.

    Raises:
        UserError: One is there without the other.
    """
    if (src is None) != (tgt is None):
        raise UserError("--src and --tgt belong together; give both or neither")
    if log is not None and not n_kills:
        raise UserError("--log is for --chaos N; add it, or leave --log out")
