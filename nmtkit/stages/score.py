"""score: hypotheses against references, each BLEU with how it was counted (section 6.1)."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nmtkit import progress
from nmtkit.evaluation.bleu import count_scores
from nmtkit.evaluation.bracket_f1 import bracket_f1
from nmtkit.evaluation.plain_text import warnings
from nmtkit.evaluation.translations import translated_sets, write_scores
from nmtkit.stages.chain import Chain
from nmtkit.store import Artifact


def run(chain: Chain) -> Artifact:
    return chain.make("score", lambda draft: _score(chain, draft))


def _score(chain: Chain, draft: Path) -> dict[str, Any]:
    scoring, lang = chain.recipe.scoring, chain.recipe.corpus.tgt_lang
    scores = {}
    of_trees = scoring.metric == "bracket_f1"
    for each in translated_sets(chain.need("translate")):
        _, hyps, references = each.read()
        for warning in () if of_trees else warnings(hyps, references):
            progress.say(f"score: {each.name}: {warning}")
        if not references:
            progress.say(f"score: {each.name} has no reference and is not scored")
            continue
        progress.say(f"score: {each.name}")
        if of_trees:
            repaired = sum(map(bool, each.repairs()))
            found = {"bracket_f1": {**bracket_f1(hyps, references[0]), "repaired": repaired}}
        else:
            found = count_scores(
                hyps,
                *references,
                lang=lang,
                lowercase=scoring.lowercase,
                normalize_punctuation=scoring.normalize_punctuation,
            )
        scores[each.name] = {**found, "test_set": describe(each.name, *references)}
    write_scores(draft, scores)
    return {}


def describe(name: str, *references: Sequence[str]) -> dict[str, object]:
    """Return the name of a test set, its lines, and the sha256 of its references as plain text."""
    text = hashlib.sha256()
    for reference in references:
        text.update("".join(f"{line}\n" for line in reference).encode())
    return {"name": name, "lines": len(references[0]), "sha256": text.hexdigest()}
