"""translate: from a bundle and the test text to hypotheses (section 6.1)."""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nmtkit import artifacts, progress
from nmtkit.artifacts import Artifact
from nmtkit.corpus.sources import TextFile, read_lines
from nmtkit.errors import UserError
from nmtkit.machine import Machine
from nmtkit.recipe import DecodingConfig
from nmtkit.stages.bundle import open_bundle
from nmtkit.stages.chain import Chain

HYPOTHESES = "hypotheses.txt"
MAX_LINES = 1_024  # translated together when they come through a pipe faster than the model works


def run(chain: Chain) -> Artifact:
    """Publish the recipe's translation of its test set."""
    return chain.make("translate", lambda draft: _translate(chain, draft))


def _translate(chain: Chain, draft: Path) -> dict[str, Any]:
    prepared = artifacts.verify(chain.need("prepare")).path
    averaged = chain.need("average").path  # verified when it is opened
    device = chain.machine.torch_device()
    bundle = open_bundle(averaged, device)
    lines = list(read_lines(TextFile(prepared / f"test.{chain.recipe.corpus.src_lang}")))
    begin = time.monotonic()
    with progress.task("translate", unit="sentences", total=len(lines)) as task:
        translations = bundle.translate(lines, chain.recipe.decoding, task.advance)
    seconds = time.monotonic() - begin
    (draft / HYPOTHESES).write_text(
        "".join(f"{translation.text}\n" for translation in translations),
        encoding="utf-8",
        newline="\n",
    )
    artifacts.write_json(
        draft / "ratings.json",
        [
            {"score": round(t.score, 4), "log_prob": round(t.log_prob, 4), "tokens": t.n_tokens}
            for t in translations
        ],
    )
    return {"device": str(device), "sentences_per_second": round(len(lines) / seconds, 2)}


def translate_stream(folder: Path, decoding: DecodingConfig, machine: Machine) -> None:
    """Translate standard input to standard output, line by line, with the bundle in `folder`.

    Lines that are there are translated together, and a line that comes alone is answered at once.

    Raises:
        UserError: no bundle, or a line that is not UTF-8.
    """
    bundle = open_bundle(folder, machine.torch_device())
    for lines in _arriving_lines(sys.stdin.fileno()):
        for translation in bundle.translate(lines, decoding, progress=lambda _: None):
            sys.stdout.write(f"{translation.text}\n")
        sys.stdout.flush()


def _arriving_lines(descriptor: int) -> Iterator[list[str]]:
    """Yield the lines that have arrived, at least one at a time, until the end of the input."""
    rest, number = b"", 0
    while block := os.read(descriptor, 2**16):
        *whole, rest = (rest + block).split(b"\n")
        for start in range(0, len(whole), MAX_LINES):
            lines = whole[start : start + MAX_LINES]
            yield [_text(line, number + i) for i, line in enumerate(lines, start=1)]
            number += len(lines)
    if rest:
        yield [_text(rest, number + 1)]


def _text(line: bytes, number: int) -> str:
    try:
        return line.decode("utf-8").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise UserError(
            f"standard input, line {number:,}: byte {error.start + 1} is not valid UTF-8; "
            "convert the text to UTF-8"
        ) from None
