"""score: hypotheses against references, each BLEU with how it was counted (section 6.1)."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nmtkit.evaluation.bleu import count_scores
from nmtkit.evaluation.bracket_f1 import bracket_f1
from nmtkit.evaluation.plain_text import unspaced_warning, warnings
from nmtkit.evaluation.sacre import bleu_tokenizer, chrf, ter
from nmtkit.evaluation.translations import translated_sets, write_scores
from nmtkit.stages.pipeline import Pipeline
from nmtkit.store.artifacts import Artifact
from nmtkit.utils import progress
from nmtkit.utils.language import TREE, Language


def run(pipeline: Pipeline) -> Artifact:
    pipeline.delete_forced()
    return pipeline.make("score", lambda draft: _score(pipeline, draft))


def _score(pipeline: Pipeline, draft: Path) -> dict[str, Any]:
    scoring, scores = pipeline.recipe.scoring, {}
    of_trees = scoring.metric == "bracket_f1"
    for each in translated_sets(pipeline.need("translate")):
        _, hyps, references = each.read()
        if not references:
            progress.warn(f"score: {each.name} has no reference and is not scored")
            continue
        found = score_lines(
            f"score: {each.name}",
            hyps,
            references,
            TREE if of_trees else pipeline.recipe.corpus.tgt_lang,
            lowercase=scoring.lowercase,
            normalize_punctuation=scoring.normalize_punctuation,
        )
        if of_trees:
            found["bracket_f1"]["repaired"] = sum(map(bool, each.repairs()))
        scores[each.name] = {**found, "test_set": describe(each.name, *references)}
    write_scores(draft, scores)
    return {}


def score_lines(
    said: str,
    hyps: Sequence[str],
    references: Sequence[Sequence[str]],
    lang: Language,
    metrics: Sequence[str] = ("bleu",),
    *,
    lowercase: bool,
    normalize_punctuation: bool = False,
) -> dict[str, Any]:
    """Compute the scores of a text, and warn if it does not look like plain text.

    Args:
        said: The name of the text in reports and warnings.
        hyps: The translations.
        references: One or more references.
        lang: Their language; TREE for trees, which have bracket F1 only.
        metrics: Kinds of scores of text: bleu, chrf, ter.
        lowercase: Lowercase before scoring.
        normalize_punctuation: Normalize punctuation, for tokenized BLEU only.

    Returns:
        The scores in the format of `scores.json`.
    """
    progress.log(said)
    if lang == TREE:
        return {"bracket_f1": bracket_f1(hyps, references[0])}
    for warning in warnings(hyps, references):
        progress.warn(f"{said}: {warning}")
    tokenizers = []  # chrF has none
    if "bleu" in metrics:
        tokenizers.append(bleu_tokenizer(lang))
    if "ter" in metrics:
        tokenizers.append("tercom")
    for tokenizer in tokenizers:
        if unspaced := unspaced_warning(lang, tokenizer, references):
            progress.warn(f"{said}: {unspaced}")
    found: dict[str, Any] = {}
    if "bleu" in metrics:
        how = {"lowercase": lowercase, "normalize_punctuation": normalize_punctuation}
        found |= count_scores(hyps, *references, lang=lang, **how)
    if "chrf" in metrics:
        found["chrf"] = chrf(hyps, *references, lowercase=lowercase)
    if "ter" in metrics:
        found["ter"] = ter(hyps, *references)
    return found


def describe(name: str, *references: Sequence[str]) -> dict[str, object]:
    """Return the name of a test set, its lines, and the sha256 of its references as plain text."""
    text = hashlib.sha256()
    for reference in references:
        text.update("".join(f"{line}\n" for line in reference).encode())
    return {"name": name, "lines": len(references[0]), "sha256": text.hexdigest()}
