"""translate: from a bundle and the test text to hypotheses (section 6.1)."""

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nmtkit import artifacts, progress
from nmtkit.artifacts import Artifact
from nmtkit.corpus import store
from nmtkit.corpus.long_lines import MAX_CHARACTERS
from nmtkit.decoding.bundle import Bundle, Translation, open_bundle
from nmtkit.errors import UserError
from nmtkit.machine import Machine
from nmtkit.recipe import DecodingConfig
from nmtkit.sources.text import TextFile, read_lines
from nmtkit.stages.chain import Chain
from nmtkit.stages.journal import Journal

HYPOTHESES = "hypotheses.txt"
TRANSLATIONS = "translations.jsonl"  # those of the finished parts, in the order in which they came
LINES_PER_PART = {"cpu": 512, "cuda": 16_384}  # a minute or so of the base model
MAX_LINES = 1_024  # translated together when they come through a pipe faster than the model works


def run(chain: Chain) -> Artifact:
    """Publish the recipe's translation of its test set."""
    return chain.make("translate", lambda draft: _translate(chain, draft), resume=True)


def _translate(chain: Chain, draft: Path) -> dict[str, Any]:
    prepared = artifacts.verify(chain.need("prepare")).path
    averaged = chain.need("average").path  # verified when it is opened
    device = chain.machine.torch_device()
    bundle = open_bundle(averaged, device)
    lines = list(read_lines(TextFile(prepared / f"test.{chain.recipe.corpus.src_lang}")))
    translations, seconds = _translate_in_parts(
        bundle, lines, chain.recipe.decoding, Journal(draft), LINES_PER_PART[device.type]
    )
    for number, translation in enumerate(translations, start=1):
        _tell_pieces(bundle, number, translation)
    (draft / HYPOTHESES).write_text(
        "".join(f"{translation.text}\n" for translation in translations),
        encoding="utf-8",
        newline="\n",
    )
    artifacts.write_json(draft / "ratings.json", [_rating(t) for t in translations])
    return {
        "device": str(device),
        "sentences_per_second": round(len(lines) / seconds, 2),
        "lines_in_pieces": sum(t.n_pieces > 1 for t in translations),
    }


def _rating(translation: Translation) -> dict[str, float]:
    rating = {
        "score": round(translation.score, 4),
        "log_prob": round(translation.log_prob, 4),
        "tokens": translation.n_tokens,
    }
    return rating if translation.n_pieces < 2 else {**rating, "pieces": translation.n_pieces}


def _translate_in_parts(
    bundle: Bundle,
    lines: Sequence[str],
    decoding: DecodingConfig,
    journal: Journal,
    lines_per_part: int,
) -> tuple[list[Translation], float]:
    """Translate `lines`, those that an earlier run finished left out, and tell the seconds of all.

    Lines of like length make a part, so that its batches are full.
    """
    by_length = sorted(range(len(lines)), key=lambda i: -len(lines[i]))
    told = journal["translated"] or {"lines": 0, "seconds": 0.0}
    path = journal.folder / TRANSLATIONS
    begin = time.monotonic() - told["seconds"]
    with (
        progress.task("translate", unit="sentences", total=len(lines)) as task,
        store.reopen(path, journal.n_bytes(path)) as file,
    ):
        task.advance(told["lines"])
        for start in range(told["lines"], len(lines), lines_per_part):
            part = by_length[start : start + lines_per_part]
            translations = bundle.translate([lines[i] for i in part], decoding, task.advance)
            for translation in translations:
                file.write(json.dumps(asdict(translation)).encode() + b"\n")
            file.flush()
            told = {"lines": start + len(part), "seconds": time.monotonic() - begin}
            journal.commit("translated", told, path)
    finished = [Translation(**json.loads(line)) for line in path.read_bytes().split(b"\n")[:-1]]
    by_line = dict(zip(by_length, finished, strict=True))
    return [by_line[i] for i in range(len(lines))], told["seconds"]


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
