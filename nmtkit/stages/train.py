"""train: from a prepared corpus to checkpoints (section 5)."""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nmtkit import progress
from nmtkit.corpus.prepared import SIDES, PreparedCorpus, Split
from nmtkit.decoding.bundle import Bundle
from nmtkit.decoding.lines import Text, Translator, max_subwords
from nmtkit.decoding.torch_engine import TorchEngine
from nmtkit.errors import AlreadyReported, Stopped, UserError
from nmtkit.evaluation.bleu import bleu_metric, sacre_bleu
from nmtkit.evaluation.bracket_f1 import bracket_f1
from nmtkit.files import check_room, move
from nmtkit.machine import OF_PREPARE, Precision
from nmtkit.model.cost import count_parameters
from nmtkit.model.description import Description
from nmtkit.model.devices import device_name
from nmtkit.model.peak import bfloat16_gain, measured_peak
from nmtkit.model.transformer import Transformer
from nmtkit.model.weights import load_weights
from nmtkit.recipe import DecodingConfig, TrainingConfig
from nmtkit.reporting.curves import Curves
from nmtkit.reporting.events import EventWriter
from nmtkit.reporting.speed import Speed
from nmtkit.stages.chain import Chain
from nmtkit.stages.code import code_that_trained
from nmtkit.stages.continuation import continue_shorter, lineage
from nmtkit.store import ASIDE, Artifact, verify
from nmtkit.training.acceleration import Acceleration, missing_compiler
from nmtkit.training.batches import Pairs
from nmtkit.training.checkpoint import Origin, Progress, checkpoints_bytes
from nmtkit.training.distributed import Group, is_worker, join
from nmtkit.training.divergence import CHECKPOINTS
from nmtkit.training.heap import keep_freed_memory
from nmtkit.training.launch import launch
from nmtkit.training.loop import DevScore, is_over, train
from nmtkit.training.metrics import METRICS, Metrics, read_metrics
from nmtkit.training.precision import note_precision, noted_precision
from nmtkit.training.signals import on_stop_signal
from nmtkit.training.trainer import Trainer, enough_memory

# Dev BLEU during training is for monitoring: a few lines, greedy search, a few seconds. It depends
# only on sections of the recipe that the checkpoints depend on too.
DEV_LINES = 200
GREEDY = DecodingConfig(beam_size=1, length_penalty=0.0, max_extra_tokens=50)
GREEDY_PARSING = DecodingConfig(beam_size=1, length_penalty=0.0, max_extra_tokens=300)

# A micro-batch must be somewhat larger than a process's share of an update. Otherwise, what does
# not fit makes one more micro-batch, and all other processes wait for it.
SLACK = 1.05


PEAK_SECONDS = 0.2  # of products on a GPU, for MFU; each takes milliseconds
GAIN_SECONDS = 0.1  # of products on a CPU, in two precisions
MOST_WIDTH = 512  # of these products; those of wider matrices take longer than that
# A product in bfloat16 this many times as fast makes a whole step faster too: on a processor where
# it is 2.1 times as fast, steps are 1.6 times as fast at d_model = 256.
WORTHWHILE_GAIN = 1.5


def run(chain: Chain) -> Artifact:
    """Publish the checkpoints of the recipe, resuming a stopped run.

    If the machine has several devices, start one process for each.
    """
    if existing := chain.find("train"):
        chain.tell_code(existing)
        return existing
    if not chain.recipe.corpus.linearization:
        bleu_metric(chain.recipe.corpus.tgt_lang)  # fail now if its tokenizer is not installed
    if not is_worker():
        chain.need("prepare")
    remake = ["--remake"] if "train" in chain.remake else []
    if start_processes(chain, ["train", *remake, *chain.machine.options(besides=OF_PREPARE)]):
        return chain.need("train")
    with join(chain.machine.torch_device()) as group:
        return _run(chain, group)


