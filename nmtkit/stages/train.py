"""train: from a prepared corpus to checkpoints (section 5)."""

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch

from nmtkit.config.recipe import DecodingConfig, TrainingConfig
from nmtkit.config.settings import PREPARE_OPTIONS
from nmtkit.corpus.prepared import SIDES, PreparedCorpus, Split
from nmtkit.decoding.bundle import Bundle
from nmtkit.decoding.lines import Text, Translator, max_subwords
from nmtkit.decoding.torch_engine import TorchEngine
from nmtkit.evaluation.bracket_f1 import bracket_f1
from nmtkit.evaluation.sacre import bleu_metric, chrf, sacre_bleu
from nmtkit.model.description import Description
from nmtkit.model.transformer import Transformer
from nmtkit.model.weights import count_parameters, load_weights
from nmtkit.reporting.curves import DEV_SCORES, Curves, event_writer
from nmtkit.stages.note import read_note, write_note
from nmtkit.stages.pipeline import Pipeline
from nmtkit.stages.resuming import continue_shorter, lineage
from nmtkit.store.artifacts import ASIDE, Artifact, open_directory
from nmtkit.store.code_version import is_other_code, own_code, versions
from nmtkit.store.files import check_room, move
from nmtkit.store.manifests import fingerprint_of
from nmtkit.store.verification import verify
from nmtkit.training.acceleration import MAX_LEVEL, Acceleration
from nmtkit.training.batches import Pairs
from nmtkit.training.checkpoint import Origin, checkpoints, checkpoints_bytes, is_over
from nmtkit.training.distributed import Group, is_worker, join
from nmtkit.training.launch import launch
from nmtkit.training.memory import tokens_that_fit
from nmtkit.training.metrics import CHECKPOINTS, METRICS, Metrics, read_metrics, speed_of
from nmtkit.training.setup import (
    Setup,
    common_acceleration,
    deterministic,
    enough_memory,
    start_trainer,
    too_long_warning,
    training_summary,
)
from nmtkit.training.signals import on_stop_signal
from nmtkit.training.step import Trainer
from nmtkit.training.train import Evaluate, train
from nmtkit.utils import progress
from nmtkit.utils.errors import AlreadyReported, Stopped, UserError
from nmtkit.utils.hardware import check_has_code, device_name

DEV_LINES = 200  # for monitoring, in a few seconds, by what the checkpoints depend on too
GREEDY = DecodingConfig(beam_size=1, length_penalty=0.0, max_extra_tokens=50)
GREEDY_PARSING = DecodingConfig(beam_size=1, length_penalty=0.0, max_extra_tokens=300)


def run(pipeline: Pipeline) -> Artifact:
    """Publish the checkpoints of the recipe, trained by a process for each device."""
    # Processes that torchrun started delete the old artifact together, see below.
    is_forced = bool(pipeline.force) and is_worker()
    if not is_forced:
        pipeline.delete_forced()
        if (existing := pipeline.find("train")) is not None:
            return existing
        if (rebuilt := pipeline.stale_input("train")) is not None:
            place = pipeline.store.place("train", pipeline.fingerprint("train"))
            raise UserError(
                f"{place} was trained on another "
                f"build of the corpus than the present artifact of `{rebuilt}`; run "
                f"`{pipeline.command_of('train')} --force` to train anew"
            )
    if not pipeline.recipe.corpus.linearization:
        bleu_metric(pipeline.recipe.corpus.tgt_lang)  # fail now if its tokenizer is not installed
    if not is_worker():
        pipeline.need("prepare")
    force = ["--force"] if pipeline.force else []
    if start_processes(
        pipeline, ["train", *force, *pipeline.settings.options(exclude=PREPARE_OPTIONS)]
    ):
        return pipeline.need("train")
    with join(pipeline.settings.torch_device()) as group:
        if is_forced:
            if group.is_first:
                pipeline.delete_forced()
            group.wait()
        build = partial(_train, pipeline, group=group)
        if group.is_first:
            pipeline.make("train", build, resume=True, measured=[METRICS])
        else:
            progress.console.quiet = True
            build(pipeline.store.draft_place("train", pipeline.fingerprint("train")))
        group.wait()  # until the first one has published
        return pipeline.need("train")


