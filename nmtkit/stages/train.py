"""train: from a prepared corpus to checkpoints (section 5)."""

import signal
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch

from nmtkit.config.model import DecodingConfig
from nmtkit.config.recipe import CorpusConfig, TrainingConfig
from nmtkit.corpus.prepared import PreparedCorpus
from nmtkit.decoding.bundle import Bundle
from nmtkit.decoding.text_translator import Text, TextTranslator, max_subwords
from nmtkit.decoding.torch_engine import TorchEngine
from nmtkit.evaluation.bracket_f1 import bracket_f1
from nmtkit.evaluation.sacre import bleu_metric, chrf, sacre_bleu
from nmtkit.model.transformer import Transformer
from nmtkit.model.weights import Description, count_parameters, load_weights
from nmtkit.stages.curves import DEV_SCORES, Sample
from nmtkit.stages.forcing import delete_forced
from nmtkit.stages.pipeline import Pipeline
from nmtkit.stages.train_progress import (
    float16_hint,
    open_reporter,
    too_long_warning,
    training_summary,
)
from nmtkit.stages.training_setup import (
    choose_setup,
    deterministic,
    enough_memory,
    open_pairs,
    start_processes,
    start_trainer,
)
from nmtkit.stages.training_state import Part, lineage, read_note, resume_shorter, training_code
from nmtkit.store.artifacts import ASIDE, Artifact, open_directory, verify
from nmtkit.store.code_version import OTHER_CODE
from nmtkit.store.files import check_free_space, move
from nmtkit.training.checkpoint import (
    Origin,
    Progress,
    checkpoints,
    checkpoints_bytes,
    is_over,
)
from nmtkit.training.distributed import Group, is_worker, join
from nmtkit.training.loop import TrainingLoop
from nmtkit.training.metrics import CHECKPOINTS, METRICS, read_metrics, summarize_speed
from nmtkit.utils import progress
from nmtkit.utils.errors import AlreadyReported, Stopped, UserError
from nmtkit.utils.hardware import device_name
from nmtkit.utils.processes import on_stop_signal

DEV_LINES = 200  # translated in a few seconds, if the score is only for monitoring
GREEDY = DecodingConfig(beam_size=1, length_penalty=0.0, max_extra_tokens=50)
GREEDY_PARSING = DecodingConfig(beam_size=1, length_penalty=0.0, max_extra_tokens=300)


def run(pipeline: Pipeline) -> Artifact:
    """Publish the checkpoints of the recipe, trained by one process for each device.

    The process that the user starts runs the others with the same command, and waits for them.

    Raises:
        Stopped: A signal came too late to stop training, but no other stage should start.
    """
    # Processes that torchrun started delete the old artifact together, once they have met.
    is_forced_worker = bool(pipeline.force) and is_worker()
    if not is_forced_worker:
        delete_forced(pipeline)
        existing = pipeline.find("train")
        if existing is not None:
            return existing
        _check_not_stale(pipeline)
    # Fail now, and not after training, if the tokenizer of the target language is not installed.
    if not pipeline.recipe.corpus.linearization:
        tgt_lang = pipeline.recipe.corpus.tgt_lang
        bleu_metric(tgt_lang)
        bleu_metric(tgt_lang, tokenizer=pipeline.recipe.scoring.sacrebleu_tokenizer)
    if not is_worker():
        pipeline.need("prepare")
    command = ["train"]
    if pipeline.force:
        command.append("--force")
    command += pipeline.settings.options("train")
    # Each process that this one starts comes back here as a worker.
    if start_processes(pipeline, command):
        return pipeline.need("train")

    signals: list[signal.Signals] = []
    with join(pipeline.settings.torch_device()) as group:
        if is_forced_worker:
            if group.is_first:
                delete_forced(pipeline)
            group.wait()
        if group.is_first:
            build = partial(_train, pipeline, group=group, signals=signals)
            pipeline.build("train", build, resume=True, measured=[METRICS], made_by=training_code)
        else:
            # The other processes only read the draft, and the first one prints for all.
            progress.console.quiet = True
            progress.printed_kinds.add(OTHER_CODE)
            draft = pipeline.store.draft_place("train", pipeline.fingerprint("train"))
            _train(pipeline, draft, group, signals)
        group.wait()  # until the first process has published
    # Of workers, the process that started them decides.
    if signals and not is_worker():
        raise Stopped(
            f"stopped by {signals[0].name}; training is finished", exit_code=128 + signals[0]
        )
    return pipeline.need("train")


