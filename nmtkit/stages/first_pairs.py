"""The first pairs of a text as it is read, which show its columns, languages and direction."""

from collections.abc import Iterator, Sequence
from itertools import chain, islice

from nmtkit.config.recipe import Recipe
from nmtkit.config.settings import RUNS
from nmtkit.evaluation.plain_text import training_warnings
from nmtkit.sources.download import Downloads
from nmtkit.sources.file_pair import FilePair
from nmtkit.sources.hub import HubSource
from nmtkit.sources.line_keys import find_keys
from nmtkit.sources.parallel import Corpus, find_corpus
from nmtkit.sources.source import Pair
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import shorten

N_FIRST_PAIRS = 3
N_CHECKED_PAIRS = 10_000  # that are checked for text that is not plain
MAX_CHARACTERS = 100  # of a line


def pair_lines(corpus: Corpus, pairs: Sequence[Pair]) -> list[str]:
    """Return a line that describes the format of a corpus, and pairs under their languages."""
    labels = [f"{lang}:" for lang in corpus.langs]
    width = max(len(label) for label in labels)
    lines = [f"{corpus.name}, read as {corpus.source.description()}; the first pairs:"]
    for pair in pairs:
        for label, sentence in zip(labels, pair, strict=True):
            lines.append(f"  {label:{width}} {shorten(sentence, MAX_CHARACTERS)}")
    return lines


def preview(
    corpus: Corpus, downloads: Downloads, *, has_tokens: bool = False
) -> tuple[list[str], Iterator[Pair]]:
    """Open a corpus, read its first pairs, and check whether they are plain text.

    Args:
        corpus: The corpus.
        downloads: The folder of downloads.
        has_tokens: Whether the model reads tokens instead of plain text.

    Returns:
        The lines that show the first pairs and warn of text that is not plain, and an iterator over
        all pairs.
    """
    # The pairs are read only once: the text may be a large download.
    pairs = corpus.pairs(downloads)
    first = list(islice(pairs, N_CHECKED_PAIRS))
    lines = pair_lines(corpus, first[:N_FIRST_PAIRS])
    # Pairs of files with keys were refused.
    is_plain_pair = isinstance(corpus.source, FilePair)
    found = None if is_plain_pair or has_tokens else find_keys(first)
    if found is not None:
        lines.append(
            f"warning: {corpus.name}: both sides begin with the same key or number ({found}); "
            "remove it from both"
        )
    langs = [str(lang) for lang in corpus.langs]
    for warning in training_warnings(first, langs, has_tokens=has_tokens):
        lines.append(f"warning: {corpus.name}: {warning}")
    return lines, chain(first, pairs)


def local_pair_lines(recipe: Recipe) -> list[str]:
    """Return the first pairs of all training texts that need no download."""
    lines: list[str] = []
    downloads = Downloads(RUNS / "downloads")  # which these texts do not need
    for source in recipe.corpus.train:
        corpus = find_corpus(source, recipe.corpus.src_lang, recipe.corpus.tgt_lang)
        # Opening a data set of the Hub may download it.
        if corpus.remote or isinstance(corpus.source, HubSource):
            continue
        try:
            pairs = list(islice(corpus.pairs(downloads), N_FIRST_PAIRS))
        except UserError as error:  # the text is prepared, and may have been deleted since
            lines.append(f"warning: cannot show the first pairs of {corpus.name}: {error}")
        else:
            lines += pair_lines(corpus, pairs)
    return lines