def start_processes(chain: Chain, command: Sequence[str]) -> bool:
    """Run `nmtkit COMMAND` in as many processes as train, and wait for them.

    Returns whether it did. If one process trains, or if this is one of several, it does not.
    """
    if is_worker() or (n_processes := chain.machine.n_processes()) == 1:
        return False
    progress.say(f"{command[0]}: {n_processes} processes")
    overrides = [f"--set={override}" for override in chain.overrides]
    quiet = ["--quiet"] if progress.console.quiet else []
    launch(n_processes, [*quiet, *command, *overrides, "--", chain.command])
    return True


def open_pairs(prepared: PreparedCorpus, split: Split) -> Pairs:
    """Open the token ids of a split."""
    src, tgt = (prepared.ids(split, side) for side in SIDES)
    return Pairs(src.ids, src.offsets, tgt.ids, tgt.offsets)


def _run(chain: Chain, group: Group) -> Artifact:
    """Train as one process of `group`; only the first one makes the artifact."""
    if group.is_first:
        artifact = chain.make(
            "train",
            lambda draft: _train(chain, draft, group),
            resume=True,
            code=code_that_trained,
            made_by=lambda draft: {
                "precision": noted_precision(draft) or acceleration_of(chain, group).precision
            },
            measured=[METRICS],
        )
        group.wait()
        return artifact
    progress.console.quiet = True
    _train(chain, chain.store.draft_place("train", chain.fingerprint("train")), group)
    group.wait()  # until the first one has published
    return chain.need("train")


def _train(chain: Chain, draft: Path, group: Group) -> dict[str, Any]:
    recipe, machine, device = chain.recipe, chain.machine, group.device
    prepared = PreparedCorpus(verify(chain.need("prepare")))
    n_tokens = prepared.counts().vocabulary
    n_rows = recipe.model.rows_for(n_tokens)
    model = Description(config=recipe.model, n_rows=n_rows)
    max_steps = recipe.training.max_steps
    signals: list[signal.Signals] = []
    with (
        _deterministic() if machine.deterministic else nullcontext(),
        enough_memory(device, most_tokens(chain, group)),
    ):
        acceleration = acceleration_of(chain, group)
        trainer = trainer_of(chain, group, open_pairs(prepared, "train"), n_rows, acceleration)
        if parent := chain.bundles.get("train"):
            _load_parent(trainer.model, parent, prepared)
        if group.is_first:
            continue_shorter(chain, draft)
            _set_up(draft, recipe.training, model)
        group.wait()
        _say_what_begins(trainer)
        say_if_bfloat16_is_faster(chain, group)
        _say_what_is_unusual(trainer)
        chain.say_rows("train", n_tokens)
        with (
            on_stop_signal(lambda number: _remember(number, signals)),
            _reporter(chain, trainer) as report,
        ):
            done = train(
                trainer,
                open_pairs(prepared, "dev"),
                draft / CHECKPOINTS,
                origin=Origin(
                    model=model,
                    text=prepared.hashes_of_text(),
                    training=lineage(chain.depends_on("train")),
                ),
                aside=draft.with_suffix(ASIDE),
                evaluate=_evaluation(chain, prepared),
                report=report,
                say=progress.say,
                should_stop=lambda: bool(signals),
            )
    if not is_over(recipe.training, done):
        _stop(signals, group, f"after step {done.step:,} of {max_steps:,}")
    _say_why_early(done, max_steps)
    if not group.is_first:
        return {}
    move(draft / CHECKPOINTS / METRICS, draft / METRICS)
    return {
        "device": str(group.device),
        "device_name": device_name(group.device),
        "processes": group.size,
        "dtype": acceleration.precision,
        "deterministic": machine.deterministic,
        "threads": torch.get_num_threads(),
        "steps": done.step,
        "skipped_steps": done.skipped,
        "tgt_tokens": done.tgt_tokens,
        **_speed_of(read_metrics(draft / METRICS)),
    }


def _set_up(draft: Path, training: TrainingConfig, model: Description) -> None:
    """Check the disk space for the checkpoints, and write the description of the model."""
    n_parameters = count_parameters(model.config, model.n_rows).total
    there = sum(file.stat().st_size for file in draft.glob(f"{CHECKPOINTS}/*/*.safetensors"))
    needed = checkpoints_bytes(training, n_parameters) - there
    check_room(draft, needed, "train")
    model.save(draft)
    if (draft / METRICS).exists():  # killed between its last step and publishing
        move(draft / METRICS, draft / CHECKPOINTS / METRICS)


