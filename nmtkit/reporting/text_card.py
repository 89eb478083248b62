"""The README of an exported corpus: its files, its origin, and how other toolkits read it."""

from collections.abc import Sequence
from pathlib import Path

from nmtkit import __version__
from nmtkit.corpus.bpe_subword import BpeSubword
from nmtkit.corpus.moses import Tokenization
from nmtkit.corpus.prepared import PreparedCorpus
from nmtkit.reporting.grid import markdown
from nmtkit.reporting.model_card import CARD, write_template


def write_text_card(
    folder: Path, corpus: PreparedCorpus, name: str, sets: Sequence[str], langs: Sequence[str]
) -> None:
    """Write README.md into the folder of an exported corpus.

    Args:
        folder: The folder.
        corpus: The prepared corpus.
        name: The name of the recipe.
        sets: The names of the test sets.
        langs: The languages of source and target.
    """
    tokenizations = corpus.tokenizations()
    values = {
        "name": name,
        "src": langs[0],
        "tgt": langs[1],
        "size": corpus.counts().sizes["train"],
        "version": __version__,
        "fingerprint": corpus.artifact.manifest.fingerprint,
        "sets": sets,
        "test_prefixes": ",".join(f"DIR/{test_set}" for test_set in sets),
        "model": corpus.subword_model().name,
        "is_bpe": isinstance(corpus.subword(), BpeSubword),
        "processing": [_processing(tokenizations.src), _processing(tokenizations.tgt)],
        "markdown": markdown,
    }
    write_template(folder / CARD, "exported_text.md.j2", values)


def _processing(tokenization: Tokenization) -> str:
    """Describe the processing of raw text before it was split into subwords."""
    if tokenization.has_trees:
        return "linearized parse trees"
    steps = []
    if tokenization.normalize_punctuation:
        steps.append("normalize-punctuation.perl")
    if tokenization.lowercase:
        steps.append("lowercased")
    if tokenization.tokenizer == "moses":
        hyphens = "-a " if tokenization.aggressive_hyphens else ""
        steps.append(f"tokenizer.perl {hyphens}-l {tokenization.lang}")
    return ", ".join(steps) or "none"