def _check_not_stale(pipeline: Pipeline) -> None:
    """Raise a UserError if a training is there, but of another build of the corpus."""
    rebuilt = pipeline.stale_input("train")
    if rebuilt is not None:
        place = pipeline.store.place("train", pipeline.fingerprint("train"))
        raise UserError(
            f"{place} was trained on another build of the corpus than the current "
            f"`{rebuilt}`; run `{pipeline.commands.stage('train')} --force` to replace it"
        )


def _train(
    pipeline: Pipeline, draft: Path, group: Group, signals: list[signal.Signals]
) -> dict[str, Any]:
    """Train as one process of a group.

    Args:
        pipeline: The recipe and the settings of this process.
        draft: The draft of the artifact; only the first process writes to it.
        group: The processes that train together.
        signals: The signals that this process receives during training are appended to it.

    Returns:
        The measurements of the artifact; none if this is not the first process.

    Raises:
        Stopped: A signal stopped training after a checkpoint was saved.
    """
    recipe = pipeline.recipe
    settings = pipeline.settings
    setup = choose_setup(pipeline, group)
    prepared = PreparedCorpus(verify(pipeline.need("prepare")))
    n_rows = recipe.model.embedding_rows(prepared.counts().vocabulary)
    description = Description(config=recipe.model, n_rows=n_rows)
    with deterministic() if settings.deterministic else nullcontext():
        with enough_memory(group.device, setup.max_tokens, recipe.model.max_positions):
            dev_pairs = open_pairs(prepared, "dev")
            train_pairs = open_pairs(prepared, "train", recipe.corpus.weights)
            trainer = start_trainer(setup, train_pairs, n_rows, dev_pairs)
        part = Part(
            first_step=1,  # until the first step of this run
            device=str(group.device),
            device_name=device_name(group.device),
            processes=group.size,
            dtype=trainer.setup.acceleration.precision,
            deterministic=settings.deterministic,
            threads=torch.get_num_threads(),
        )
        parent = pipeline.bundle("train")
        if parent is not None:
            _load_parent(trainer.model, parent, prepared)

        # One process writes to the draft; the others wait before they read checkpoints from it.
        if group.is_first:
            resume_shorter(pipeline, draft)
            _prepare_draft(draft, recipe.training, description)
        group.wait()

        progress.log(f"train: {training_summary(trainer, settings.accelerate)}")
        hint = float16_hint(trainer, settings.dtype)
        if hint is not None:
            progress.log(f"train: {hint}")
        warning = too_long_warning(trainer)
        if warning is not None:
            progress.warn(f"train: {warning}")
        with (
            # The micro-batches may have been halved.
            enough_memory(group.device, trainer.setup.max_tokens, recipe.model.max_positions),
            on_stop_signal(signals, _log_stop),
            open_reporter(pipeline, part, draft, group.is_first) as reporter,
        ):
            metric = recipe.training.patience_metric
            loop = TrainingLoop(
                trainer,
                dev_pairs,
                draft / CHECKPOINTS,
                aside=draft.with_suffix(ASIDE),
                origin=Origin(
                    model=description,
                    text=prepared.text_hashes(),
                    training=lineage(pipeline.depends_on("train")),
                ),
                evaluate=DevEvaluation(prepared, recipe.corpus, metric, reporter.show_samples),
                report=reporter.report,
                should_stop=lambda: bool(signals),
            )
            done = loop.run()

    if not is_over(recipe.training, done):
        # Training was stopped by a signal to this process or to another one.
        number = signals[0] if signals else signal.SIGTERM
        if not group.is_first:
            raise AlreadyReported(128 + number)
        raise Stopped(
            f"stopped by {number.name} {_position(done, recipe.training)}, which is saved; the "
            "same command resumes there",
            exit_code=128 + number,
        )
    _log_early_stop(done, recipe.training)
    if not group.is_first:
        return {}
    _finish_draft(draft)
    reporter.finish()
    note = read_note(draft)
    assert note is not None  # since `resume_shorter`
    return {
        **note.measurements(),
        "steps": done.step,
        "skipped_steps": done.skipped,
        "overflowed_steps": done.overflows,
        "tgt_tokens": done.tgt_tokens,
        **summarize_speed(read_metrics(draft / METRICS)),
    }


def _load_parent(model: Transformer, parent: Bundle, prepared: PreparedCorpus) -> None:
    """Load the weights of the bundle that the recipe fine-tunes.

    Args:
        model: The model, whose weights are overwritten.

    Raises:
        UserError: The vocabulary of the bundle is not that of the prepared corpus.
    """
    # Rows of the embedding matrix have the same meaning only if all tokens are the same.
    ours = prepared.subword()
    theirs = parent.text.subword
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
    progress.log(f"train: starting from the weights of {parent.artifact.path}")


