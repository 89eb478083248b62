"""score: hypotheses against references, each BLEU with how it was counted (section 6.1)."""

import hashlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from nmtkit import progress
from nmtkit.artifacts import Artifact
from nmtkit.corpus.moses import Tokenization, normalize_punctuation, replace_unicode_punctuation
from nmtkit.evaluation.bleu import TextTools, count_scores
from nmtkit.evaluation.bracket_f1 import bracket_f1
from nmtkit.evaluation.scores import write_scores
from nmtkit.evaluation.translations import translated_sets
from nmtkit.languages import Language
from nmtkit.sources.file_pair import read_parallel
from nmtkit.sources.text import TextFile
from nmtkit.stages.chain import Chain


def run(chain: Chain) -> Artifact:
    """Publish the scores of the recipe's translations."""
    return chain.make("score", lambda draft: _score(chain, draft))


def _score(chain: Chain, draft: Path) -> dict[str, Any]:
    scoring, lang = chain.recipe.scoring, chain.recipe.corpus.tgt_lang
    scores = {}
    for each in translated_sets(chain.need("translate")):
        if each.reference is None:
            progress.say(f"score: {each.name} has no reference and is not scored")
            continue
        progress.say(f"score: {each.name}")
        pairs = read_parallel(each.name, TextFile(each.hypotheses), TextFile(each.reference))
        hyps, refs = map(list, zip(*pairs, strict=True))
        if scoring.metric == "bracket_f1":
            n_repaired = sum(map(bool, each.repairs()))
            found = {"bracket_f1": {**bracket_f1(hyps, refs), "repaired": n_repaired}}
        else:
            found = count_scores(
                hyps,
                refs,
                tools=text_tools(lang),
                lowercase=scoring.lowercase,
                normalize_punctuation=scoring.normalize_punctuation,
            )
        scores[each.name] = {**found, "test_set": describe(each.name, refs)}
    write_scores(draft, scores)
    return {}


def text_tools(lang: Language) -> TextTools:
    """Return the Moses scripts for a language."""
    plain = Tokenization(
        lang.code,
        normalize_punctuation=False,
        lowercase=False,
        tokenizer="moses",
        aggressive_hyphens=False,
    )
    return TextTools(
        lang,
        plain.tokenize,
        partial(normalize_punctuation, lang=lang.code),
        replace_unicode_punctuation,
    )


def describe(name: str, *references: Sequence[str]) -> dict[str, object]:
    """Say which test set a score is of: its name, lines, and the sha256 of its references.

    The sha256 is that of the references one after the other, as plain text with "\\n" line ends.
    """
    text = hashlib.sha256()
    for reference in references:
        text.update("".join(f"{line}\n" for line in reference).encode())
    return {"name": name, "lines": len(references[0]), "sha256": text.hexdigest()}
