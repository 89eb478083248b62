"""The first pairs of a text as it is read: they show its columns, languages and direction."""

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

import typer

from nmtkit.config.recipe import Recipe
from nmtkit.sources.catalog import RemoteFile
from nmtkit.sources.hub import HubSource
from nmtkit.sources.parallel import Corpus, Fetch, find_corpus
from nmtkit.sources.source import Pair
from nmtkit.utils.errors import Log, UserError
from nmtkit.utils.text import shorten

N_FIRST_PAIRS = 3
MAX_CHARACTERS = 100  # of a line


def pair_lines(corpus: Corpus, pairs: Sequence[Pair]) -> list[str]:
    """Return pairs under their languages, below a line on how the text is read."""
    langs = [str(lang) for lang in corpus.langs]
    width = max(map(len, langs)) + 1
    lines = [f"{corpus.name}, read as {corpus.source.description()}; the first pairs:"]
    for pair in pairs:
        for lang, side in zip(langs, pair, strict=True):
            lines.append(f"  {f'{lang}:':{width}} {shorten(side, MAX_CHARACTERS)}")
    return lines


def show_first_pairs(corpus: Corpus, fetch: Fetch, log: Log, warn: Log) -> Iterator[Pair]:
    """Print the first pairs of a corpus, and return an iterator over all."""
    pairs = corpus.pairs(fetch, log, warn)
    first = list(islice(pairs, N_FIRST_PAIRS))
    typer.echo("\n".join(pair_lines(corpus, first)))
    return chain(first, pairs)


def local_pair_lines(recipe: Recipe) -> list[str]:
    """Return the first pairs of each training text that needs no download."""
    lines: list[str] = []
    for source in recipe.corpus.train:
        corpus = find_corpus(source, recipe.corpus.src_lang, recipe.corpus.tgt_lang)
        if corpus.remote or isinstance(corpus.source, HubSource):
            continue
        try:
            pairs = list(islice(corpus.pairs(_no_download), N_FIRST_PAIRS))
        except UserError as error:  # it is prepared, and may be gone since
            lines.append(f"warning: cannot show the first pairs of {corpus.name}: {error}")
        else:
            lines += pair_lines(corpus, pairs)
    return lines


def _no_download(file: RemoteFile) -> Path:
    raise ValueError(f"{file.url} is not local")