def start_processes(pipeline: Pipeline, command: Sequence[str]) -> bool:
    """Run `nmtkit COMMAND` in several processes if they are to train, and return whether it did."""
    if is_worker() or (n_processes := pipeline.settings.n_processes()) == 1:
        return False
    progress.log(f"{command[0]}: {n_processes} processes")
    overrides = [f"--set={override}" for override in pipeline.overrides]
    quiet = ["--quiet"] if progress.console.quiet else []
    words = [*quiet, *command, *overrides, "--", pipeline.command]
    launch(n_processes, words, lambda sentence: progress.warn(f"{command[0]}: {sentence}"))
    return True


def open_pairs(prepared: PreparedCorpus, split: Split, weights: Sequence[float] = ()) -> Pairs:
    """Open the token ids of a split; `weights` are those of the corpora of train."""
    src, tgt = (prepared.ids(split, side) for side in SIDES)
    kept = (each["kept"] for each in prepared.counts().train)
    corpora = tuple(zip(kept, weights, strict=False))
    return Pairs(src.ids, src.offsets, tgt.ids, tgt.offsets, corpora)


def setup_of(pipeline: Pipeline, group: Group) -> Setup:
    """Return how all processes of `group` train the recipe's model: as the weakest of them can."""
    model, training, settings = pipeline.recipe.model, pipeline.recipe.training, pipeline.settings
    device = group.device
    check_has_code(device)
    code = fingerprint_of("train", own_code(versions()))
    for what, text in (("artifact", pipeline.fingerprint("train")), ("code", code)):
        n = int(text[:13], 16)  # 52 bits
        group.check_same(f"the {what} of this training", n, "recipe, --set and nmtkit")
    max_level = MAX_LEVEL[settings.accelerate]
    acceleration = Acceleration.choose(device, settings.torch_dtype(device), max_level)
    acceleration = common_acceleration(acceleration, group)
    max_tokens = settings.max_tokens
    if max_tokens is None:
        n_rows = model.rows_for(pipeline.expected_vocabulary())
        max_tokens = tokens_that_fit(device, model, n_rows, acceleration.dtype)
    use_bins = device.type == "cuda"
    if not use_bins:  # bins have some padding, so that an update takes more positions than tokens
        tokens_per_update = max(training.src_tokens_per_update, training.tgt_tokens_per_update)
        max_tokens = min(tokens_per_update, max_tokens)
    return Setup(
        model=model,
        training=training,
        group=group,
        acceleration=acceleration,
        max_tokens=int(group.least(max_tokens)),
        # With the user's own maximum, dropout is the same on any number of processes.
        multiple_of=group.size if settings.max_tokens is None else 1,
        use_bins=use_bins,
    )


def _train(pipeline: Pipeline, draft: Path, group: Group) -> dict[str, Any]:
    """Train as one process of `group`; only the first one writes to `draft`."""
    recipe, settings, setup = pipeline.recipe, pipeline.settings, setup_of(pipeline, group)
    prepared = PreparedCorpus(verify(pipeline.need("prepare")))
    n_tokens = prepared.counts().vocabulary
    description = Description(config=recipe.model, n_rows=recipe.model.rows_for(n_tokens))
    signals: list[signal.Signals] = []
    with (
        deterministic() if settings.deterministic else nullcontext(),
        enough_memory(group.device, setup.max_tokens),
    ):
        dev_pairs = open_pairs(prepared, "dev")
        trainer = start_trainer(
            setup,
            open_pairs(prepared, "train", recipe.corpus.weights),
            description.n_rows,
            progress.warn,
            dev_pairs,
        )
        if parent := pipeline.bundles.get("train"):
            _load_parent(trainer.model, parent, prepared)
        if group.is_first:
            continue_shorter(pipeline, draft)
            _prepare_draft(draft, recipe.training, description)
        group.wait()
        progress.log(f"train: {training_summary(trainer, settings.accelerate)}")
        if warning := too_long_warning(trainer):
            progress.warn(f"train: {warning}")
        training = lineage(pipeline.depends_on("train"))
        with (
            on_stop_signal(partial(_remember, signals)),
            _reporter(pipeline, trainer, draft) as report,
        ):
            done = train(
                trainer,
                dev_pairs,
                draft / CHECKPOINTS,
                origin=Origin(model=description, text=prepared.hashes_of_text(), training=training),
                aside=draft.with_suffix(ASIDE),
                evaluate=_evaluation(pipeline, prepared, report),
                report=report or (lambda _metrics: None),
                log=progress.log,
                warn=progress.warn,
                should_stop=lambda: bool(signals),
            )
    where = f"after step {done.step:,} of {recipe.training.max_steps:,}"
    if not is_over(recipe.training, done):  # by a signal to this process or another one
        number = signals[0] if signals else signal.SIGTERM
        if not group.is_first:
            raise AlreadyReported(128 + number)
        raise Stopped(
            f"stopped by {number.name} {where}, which is saved; the same command resumes there",
            exit_code=128 + number,
        )
    if done.step < recipe.training.max_steps and done.best is not None:
        name = DEV_SCORES.get(f"dev_{recipe.training.patience_metric}", "perplexity")
        progress.log(
            f"train: ends {where}: no better dev {name} in {done.best.n_worse:,} evaluations than "
            f"{done.best.score:.2f} of step {done.best.step:,}"
        )
    if not group.is_first:
        return {}
    _finish_draft(draft)
    if report:
        report.curves.write("finished")
    return {
        "device": str(group.device),
        "device_name": device_name(group.device),
        "processes": group.size,
        "dtype": setup.acceleration.precision,
        "deterministic": settings.deterministic,
        "threads": torch.get_num_threads(),
        "steps": done.step,
        "skipped_steps": done.skipped,
        "overflowed_steps": done.overflows,
        "tgt_tokens": done.tgt_tokens,
        **speed_of(read_metrics(draft / METRICS)),
    }


