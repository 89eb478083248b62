"""Scores of a model in training: it translates the development set, or the first lines of it."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from nmtkit.config.model import DecodingConfig
from nmtkit.config.recipe import CorpusConfig
from nmtkit.corpus.prepared import PreparedCorpus
from nmtkit.decoding.lines import Text, TextTranslator, max_subwords
from nmtkit.decoding.torch_engine import TorchEngine
from nmtkit.evaluation.bracket_f1 import bracket_f1
from nmtkit.evaluation.sacre import chrf, sacre_bleu
from nmtkit.model.transformer import Transformer
from nmtkit.stages.curves import Sample

DEV_LINES = 200  # translated in a few seconds, if the score is only for monitoring
GREEDY = DecodingConfig(beam_size=1, length_penalty=0.0, max_extra_tokens=50)
GREEDY_PARSING = DecodingConfig(beam_size=1, length_penalty=0.0, max_extra_tokens=300)


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
        hyps = self._translate(model)
        self._show_samples(list(zip(self._src, self._refs, hyps, strict=True)))
        scores = self._scores(hyps)
        fields: dict[str, Any] = {"dev_seconds": round(time.monotonic() - begin, 3)}
        for name, score in scores.items():
            fields[f"dev_{name}"] = score["score"]
            fields[f"dev_{name}_how"] = f"{self._method}; {score['signature']}"
        return fields

    def _translate(self, model: Transformer) -> list[str]:
        """Translate the lines with a model."""
        # The scores only compare checkpoints, for which the much faster greedy search is enough.
        decoding = GREEDY_PARSING if self._corpus.linearization else GREEDY
        text = Text.load(self._prepared.artifact, len(model.output_matrix))
        engine = TorchEngine([model], text.subword.n_tokens)
        translator = TextTranslator(text, engine, decoding, max_subwords(model.config))
        # Training shows its own progress.
        translations = translator.translate(self._src, progress=lambda _: None)
        return [translation.text for translation in translations]

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
