"""translate: from a bundle and the test text to hypotheses (section 6.1)."""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nmtkit import artifacts, progress
from nmtkit.artifacts import Artifact
from nmtkit.corpus.long_lines import MAX_CHARACTERS
from nmtkit.corpus.sources import TextFile, read_lines
from nmtkit.errors import UserError
from nmtkit.machine import Machine
from nmtkit.recipe import DecodingConfig
from nmtkit.stages.bundle import Bundle, Translation, open_bundle
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
    number = 0
    for lines in _arriving_lines(sys.stdin.fileno()):
        for translation in bundle.translate(lines, decoding, progress=lambda _: None):
            number += 1
            _tell_pieces(bundle, number, translation)
            sys.stdout.write(f"{translation.text}\n")
        sys.stdout.flush()


def _tell_pieces(bundle: Bundle, number: int, translation: Translation) -> None:
    """Warn of a line, counted from 1, that was not translated at once."""
    if translation.n_pieces > 1:
        progress.say(
            f"translate: line {number:,} is too long to be translated at once (more than "
            f"{bundle.max_subwords:,} subwords or {MAX_CHARACTERS:,} characters); its "
            f"{translation.n_pieces:,} pieces were translated one by one"
        )


def _arriving_lines(descriptor: int) -> Iterator[list[str]]:
    """Yield the lines that have arrived, decoded, until the end of the input or a bad line."""
    n_before = 0
    for arrived in _arriving_bytes(descriptor):
        lines: list[str] = []
        for line in arrived:
            try:
                lines.append(line.decode("utf-8").removesuffix("\r"))
            except UnicodeDecodeError as error:
                yield lines
                raise UserError(
                    f"standard input, line {n_before + len(lines) + 1:,}: byte {error.start + 1} "
                    "is not valid UTF-8; convert the text to UTF-8"
                ) from None
        yield lines
        n_before += len(lines)


def _arriving_bytes(descriptor: int) -> Iterator[list[bytes]]:
    """Yield the lines that have arrived, a few at a time, without waiting for more."""
    unfinished: list[bytes] = []  # what has come so far of a line
    while block := os.read(descriptor, 2**16):
        ended, newline, rest = block.rpartition(b"\n")
        if newline:
            lines = b"".join([*unfinished, ended]).split(b"\n")
            yield from (lines[i : i + MAX_LINES] for i in range(0, len(lines), MAX_LINES))
            unfinished.clear()
        unfinished.append(rest)
    if last := b"".join(unfinished):
        yield [last]