def _load_parent(model: Transformer, parent: Bundle, prepared: PreparedCorpus) -> None:
    """Load the weights of the bundle that the recipe fine-tunes, if its vocabulary is the same."""
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
    progress.log(f"train: starts from the weights of {parent.artifact.path}")


def _prepare_draft(draft: Path, training: TrainingConfig, model: Description) -> None:
    """Check the disk space for the checkpoints, and write the description of the model."""
    n_parameters = count_parameters(model.config, model.n_rows).total
    there = sum(file.stat().st_size for file in draft.glob(f"{CHECKPOINTS}/*/*.safetensors"))
    check_room(draft, checkpoints_bytes(training, n_parameters) - there, "train")
    model.save(draft)
    if (draft / METRICS).exists():  # killed between its last step and publishing
        move(draft / METRICS, draft / CHECKPOINTS / METRICS)


def _finish_draft(draft: Path) -> None:
    """Check also the checkpoints that were not read to resume, and move the metrics out."""
    for path in checkpoints(draft / CHECKPOINTS):
        verify(open_directory(path))
    move(draft / CHECKPOINTS / METRICS, draft / METRICS)


def _evaluation(
    pipeline: Pipeline, prepared: PreparedCorpus, reporter: "_Reporter | None"
) -> Evaluate:
    """Return what scores a model in training: its translation of dev, or of the first lines."""
    corpus, metric = pipeline.recipe.corpus, pipeline.recipe.training.patience_metric
    is_whole = metric in ("sacrebleu", "chrf")
    src, refs = (prepared.dev_lines(side)[: None if is_whole else DEV_LINES] for side in SIDES)

    def evaluate(model: Transformer) -> dict[str, Any]:
        begin = time.monotonic()
        text = Text.load(prepared.artifact, len(model.output_matrix))
        engine = TorchEngine([model], text.subword.n_tokens)
        greedy = GREEDY_PARSING if corpus.linearization else GREEDY
        translator = Translator(text, engine, greedy, max_subwords(model.config))
        translations = translator.translate(src, progress=lambda _: None)
        hyps = [translation.text for translation in translations]
        if reporter:
            reporter.curves.samples = [*zip(src, refs, hyps, strict=True)]
        lines = "whole of dev, {:,} lines" if is_whole else "first {:,} lines of dev"
        kind = "trees" if corpus.linearization else "plain text"
        lower = corpus.lowercase
        if corpus.linearization:
            scores = {"bracket_f1": bracket_f1(hyps, refs, n_bootstrap=1)}
        else:
            scores = {"sacrebleu": sacre_bleu(hyps, refs, lang=corpus.tgt_lang, lowercase=lower)}
        if metric == "chrf":
            scores[metric] = chrf(hyps, refs, lowercase=lower)
        found: dict[str, Any] = {"dev_seconds": round(time.monotonic() - begin, 3)}
        for key, score in scores.items():
            found[f"dev_{key}"] = score["score"]
            how = f"{lines.format(len(refs))}, greedy, {kind}; {score['signature']}"
            found[f"dev_{key}_how"] = how
        return found

    return evaluate


