"""score: hypotheses against references, each BLEU with how it was counted (section 6.1)."""

from functools import partial
from pathlib import Path
from typing import Any

from nmtkit import artifacts, progress
from nmtkit.artifacts import Artifact
from nmtkit.corpus.moses import Tokenization, normalize_punctuation, replace_unicode_punctuation
from nmtkit.evaluation.bleu import TextTools, count_scores
from nmtkit.evaluation.scores import write_scores
from nmtkit.evaluation.translations import translated_sets
from nmtkit.recipe import ScoringConfig
from nmtkit.sources.parallel import read_parallel
from nmtkit.sources.text import TextFile
from nmtkit.stages.chain import Chain


def run(chain: Chain) -> Artifact:
    """Publish the scores of the recipe's translations."""
    return chain.make("score", lambda draft: _score(chain, draft))


def _score(chain: Chain, draft: Path) -> dict[str, Any]:
    scores = {}
    for each in translated_sets(chain.need("translate")):
        if each.reference is None:
            progress.say(f"score: {each.name} has no reference and is not scored")
            continue
        progress.say(f"score: {each.name}")
        lang = chain.recipe.corpus.tgt_lang
        scores[each.name] = score_files(
            each.hypotheses, each.reference, lang, chain.recipe.scoring, name=each.name
        )
    write_scores(draft, scores)
    return {}


def score_files(
    hypotheses: Path, references: Path, lang: str, scoring: ScoringConfig, *, name: str
) -> dict[str, Any]:
    """Count each BLEU of two files of plain text in the language `lang`, line by line.

    Args:
        name: what the test set is called.

    Raises:
        UserError: a file is missing, empty or not UTF-8, or the numbers of lines differ.
    """
    pairs = read_parallel("hypotheses and references", TextFile(hypotheses), TextFile(references))
    hyps, refs = map(list, zip(*pairs, strict=True))
    plain = Tokenization(
        lang,
        normalize_punctuation=False,
        lowercase=False,
        tokenizer="moses",
        aggressive_hyphens=False,
    )
    tools = TextTools(
        lang, plain.tokenize, partial(normalize_punctuation, lang=lang), replace_unicode_punctuation
    )
    scores = count_scores(
        hyps,
        refs,
        tools,
        lowercase=scoring.lowercase,
        normalize_punctuation=scoring.normalize_punctuation,
    )
    test_set = {
        "name": name,
        "lines": len(refs),
        "sha256": artifacts.sha256_of(references),
    }
    return {**scores, "test_set": test_set}
