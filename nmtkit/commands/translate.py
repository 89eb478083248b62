"""translate --bundle: a text through a bundle, line by line."""

import os
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from nmtkit import artifacts, progress
from nmtkit.corpus.chunks import read_chunks
from nmtkit.decoding.bundle import Bundle, open_bundle
from nmtkit.decoding.engine import Engine
from nmtkit.decoding.lines import Translator
from nmtkit.errors import Stopped, UserError
from nmtkit.machine import EngineName, EnginePrecision, Machine
from nmtkit.recipe_file import override_decoding
from nmtkit.sources.text import BYTE_ORDER_MARK, TextFile, read_lines
from nmtkit.stages.translate import LINES_PER_PART, tell_pieces

MAX_LINES = 1_024  # translated together when they come through a pipe faster than the model works


def translate(
    folder: Path,
    overrides: Sequence[str],
    machine: Machine,
    engine: EngineName,
    dtype: EnginePrecision,
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
        engine: What runs the model.
        dtype: The precision that it computes in.
        source: A file, which may be compressed; None for standard input.
        target: A file, which is replaced when all lines are translated; None for standard output.

    Raises:
        UserError: `folder` is not a bundle, the engine can't run it, or a line is not UTF-8.
        Stopped: Ctrl-C.
    """
    try:
        bundle = open_bundle(folder)
        bundle = replace(bundle, decoding=override_decoding(bundle.decoding, overrides))
        translator = bundle.translator(load_engine(bundle, machine, engine, dtype))
        chunks = _arriving_lines(sys.stdin.fileno())
        n_lines = None
        if source is not None:
            text = TextFile(source)
            n_lines = sum(1 for _ in read_lines(text))  # a damaged file is refused at once
            chunks = read_chunks(read_lines(text), LINES_PER_PART[translator.engine.device])
        if target is not None:
            _write(_translated(translator, chunks), target, n_lines)
            return
        for lines in _translated(translator, chunks):
            sys.stdout.writelines(lines)
            sys.stdout.flush()
    except KeyboardInterrupt:
        raise Stopped("stopped", exit_code=128 + signal.SIGINT) from None


def load_engine(
    bundle: Bundle, machine: Machine, engine: EngineName, dtype: EnginePrecision
) -> Engine:
    """Load the model of `bundle` into an engine.

    Raises:
        UserError: The engine is not installed, or can't run this model in this precision here.
    """
    if engine == EngineName.CTRANSLATE2:
        try:
            from nmtkit.decoding.ctranslate2_engine import CTranslate2Engine
        except ModuleNotFoundError:
            raise UserError(
                "--engine ctranslate2 needs a package that is not installed; run `pip install "
                "nmtkit[ctranslate2]`, or leave it out"
            ) from None
        precision = EnginePrecision.FLOAT32 if dtype == EnginePrecision.AUTO else dtype
        return CTranslate2Engine.load(bundle, machine.device, precision)
    import torch

    from nmtkit.decoding.torch_engine import TorchEngine

    device = machine.torch_device()
    if dtype in (EnginePrecision.AUTO, EnginePrecision.FLOAT32):
        return TorchEngine.load(bundle, device, torch.float32)
    if dtype != EnginePrecision.BFLOAT16:
        raise UserError(f"--engine torch has no {dtype}; use --dtype float32 or bfloat16")
    if device.type == "cpu" and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        raise UserError(
            "--dtype bfloat16 needs a processor with AVX-512; use --dtype float32 on this one"
        )
    return TorchEngine.load(bundle, device, torch.bfloat16)


def _translated(translator: Translator, chunks: Iterable[list[str]]) -> Iterator[list[str]]:
    number = 0
    for lines in chunks:
        translations = translator.translate(lines, progress=lambda _: None)
        for translation in translations:
            number += 1
            tell_pieces(translator, f"line {number:,}", translation)
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
