"""The stage score: hypotheses against references, with signatures (section 6.1)."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nmtkit.config.recipe import SacrebleuTokenizer
from nmtkit.evaluation.bleu import count_scores
from nmtkit.evaluation.bracket_f1 import bracket_f1
from nmtkit.evaluation.plain_text import unspaced_warning, warnings
from nmtkit.evaluation.sacre import bleu_metric, chrf, ter
from nmtkit.evaluation.translations import translated_sets, write_scores
from nmtkit.stages.forcing import delete_forced
from nmtkit.stages.pipeline import Pipeline
from nmtkit.store.artifacts import Artifact
from nmtkit.utils import progress
from nmtkit.utils.language import TREE, Language


def run(pipeline: Pipeline) -> Artifact:
    """Return the scores of the test sets, computed now unless they exist."""
    delete_forced(pipeline)
    return pipeline.build("score", lambda draft: _score(pipeline, draft))


def _score(pipeline: Pipeline, draft: Path) -> dict[str, Any]:
    """Write the scores of the test sets of a recipe into a draft."""
    scoring = pipeline.recipe.scoring
    is_parsing = scoring.metric == "bracket_f1"
    scores: dict[str, Any] = {}
    for test_set in translated_sets(pipeline.need("translate")):
        _, hyps, references = test_set.read()
        # Text without a reference can be translated by a recipe, but not scored.
        if not references:
            progress.warn(f"score: skipping {test_set.name}, which has no reference")
            continue
        set_scores = score_lines(
            f"score: {test_set.name}",
            hyps,
            references,
            TREE if is_parsing else pipeline.recipe.corpus.tgt_lang,
            ("bleu", "chrf"),
            lowercase=scoring.lowercase,
            normalize_punctuation=scoring.normalize_punctuation,
            tokenizer=scoring.sacrebleu_tokenizer,
            hyp_tokens=test_set.read_tokens() if scoring.lowercase else None,
        )
        if is_parsing:
            # A score of parses is comparable only if the number of repaired outputs is known.
            n_repaired = sum(bool(repairs) for repairs in test_set.repairs())
            set_scores["bracket_f1"]["repaired"] = n_repaired
        set_scores["test_set"] = describe(test_set.name, *references)
        scores[test_set.name] = set_scores
    write_scores(draft, scores)
    return {}


def score_lines(
    label: str,
    hyps: Sequence[str],
    references: Sequence[Sequence[str]],
    lang: Language,
    metrics: Sequence[str] = ("bleu",),
    *,
    lowercase: bool,
    normalize_punctuation: bool = False,
    tokenizer: SacrebleuTokenizer | None = None,
    hyp_tokens: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Compute the scores of a text, and warn if it does not look like plain text.

    Args:
        label: Name of the text in progress messages and warnings.
        references: One or more references.
        lang: Target language; TREE for parse trees: they have bracket F1 only.
        metrics: Metrics of text: bleu, chrf, ter.
        lowercase: Lowercase before scoring.
        normalize_punctuation: Normalize punctuation, for tokenized BLEU only.
        tokenizer: A tokenizer of sacreBLEU; None: that of the language.
        hyp_tokens: The hypotheses as the tokens of the model; see `count_scores`.

    Returns:
        The scores in the format of `scores.json`.
    """
    progress.log(label)
    # Bracket F1 needs trees, and no other score makes sense for them.
    if lang == TREE:
        return {"bracket_f1": bracket_f1(hyps, references[0])}
    for warning in warnings(hyps, references):
        progress.warn(f"{label}: {warning}")
    tokenizers = []  # chrF has none
    if "bleu" in metrics:
        metric = bleu_metric(lang, tokenizer=tokenizer)
        tokenizers.append(str(metric.tokenizer_signature))
    if "ter" in metrics:
        tokenizers.append("tercom")
    for name in tokenizers:
        unspaced = unspaced_warning(lang, name, references)
        if unspaced is not None:
            progress.warn(f"{label}: {unspaced}")

    scores: dict[str, Any] = {}
    if "bleu" in metrics:
        scores |= count_scores(
            hyps,
            *references,
            lang=lang,
            lowercase=lowercase,
            normalize_punctuation=normalize_punctuation,
            tokenizer=tokenizer,
            hyp_tokens=hyp_tokens,
        )
    if "chrf" in metrics:
        scores["chrf"] = chrf(hyps, *references, lowercase=lowercase)
    if "ter" in metrics:
        scores["ter"] = ter(hyps, *references)
    return scores


def describe(name: str, *references: Sequence[str]) -> dict[str, object]:
    """Return the name of a test set, its number of lines, and the SHA-256 of its references."""
    text = hashlib.sha256()
    for reference in references:
        for line in reference:
            text.update(f"{line}\n".encode())
    return {"name": name, "lines": len(references[0]), "sha256": text.hexdigest()}