def _load_parent(model: Transformer, parent: Bundle, prepared: PreparedCorpus) -> None:
    """Load the weights of the bundle that the recipe fine-tunes.

    Raises:
        UserError: they are damaged, or those of another vocabulary.
    """
    ours, theirs = prepared.subword(), parent.text.subword
    ids = range(ours.n_tokens)
    if (
        theirs.n_tokens != ours.n_tokens
        or theirs.pieces(ids) != ours.pieces(ids)
        or parent.description.n_rows != len(model.output_matrix)
    ):
        path = parent.artifact.path
        raise UserError(
            f"the vocabulary of [training] start_from = {path} is not that of the prepared corpus; "
            f'set method = "bundle" and path = "{path}" in [subword]'
        )
    load_weights(model, parent.verified_weights())
    progress.say(f"train: starts from the weights of {parent.artifact.path}")


def trainer_of(
    chain: Chain, group: Group, pairs: Pairs, n_rows: int, acceleration: Acceleration
) -> Trainer:
    """Return a trainer of the recipe's model, before its first step."""
    recipe = chain.recipe
    if group.device.type == "cpu":
        keep_freed_memory()
    torch.manual_seed(recipe.training.seed)
    model = Transformer(recipe.model, n_rows, acceleration.dtype).to(group.device)
    max_tokens = most_tokens(chain, group)
    return Trainer(model, pairs, recipe.training, group, acceleration, max_tokens)


def acceleration_of(chain: Chain, group: Group) -> Acceleration:
    """Return the techniques that this machine allows for the recipe's model."""
    return Acceleration.of(
        chain.recipe.model,
        group.device,
        chain.machine.torch_dtype(group.device),
        deterministic=chain.machine.deterministic,
    )


def most_tokens(chain: Chain, group: Group) -> int:
    """Return the maximum tokens per side of a micro-batch; by default, each process has one."""
    training = chain.recipe.training
    update = max(training.src_tokens_per_update, training.tgt_tokens_per_update)
    share = update
    if group.size > 1 and chain.machine.max_tokens is None:
        share = int(SLACK * update / group.size) + 1
    return min(share, chain.machine.tokens_per_micro_batch(group.device))


def _say_what_begins(trainer: Trainer) -> None:
    group = trainer.group
    n_parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    of_several = f"{group.size} processes, each " if group.size > 1 else ""
    progress.say(
        f"train: {n_parameters:,} parameters on {of_several}{group.device.type}, "
        f"{trainer.acceleration.precision}, {trainer.max_tokens:,} tokens a side of a micro-batch"
    )
    say_what_is_missing(trainer.acceleration)
    if group.n_restarts:
        progress.say(
            f"train: a process was lost; resuming from the last checkpoint (restart "
            f"{group.n_restarts})"
        )
    max_positions = trainer.model.config.max_positions
    are_within = trainer.pairs.are_within(max_positions)
    if n_longer := int(np.count_nonzero(~are_within)):
        progress.say(
            f"train: leaves out {n_longer:,} of {len(are_within):,} pairs, which have a side of "
            f"more than [model] max_positions = {max_positions:,} tokens"
        )


def say_what_is_missing(acceleration: Acceleration) -> None:
    """Say what to install, if layers could be compiled on this device and are not."""
    if acceleration.static and not acceleration.compiled:
        progress.say(
            f"note: layers are not compiled, which would be faster: {missing_compiler()} is "
            "missing; install it (the packages are often named gcc and python3-dev)"
        )


def say_if_bfloat16_is_faster(chain: Chain, group: Group) -> None:
    """Say that this CPU has instructions for bfloat16, if the user has not chosen a precision.

    A result must not depend on the processor unless the user asks for it.
    """
    if chain.machine.dtype != Precision.AUTO or group.device.type != "cpu":
        return
    gain = bfloat16_gain(min(chain.recipe.model.d_model, MOST_WIDTH), GAIN_SECONDS)
    if gain >= WORTHWHILE_GAIN:
        progress.say(
            "note: `--dtype bfloat16` would be faster on this processor: its matrix products take "
            f"1 / {gain:.1f} of the time; results differ by rounding"
        )


