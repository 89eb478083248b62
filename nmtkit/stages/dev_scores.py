"""Scores of a model in training: it translates the development set, or the first lines of it."""

import time
from collections.abc import Callable
from typing import Any

from nmtkit.config.recipe import CorpusConfig, DecodingConfig
from nmtkit.corpus.prepared import PreparedCorpus
from nmtkit.decoding.lines import Text, TextTranslator, max_subwords
from nmtkit.decoding.torch_engine import TorchEngine
from nmtkit.evaluation.bracket_f1 import bracket_f1
from nmtkit.evaluation.sacre import chrf, sacre_bleu
from nmtkit.model.transformer import Transformer
from nmtkit.reporting.curves import Sample
from nmtkit.training.dev import Evaluate

DEV_LINES = 200  # translated in a few seconds, if the score is only for monitoring
GREEDY = DecodingConfig(beam_size=1, length_penalty=0.0, max_extra_tokens=50)
GREEDY_PARSING = DecodingConfig(beam_size=1, length_penalty=0.0, max_extra_tokens=300)


def dev_evaluation(
    prepared: PreparedCorpus,
    corpus: CorpusConfig,
    patience_metric: str | None,
    show_samples: Callable[[list[Sample]], None],
) -> Evaluate:
    """Return a function that translates the development set greedily and scores it.

    Args:
        prepared: The artifact of `prepare`.
        corpus: [corpus] of the recipe.
        patience_metric: [training] patience_metric. If checkpoints depend on a score, it is of the
            whole set, and otherwise of its first lines.
        show_samples: Called with sources, references and translations.
    """
    is_whole = patience_metric in ("sacrebleu", "chrf")
    n_lines = None if is_whole else DEV_LINES
    src = prepared.dev_lines("src")[:n_lines]
    refs = prepared.dev_lines("tgt")[:n_lines]
    lines = f"whole of dev, {len(refs):,} lines"
    if not is_whole:
        lines = f"first {len(refs):,} lines of dev"
    kind = "trees" if corpus.linearization else "plain text"

    def evaluate(model: Transformer) -> dict[str, Any]:
        # The scores only compare checkpoints, for which the much faster greedy search is enough.
        begin = time.monotonic()
        text = Text.load(prepared.artifact, len(model.output_matrix))
        engine = TorchEngine([model], text.subword.n_tokens)
        decoding = GREEDY_PARSING if corpus.linearization else GREEDY
        translator = TextTranslator(text, engine, decoding, max_subwords(model.config))
        # Training shows its own progress.
        translations = translator.translate(src, progress=lambda _: None)
        hyps = [translation.text for translation in translations]
        show_samples(list(zip(src, refs, hyps, strict=True)))

        scores = {}
        if corpus.linearization:
            scores["bracket_f1"] = bracket_f1(hyps, refs, n_bootstrap=1)
        else:
            scores["sacrebleu"] = sacre_bleu(
                hyps, refs, lang=corpus.tgt_lang, lowercase=corpus.lowercase
            )
        if patience_metric == "chrf":
            scores["chrf"] = chrf(hyps, refs, lowercase=corpus.lowercase)

        fields: dict[str, Any] = {"dev_seconds": round(time.monotonic() - begin, 3)}
        for name, score in scores.items():
            fields[f"dev_{name}"] = score["score"]
            fields[f"dev_{name}_how"] = f"{lines}, greedy, {kind}; {score['signature']}"
        return fields

    return evaluate
