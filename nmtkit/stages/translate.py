"""translate: from a bundle and the test sets to hypotheses (section 6.1)."""

import json
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from nmtkit import artifacts, progress
from nmtkit.artifacts import Artifact
from nmtkit.corpus import store
from nmtkit.corpus.chunks import read_chunks
from nmtkit.corpus.long_lines import MAX_CHARACTERS
from nmtkit.decoding.bundle import open_bundle
from nmtkit.decoding.lines import Translation, Translator
from nmtkit.errors import Stopped, UserError
from nmtkit.evaluation.translations import write_set
from nmtkit.machine import Machine
from nmtkit.recipe_file import override_decoding
from nmtkit.sources.text import BYTE_ORDER_MARK, TextFile, read_lines
from nmtkit.stages.chain import Chain
from nmtkit.stages.journal import Journal

LINES_PER_PART = {"cpu": 512, "cuda": 16_384}  # a minute or so of the base model
MAX_LINES = 1_024  # translated together when they come through a pipe faster than the model works


def run(chain: Chain) -> Artifact:
    """Publish the recipe's translations of its test sets."""
    chain.fetch_unknown()
    return chain.make("translate", lambda draft: _translate(chain, draft), resume=True)


def _translate(chain: Chain, draft: Path) -> dict[str, Any]:
    from nmtkit.decoding.torch_engine import TorchEngine

    device = chain.machine.torch_device()
    bundle = open_bundle(chain.need("average").path)
    translator = bundle.translator(TorchEngine.load(bundle, device))
    journal = Journal(draft)
    sets: dict[str, dict[str, float]] = {}
    for corpus in chain.corpora["sets"]:
        src, refs = map(list, zip(*corpus.pairs(chain.fetch), strict=True))
        translations, seconds = _translate_in_parts(
            translator, corpus.name, src, journal, LINES_PER_PART[device.type]
        )
        for number, translation in enumerate(translations, start=1):
            _tell_pieces(translator, f"{corpus.name}, line {number:,}", translation)
        write_set(
            draft,
            corpus.name,
            src,
            [translation.text for translation in translations],
            refs if corpus.has_reference else None,
            [_rating(translation) for translation in translations],
        )
        sets[corpus.name] = {
            "sentences_per_second": round(len(src) / seconds, 2),
            "lines_in_pieces": sum(t.n_pieces > 1 for t in translations),
        }
    return {"device": str(device), "sets": sets}


def _rating(translation: Translation) -> dict[str, float]:
    rating = {
        "score": round(translation.score, 4),
        "log_prob": round(translation.log_prob, 4),
        "tokens": translation.n_tokens,
    }
    return rating if translation.n_pieces < 2 else {**rating, "pieces": translation.n_pieces}


def _translate_in_parts(
    translator: Translator, name: str, lines: Sequence[str], journal: Journal, lines_per_part: int
) -> tuple[list[Translation], float]:
    """Translate `lines`, except those that an earlier run finished, and return the seconds of all.

    Lines of like length make a part, so that its batches are full.
    """
    by_length = sorted(range(len(lines)), key=lambda i: -len(lines[i]))
    told = journal[name] or {"lines": 0, "seconds": 0.0}
    path = journal.folder / f"{name}.jsonl"  # finished translations, in the order they came
    begin = time.monotonic() - told["seconds"]
    with (
        progress.task(f"translate: {name}", unit="sentences", total=len(lines)) as task,
        store.reopen(path, journal.n_bytes(path)) as file,
    ):
        task.advance(told["lines"])
        for start in range(told["lines"], len(lines), lines_per_part):
            part = by_length[start : start + lines_per_part]
            for translation in translator.translate([lines[i] for i in part], task.advance):
                file.write(json.dumps(asdict(translation)).encode() + b"\n")
            file.flush()
            told = {"lines": start + len(part), "seconds": time.monotonic() - begin}
            journal.commit(name, told, path)
    finished = [Translation(**json.loads(line)) for line in path.read_bytes().split(b"\n")[:-1]]
    by_line = dict(zip(by_length, finished, strict=True))
    return [by_line[i] for i in range(len(lines))], told["seconds"]


def translate_text(
    folder: Path,
    overrides: Sequence[str],
    machine: Machine,
    source: Path | None = None,
    target: Path | None = None,
) -> None:
    """Translate a text line by line with the bundle in `folder`.

    Lines of standard input that have arrived are translated together; a line that comes alone is
    answered at once.

    Args:
        folder: The bundle.
        overrides: `decoding.key=value`, in place of the bundle's own settings.
        machine: Where to compute.
        source: A file, which may be compressed; None for standard input.
        target: A file, which is replaced when all lines are translated; None for standard output.

    Raises:
        UserError: `folder` is not a bundle, or a line is not UTF-8.
        Stopped: Ctrl-C.
    """
    from nmtkit.decoding.torch_engine import TorchEngine

    try:
        device = machine.torch_device()
        bundle = open_bundle(folder)
        bundle = replace(bundle, decoding=override_decoding(bundle.decoding, overrides))
        translator = bundle.translator(TorchEngine.load(bundle, device))
        chunks = _arriving_lines(sys.stdin.fileno())
        n_lines = None
        if source is not None:
            text = TextFile(source)
            n_lines = sum(1 for _ in read_lines(text))  # a damaged file is refused at once
            chunks = read_chunks(read_lines(text), LINES_PER_PART[device.type])
        if target is not None:
            _write(_translated(translator, chunks), target, n_lines)
            return
        for lines in _translated(translator, chunks):
            sys.stdout.writelines(lines)
            sys.stdout.flush()
    except KeyboardInterrupt:
        raise Stopped("stopped", exit_code=128 + signal.SIGINT) from None


def _translated(translator: Translator, chunks: Iterable[list[str]]) -> Iterator[list[str]]:
    number = 0
    for lines in chunks:
        translations = translator.translate(lines, progress=lambda _: None)
        for translation in translations:
            number += 1
            _tell_pieces(translator, f"line {number:,}", translation)
        yield [f"{translation.text}\n" for translation in translations]


def _write(chunks: Iterable[list[str]], target: Path, n_lines: int | None) -> None:
    """Write a file that is whole or not there; a draft of it keeps what was done."""
    with (
        artifacts.draft_of_file(target) as draft,
        progress.task(f"translate: {target}", unit="lines", total=n_lines) as task,
    ):
        try:
            with draft.open("w", encoding="utf-8", newline="\n") as file:
                for lines in chunks:
                    file.writelines(lines)
                    file.flush()
                    task.advance(len(lines))
        except KeyboardInterrupt:
            told = f"stopped; what has been translated is in {draft}"
            raise Stopped(told, exit_code=128 + signal.SIGINT) from None


def _tell_pieces(translator: Translator, line: str, translation: Translation) -> None:
    """Warn of a line that was not translated at once."""
    if translation.n_pieces > 1:
        progress.say(
            f"translate: {line} is too long to be translated at once (more than "
            f"{translator.max_subwords:,} subwords or {MAX_CHARACTERS:,} characters); its "
            f"{translation.n_pieces:,} pieces were translated one by one"
        )


def _arriving_lines(descriptor: int) -> Iterator[list[str]]:
    """Yield the lines that have arrived, decoded, until the end of the input or a bad line."""
    n_before = 0
    for arrived in _arriving_bytes(descriptor):
        lines: list[str] = []
        for line in arrived:
            try:
                text = line.decode("utf-8").removesuffix("\r")
                is_first = n_before + len(lines) == 0
                lines.append(text.removeprefix(BYTE_ORDER_MARK) if is_first else text)
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