def _say_what_is_unusual(trainer: Trainer) -> None:
    """Say what is allowed, but may be a slip: overlong pairs, attention of another width."""
    model, training, pairs = trainer.model.config, trainer.config, trainer.pairs
    within = pairs.are_within(model.max_positions)
    for key, lengths in (
        ("src_tokens_per_update", pairs.src_lengths),
        ("tgt_tokens_per_update", pairs.tgt_lengths),
    ):
        most = getattr(training, key)
        if n_longer := int(np.count_nonzero(within & (lengths > most))):
            progress.say(
                f"train: note: {n_longer:,} pairs have a side of more than [training] {key} = "
                f"{most:,} tokens; each makes a larger update of its own"
            )
    widths = {key: model.n_heads * getattr(model, key) for key in ("d_k", "d_v")}
    if any(width != model.d_model for width in widths.values()):
        seen = " and ".join(f"n_heads * {key} = {width:,}" for key, width in widths.items())
        progress.say(
            f"train: note: {seen}, where the paper has d_model = {model.d_model:,} (section 3.2.2)"
        )
    if model.attention_dropout and trainer.group.device.type == "cuda":
        progress.say(
            f"train: note: attention_dropout = {model.attention_dropout:g} makes training on a GPU "
            "slower: torch's fused attention has no dropout, so plain products take its place"
        )


def _say_why_early(done: Progress, max_steps: int) -> None:
    """Report early stopping."""
    if done.step < max_steps and done.best is not None:
        progress.say(
            f"train: ends after step {done.step:,} of {max_steps:,}: no better dev perplexity in "
            f"{done.best.n_worse:,} evaluations than {done.best.perplexity:.2f} of step "
            f"{done.best.step:,}"
        )


def _evaluation(chain: Chain, prepared: PreparedCorpus) -> Callable[[Transformer], DevScore]:
    """Return what scores a model in training: sacreBLEU or bracket F1 of the first dev lines."""
    corpus = chain.recipe.corpus
    src, refs = (prepared.dev_lines(side)[:DEV_LINES] for side in SIDES)

    def evaluate(model: Transformer) -> DevScore:
        text = Text.load(prepared.artifact, len(model.output_matrix))
        engine = TorchEngine(model, text.subword.n_tokens)
        greedy = GREEDY_PARSING if corpus.linearization else GREEDY
        translator = Translator(text, engine, greedy, max_subwords(model.config))
        translations = translator.translate(src, progress=lambda _: None)
        hyps = [translation.text for translation in translations]
        if corpus.linearization:
            f1 = bracket_f1(hyps, refs, n_bootstrap=1)["score"]
            return DevScore(None, f"first {len(refs)} lines of dev, greedy", f1)
        bleu = sacre_bleu(hyps, refs, lang=corpus.tgt_lang, lowercase=corpus.lowercase)
        how = f"first {len(refs)} lines of dev, greedy, plain text; {bleu.signature}"
        return DevScore(bleu.score, how)

    return evaluate


def _dev_score(metrics: Metrics) -> tuple[str, float]:
    """Return what a model is scored by in training, and its score."""
    if metrics.dev_bracket_f1 is not None:
        return "bracket F1", metrics.dev_bracket_f1
    return "sacreBLEU", metrics.dev_sacrebleu or 0.0