class _Reporter:
    """Shows each step: on the terminal, on a page and, on request, in TensorBoard."""

    def __init__(
        self, pipeline: Pipeline, trainer: Trainer, draft: Path, task: progress.Task
    ) -> None:
        recipe = pipeline.recipe
        page = pipeline.store.place("train", pipeline.fingerprint("train")).with_suffix(".html")
        progress.log(f"train: curves are in {page}; reload the page for newer ones")
        self._chain, self._trainer, self._draft, self._task = pipeline, trainer, draft, task
        self.curves = Curves(page, recipe.name, recipe.description, recipe.training.max_steps)
        self._n_done = 0
        self._hows: dict[str, str] = {}  # of each score of dev, how it is counted; said once
        self._write_event: Callable[[Mapping[str, Any]], None] = lambda _: None

    def __call__(self, metrics: Metrics) -> None:
        if not self._n_done:
            self._begin(metrics.step)
        if metrics.dev_perplexity is not None:
            self._say_dev(metrics)
        if metrics.skipped:
            progress.warn(f"train: step {metrics.step:,} was skipped: its gradient is not finite")
        if metrics.overflow:
            progress.warn(f"train: step {metrics.step:,} was skipped: float16 overflow")
        self._task.note(
            f"loss {metrics.loss:.3g}",
            f"{metrics.tgt_tokens / metrics.seconds:,.0f} target tokens/s",
            f"learning rate {metrics.learning_rate:.2e}",
        )
        self._task.advance(metrics.step - self._n_done)
        self._n_done = metrics.step
        self.curves.add(vars(metrics))
        self.curves.write_sometimes()
        self._write_event(vars(metrics))

    def close(self) -> None:
        """Write the page once more, also where all steps were done before."""
        if not self._n_done:
            self._show_steps_before(self._chain.recipe.training.max_steps + 1)
        self.curves.write("stopped")

    def _begin(self, step: int) -> None:
        """Note who computes the steps from `step` on, and show those before it."""
        before = read_note(self._draft)
        assert before is not None  # since `continue_shorter`
        precision = self._trainer.acceleration.precision
        note = before.continued(step, precision, own_code(versions()))
        write_note(self._draft, note)
        if is_other_code(note.code):
            steps = f"steps before {step:,}" if step > 1 else "earlier steps"
            progress.warn(f"{steps} were trained by another version or commit of nmtkit")
        self._show_steps_before(step)
        if (folder := self._chain.settings.tensorboard) is not None:
            self._write_event = event_writer(folder, step)

    def _show_steps_before(self, step: int) -> None:
        for line in read_metrics(self._draft / CHECKPOINTS / METRICS):
            if line["step"] < step:
                self.curves.add(line)

    def _say_dev(self, metrics: Metrics) -> None:
        found = vars(metrics)
        shown = [f"dev perplexity {metrics.dev_perplexity:.2f}"]
        for key, name in DEV_SCORES.items():
            if found[key] is None:
                continue
            shown.append(f"dev {name} {found[key]:.2f}")
            if self._hows.get(name) != (how := found[f"{key}_how"]):
                self._hows[name] = how
                progress.log(f"train: dev {name} is of the {how}")
        shown.append(f"translated in {found['dev_seconds']:,.1f} s")
        progress.log(f"train: step {metrics.step:,}: {', '.join(shown)}")


@contextmanager
def _reporter(pipeline: Pipeline, trainer: Trainer, draft: Path) -> Iterator[_Reporter | None]:
    if not trainer.group.is_first:
        yield None
        return
    total = pipeline.recipe.training.max_steps
    with (
        progress.task("train", unit="steps", total=total) as task,
        closing(_Reporter(pipeline, trainer, draft, task)) as reporter,
    ):
        yield reporter


def _remember(signals: list[signal.Signals], number: signal.Signals) -> None:
    signals.append(number)
    progress.log("train: finishing this step, then saving; signal again to stop at once")
