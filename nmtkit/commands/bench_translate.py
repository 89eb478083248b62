"""bench translate: how fast this machine translates with a bundle, by engine, beam and batch."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import filterfalse, islice
from pathlib import Path

import torch

from nmtkit import progress
from nmtkit.commands.bench import peak_bytes
from nmtkit.corpus.chunks import call_apart, read_chunks
from nmtkit.decoding.bundle import open_bundle
from nmtkit.errors import UserError
from nmtkit.fast.peak import measured_peak, peak_dtype
from nmtkit.machine import EngineName, EnginePrecision, Machine
from nmtkit.model.weights import count_parameters
from nmtkit.recipe import DecodingConfig, ModelConfig
from nmtkit.recipe_file import override_decoding
from nmtkit.reporting.cost import device_name
from nmtkit.reporting.facts import TranslationSpeed
from nmtkit.sources.kinds import read_plain
from nmtkit.translator import load_engine
from nmtkit.visible import is_blank

WARM_UP_LINES = 16
PEAK_SECONDS = 1.0  # of products, of which the fastest is the peak


@dataclass(frozen=True)
class Trial:
    """What one measurement is of."""

    bundle: Path
    lines: list[str]
    engine: EngineName
    dtype: EnginePrecision
    decoding: DecodingConfig
    batch: int  # lines that the engine gets at a time


def bench_translation(
    bundle: Path,
    text: Path,
    machine: Machine,
    *,
    engines: Sequence[EngineName],
    dtypes: Sequence[EnginePrecision],
    beams: Sequence[int],
    batches: Sequence[int],
    n_lines: int,
) -> list[TranslationSpeed]:
    """Translate the first `n_lines` of `text` with each engine, precision, beam and batch.

    Loading, tokenizing and a few lines to warm up are not timed.

    Args:
        bundle: The bundle.
        text: A text, which may be compressed.
        machine: Where to compute.
        engines: What runs the model.
        dtypes: Their precisions.
        beams: Beam sizes; none for the bundle's own.
        batches: Numbers of lines that the engine gets at a time; none for all at once.
        n_lines: Number of lines.

    Raises:
        UserError: An engine does not have a precision, a beam does not fit the schema of recipes,
            or the text has no lines.
    """
    lines = list(islice(filterfalse(is_blank, read_plain(text)), n_lines))
    if not lines:
        raise UserError(f"{text} has no lines to translate; name another --input")
    if EngineName.AUTO in engines:
        raise UserError("--engine auto is no engine to measure; name torch or ctranslate2")
    own = open_bundle(bundle).decoding
    decodings = [override_decoding(own, beam) for beam in beams] or [own]
    trials = [
        Trial(bundle, lines, engine, dtype, decoding, batch)
        for engine in engines
        for dtype in dtypes
        for decoding in decodings
        for batch in batches or [len(lines)]
    ]
    return [_in_own_process(trial, machine) for trial in trials]


def _in_own_process(trial: Trial, machine: Machine) -> TranslationSpeed:
    """Measure in a process of its own, whose memory is that of this trial alone."""
    beam_size = trial.decoding.beam_size
    progress.say(
        f"bench: {trial.engine} in {trial.dtype}, beam {beam_size}, {trial.batch:,} lines at a time"
    )
    return call_apart(
        partial(_bench, machine),
        trial,
        if_killed=f"{trial.engine} with beam {beam_size} was killed, perhaps for lack of "
        "memory; lower --beam or --batch",
    )


def _bench(machine: Machine, trial: Trial) -> TranslationSpeed:
    device = machine.torch_device()
    # Of 8 bits torch has no fast products to compare with.
    is_float32 = trial.dtype in (EnginePrecision.AUTO, EnginePrecision.FLOAT32)
    dtype = peak_dtype(device, torch.float32 if is_float32 else torch.bfloat16)
    peak_before = measured_peak(device, PEAK_SECONDS, dtype)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)  # the product took more than a small model
    begin = time.perf_counter()
    bundle = open_bundle(trial.bundle)
    engine = load_engine(bundle, machine, trial.engine, trial.dtype)
    load_seconds = time.perf_counter() - begin
    sources = [bundle.text.encode(line) for line in trial.lines]

    def translate(some: Sequence[Sequence[int]]) -> list[int]:
        """Return the number of tokens of each translation, EOS included."""
        found = engine.translate(some, trial.decoding, n_best=1, progress=lambda _: None)
        return [len(hypotheses[0].tokens) + 1 for hypotheses in found]

    translate(sources[:WARM_UP_LINES])
    begin = time.perf_counter()
    lengths = [n for some in read_chunks(sources, trial.batch) for n in translate(some)]
    seconds = time.perf_counter() - begin
    memory = peak_bytes(device)
    # A shared machine has fast minutes and slow ones.
    peak = max(peak_before, measured_peak(device, PEAK_SECONDS, dtype))
    description = bundle.description
    flops = (
        translation_flops(
            description.config,
            description.n_rows,
            [len(source) for source in sources],
            lengths,
            trial.decoding.beam_size,
        )
        / seconds
    )
    return TranslationSpeed(
        engine=trial.engine,
        dtype=trial.dtype,
        beam_size=trial.decoding.beam_size,
        batch=trial.batch,
        device=device_name(device),
        threads=torch.get_num_threads(),
        sentences=len(sources),
        sentences_per_second=len(sources) / seconds,
        tokens_per_second=sum(lengths) / seconds,
        flops=flops,
        peak_flops=peak,
        peak_of=f"{dtype}".removeprefix("torch."),
        share_of_peak=flops / peak,
        peak_bytes=memory,
        load_seconds=load_seconds,
    )


def translation_flops(
    config: ModelConfig,
    n_rows: int,
    src_lengths: Sequence[int],
    tgt_lengths: Sequence[int],
    beam_size: int,
) -> float:
    """Return the FLOPs of a beam search that takes one step for each token of its best hypothesis.

    Args:
        config: The model.
        n_rows: Number of rows of its output matrix.
        src_lengths: Number of tokens of each source, EOS included.
        tgt_lengths: Number of tokens of each best hypothesis, EOS included.
        beam_size: Number of beams, of which the first step has only one.
    """
    weights = count_parameters(config, n_rows)
    per_pair_of_tokens = 2 * config.n_layers * config.n_heads * (config.d_k + config.d_v)
    total = 0.0
    for n_src, n_tgt in zip(src_lengths, tgt_lengths, strict=True):
        n_tokens = 1 + (n_tgt - 1) * beam_size  # of all beams
        total += 2 * (weights.encoder + weights.memory) * n_src
        total += 2 * (weights.decoder + weights.output) * n_tokens
        total += per_pair_of_tokens * (n_src**2 + n_tokens * (n_src + n_tgt / 2))
    return total