@contextmanager
def _reporter(chain: Chain, trainer: Trainer) -> Iterator[Callable[[Metrics], None]]:
    """Show each step on the terminal and, on request, in TensorBoard."""
    if not trainer.group.is_first:
        yield lambda _metrics: None
        return
    total = chain.recipe.training.max_steps
    folder = chain.machine.tensorboard
    with (
        progress.task("train", unit="steps", total=total) as task,
        ExitStack() as at_end,
        _curves(chain) as curves,
    ):
        speed = _speed(trainer)
        n_done = 0
        how: str | None = None  # the dev sets are scored; said once
        events: EventWriter | None = None

        def report(metrics: Metrics) -> None:
            nonlocal n_done, how, events
            if not n_done:
                draft = chain.store.draft_place("train", chain.fingerprint("train"))
                note_precision(draft, trainer.acceleration.precision, metrics.step)
                if folder is not None:
                    events = at_end.enter_context(EventWriter(folder, metrics.step))
            if metrics.dev_perplexity is not None:
                if metrics.dev_sacrebleu_how != how:
                    how = metrics.dev_sacrebleu_how
                    progress.say(f"train: dev {_dev_score(metrics)[0]} is of the {how}")
                name, score = _dev_score(metrics)
                progress.say(
                    f"train: step {metrics.step:,}: dev perplexity {metrics.dev_perplexity:.2f}, "
                    f"dev {name} {score:.2f}"
                )
            if metrics.skipped:
                progress.say(
                    f"train: step {metrics.step:,} was skipped: loss {metrics.loss}, gradient norm "
                    f"{metrics.gradient_norm}"
                )
            speed.add(metrics.src_tokens, metrics.tgt_tokens, metrics.seconds)
            task.note(
                f"loss {metrics.loss:.3g}",
                *speed.parts(),
                f"learning rate {metrics.learning_rate:.2e}",
            )
            task.advance(metrics.step - n_done)
            curves(metrics)
            n_done = metrics.step
            if events is not None:
                events.write(vars(metrics))

        yield report


@contextmanager
def _curves(chain: Chain) -> Iterator[Callable[[Metrics], None]]:
    """Keep a page with the curves of the training, beside the artifact that it will be."""
    fingerprint = chain.fingerprint("train")
    recipe = chain.recipe
    page = chain.store.place("train", fingerprint).with_suffix(".html")
    progress.say(f"train: curves are in {page}; reload the page for newer ones")
    curves = Curves(page, recipe.name, recipe.description, recipe.training.max_steps)
    earlier = chain.store.draft_place("train", fingerprint) / CHECKPOINTS / METRICS
    is_first = True

    def add(metrics: Metrics) -> None:
        nonlocal is_first
        if is_first:
            for line in read_metrics(earlier):
                if line["step"] < metrics.step:
                    curves.add(line)
            is_first = False
        curves.add(vars(metrics))
        curves.write_sometimes()

    yield add
    curves.write()


def _speed(trainer: Trainer) -> Speed:
    model, group = trainer.model, trainer.group
    peak = 0.0
    if group.device.type == "cuda":
        peak = measured_peak(group.device, PEAK_SECONDS, trainer.acceleration.dtype)
    return Speed(
        model.config,
        len(model.output_matrix),
        length=round(float(trainer.pairs.tgt_lengths.mean())),
        peak_flops=group.size * peak,
    )


def _speed_of(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Summarize the speed of the steps in `metrics.jsonl`: all of them, unless it was damaged."""
    seconds, src_tokens, tgt_tokens = (
        sum(line[name] for line in lines) for name in ("seconds", "src_tokens", "tgt_tokens")
    )
    return {
        "timed_steps": len(lines),
        "timed_seconds": round(seconds, 3),
        "timed_src_tokens": src_tokens,
        "timed_tgt_tokens": tgt_tokens,
        "tgt_tokens_per_second": round(tgt_tokens / seconds, 1) if seconds else None,
    }


@contextmanager
def _deterministic() -> Iterator[None]:
    """Make torch choose algorithms that give the same bits each time, or refuse."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # read when CUDA starts
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def _remember(number: signal.Signals, signals: list[signal.Signals]) -> None:
    signals.append(number)
    try:
        progress.say("train: finishing this step, then saving; signal again to stop at once")
    except OSError:  # after SIGHUP, the terminal is gone
        progress.mute()


def _stop(signals: list[signal.Signals], group: Group, where: str) -> None:
    """Stop because of a signal to this process or another one."""
    number = signals[0] if signals else signal.SIGTERM
    if not group.is_first:
        raise AlreadyReported(128 + number)
    raise Stopped(
        f"stopped by {number.name} {where}, which is saved; the same command resumes there",
        exit_code=128 + number,
    )