def _prepare_draft(draft: Path, training: TrainingConfig, model: Description) -> None:
    """Check the disk space for the checkpoints, and write the description of the model.

    Args:
        training: [training] of the recipe.
        model: The description of the model.
    """
    n_parameters = count_parameters(model.config, model.n_rows).total
    # Checkpoints of an earlier run are on the disk already.
    n_existing = 0  # bytes
    for file in draft.glob(f"{CHECKPOINTS}/*/*.safetensors"):
        n_existing += file.stat().st_size
    check_free_space(draft, checkpoints_bytes(training, n_parameters) - n_existing, "train")
    model.save(draft)
    # An earlier run was killed between `_finish_draft` and its publication.
    if (draft / METRICS).exists():
        move(draft / METRICS, draft / CHECKPOINTS / METRICS)


def _finish_draft(draft: Path) -> None:
    """Verify all checkpoints, and move the metrics to where they are published."""
    # Those that no run resumed from have not been read since they were written.
    for path in checkpoints(draft / CHECKPOINTS):
        verify(open_directory(path))
    move(draft / CHECKPOINTS / METRICS, draft / METRICS)


def _position(done: Progress, training: TrainingConfig) -> str:
    """Return the last step for a message."""
    return f"after step {done.step:,} of {training.max_steps:,}"


def _log_early_stop(done: Progress, training: TrainingConfig) -> None:
    """Print why training ended before its last step, if it did."""
    if done.step == training.max_steps or done.best is None:
        return
    name = DEV_SCORES.get(f"dev_{training.patience_metric}", "perplexity")
    progress.log(
        f"train: stopping early {_position(done, training)}: dev {name} has not improved in "
        f"{done.best.n_worse:,} evaluations since {done.best.score:.2f} at step {done.best.step:,}"
    )


def _log_stop() -> None:
    """Print that training stops after the present step."""
    progress.log("train: finishing this step, then saving; signal again to stop at once")


# Scores of a model in training


class DevEvaluation:
    """Translates the development set greedily, and scores the translations."""

    def __init__(
        self,
        prepared: PreparedCorpus,
        corpus: CorpusConfig,
        patience_metric: str | None,
        show_samples: Callable[[list[Sample]], None],
    ) -> None:
        """Read the lines to translate.

        Args:
            prepared: The artifact of `prepare`.
            corpus: [corpus] of the recipe.
            patience_metric: [training] patience_metric. If checkpoints depend on a score, it is of
                the whole set, and otherwise of its first lines.
            show_samples: Called with sources, references and translations.
        """
        self._prepared = prepared
        self._corpus = corpus
        self._has_chrf = patience_metric == "chrf"
        self._show_samples = show_samples
        is_whole = patience_metric in ("sacrebleu", "chrf")
        n_lines = None if is_whole else DEV_LINES
        self._src = prepared.dev_lines("src")[:n_lines]
        self._refs = prepared.dev_lines("tgt")[:n_lines]
        n_refs = f"{len(self._refs):,}"
        lines = f"whole of dev, {n_refs} lines" if is_whole else f"first {n_refs} lines of dev"
        kind = "trees" if corpus.linearization else "plain text"
        self._method = f"{lines}, greedy, {kind}"

    def __call__(self, model: Transformer) -> dict[str, Any]:
        """Evaluate a model, and return the `dev_...` fields of `Metrics`."""
        begin = time.monotonic()
        # The scores only compare checkpoints, for which the much faster greedy search is enough.
        decoding = GREEDY_PARSING if self._corpus.linearization else GREEDY
        text = Text.load(self._prepared.artifact, len(model.output_matrix))
        engine = TorchEngine([model], text.subword.n_tokens)
        translator = TextTranslator(text, engine, decoding, max_subwords(model.config))
        hyps = [translation.text for translation in translator.translate(self._src)]
        self._show_samples(list(zip(self._src, self._refs, hyps, strict=True)))
        scores = self._scores(hyps)
        fields: dict[str, Any] = {"dev_seconds": round(time.monotonic() - begin, 3)}
        for name, score in scores.items():
            fields[f"dev_{name}"] = score["score"]
            fields[f"dev_{name}_how"] = f"{self._method}; {score['signature']}"
        return fields

    def _scores(self, hyps: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Score the translations, by the names of the scores."""
        lowercase = bool(self._corpus.lowercase)
        if self._corpus.linearization:
            scores = {"bracket_f1": bracket_f1(hyps, self._refs, n_bootstrap=1)}
        else:
            bleu = sacre_bleu(hyps, self._refs, lang=self._corpus.tgt_lang, lowercase=lowercase)
            scores = {"sacrebleu": bleu}
        if self._has_chrf:
            scores["chrf"] = chrf(hyps, self._refs, lowercase=lowercase)
        return scores
