"""Statistics of a prepared corpus, to check it before training.

Lengths are in subwords, end symbols counted. The statistics are plain values, as `nmtkit inspect
--json` prints them.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from nmtkit.analysis.words import compute_words, mark_subwords
from nmtkit.config.recipe import Recipe
from nmtkit.config.settings import RUNS
from nmtkit.corpus.moses import Tokenization
from nmtkit.corpus.prepared import SIDES, SPLITS, PreparedCorpus
from nmtkit.corpus.special_tokens import EOS_ID, SPECIALS, UNK_ID
from nmtkit.corpus.subword import Subword
from nmtkit.evaluation.sacre import sacre_bleu
from nmtkit.new.survey import N_FIRST_PAIRS, pair_lines
from nmtkit.sources.dataset import HubSource
from nmtkit.sources.download import Downloads
from nmtkit.sources.parallel import find_corpus
from nmtkit.utils.errors import UserError

Statistics = dict[str, Any]
Values = npt.NDArray[Any]

QUANTILES = {"median": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
N_BINS = 40  # of a histogram, about
# Smallest steps between the bins of a histogram.
HISTOGRAM_STEPS = {"src": 1.0, "tgt": 1.0, "ratio": 1 / 16}
# Names of groups of rare subwords, by the frequency below which a subword belongs to them.
RARE = {"never": 1, "fewer than 10 times": 10, "fewer than 100 times": 100}
N_UNKNOWN_WORDS = 20
MAX_CHARACTERS = 300  # of a sample text; the rest is cut off


def corpus_statistics(recipe: Recipe, prepared: PreparedCorpus) -> Statistics:
    """Compute the statistics of a prepared corpus.

    Args:
        recipe: The recipe that the corpus was prepared with.
        prepared: The corpus, its files verified.
    """
    subword = prepared.subword()
    both = prepared.tokenizations()
    tokenizations = {"src": both.src, "tgt": both.tgt}
    names = {side: tokenization.lang for side, tokenization in tokenizations.items()}
    names["ratio"] = f"{names['tgt']}/{names['src']}"

    # By split and side: the lengths of all sentences, and the frequencies of all tokens. Prepared
    # ids end with the end symbol, and lengths count it.
    lengths: dict[tuple[str, str], Values] = {}
    counts: dict[tuple[str, str], Values] = {}
    for split in SPLITS:
        for side in SIDES:
            ids = prepared.ids(split, side)
            lengths[split, side] = ids.lengths
            counts[split, side] = ids.counts(subword.n_tokens)
        lengths[split, "ratio"] = lengths[split, "tgt"] / lengths[split, "src"]
    n_unknown = {part: int(frequencies[UNK_ID]) for part, frequencies in counts.items()}
    longer_side = np.maximum(lengths["train", "src"], lengths["train", "tgt"])

    encoders = {"src": subword.encode, "tgt": subword.encode_target}

    return {
        "recipe": recipe.name,
        "description": recipe.description,
        "path": str(prepared.artifact.path),
        "names": names,
        "first_pairs": _first_pair_lines(recipe),
        "corpora": prepared.counts().model_dump()["train"],
        "weights": recipe.corpus.weights,
        "max_positions": recipe.model.max_positions,
        "n_too_long": int(np.count_nonzero(longer_side > recipe.model.max_positions)),
        "lengths": _length_rows(lengths, n_unknown),
        "histograms": _histograms(lengths),
        "vocabulary": _vocabulary(recipe, subword, counts["train", "src"] + counts["train", "tgt"]),
        "words": [
            _word_statistics(prepared.dev_lines(side), tokenizations[side], encoders[side])
            for side in SIDES
        ],
        "round_trip": _round_trip_score(recipe, both.tgt, prepared.dev_lines("tgt")),
        **_samples(prepared, tokenizations, subword),
    }


def _first_pair_lines(recipe: Recipe) -> list[str]:
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


def _length_rows(
    lengths: Mapping[tuple[str, str], Values], n_unknown: Mapping[tuple[str, str], int]
) -> list[Statistics]:
    """Return the distributions of the lengths of all splits and sides, and of their ratios.

    Args:
        lengths: Lengths and ratios, by split and side.
        n_unknown: Numbers of unknown tokens, by split and side.
    """
    rows = []
    for (split, side), values in lengths.items():
        row = {"split": split, "of": side, "pairs": len(values), "mean": float(values.mean())}
        for name, quantile in QUANTILES.items():
            # A value that occurs: lengths stay integers.
            row[name] = np.quantile(values, quantile, method="inverted_cdf").item()
        if side != "ratio":
            row["tokens"] = int(values.sum())
            row["unknown"] = n_unknown[split, side]
        rows.append(row)
    return rows


def _histograms(lengths: Mapping[tuple[str, str], Values]) -> Statistics:
    """Compute histograms of lengths and ratios.

    All splits have the bins that fit the training corpus. The first and the last bin also count
    all lower and higher values.

    Args:
        lengths: Lengths and ratios, by split and side.

    Returns:
        By side and split, the middles of the bins and the percentages of the pairs in them.
    """
    histograms: Statistics = {}
    for side, step in HISTOGRAM_STEPS.items():
        # Outliers would make all bins wide: one pair in a thousand is above the last full bin.
        typical_maximum = np.quantile(lengths["train", side], 0.999)
        width = step * (1 + typical_maximum // (N_BINS * step))
        edges = np.arange(width / 2, typical_maximum + 2 * width, width)
        middles = (edges[:-1] + width / 2).tolist()
        histograms[side] = {}
        for split in SPLITS:
            values = lengths[split, side].clip(edges[0], edges[-1])
            numbers, _ = np.histogram(values, edges)
            percentages = (100 * numbers / len(values)).tolist()
            histograms[side][split] = list(zip(middles, percentages, strict=True))
    return histograms


def _vocabulary(recipe: Recipe, subword: Subword, frequencies: Values) -> Statistics:
    """Return the size of the vocabulary, and the numbers of rare subwords.

    Args:
        frequencies: Frequencies of all tokens in both sides of the training corpus.
    """
    # Special tokens have the first ids, and are not learned.
    subwords = frequencies[len(SPECIALS) :]
    return {
        "method": recipe.subword.method,
        "tokens": subword.n_tokens,
        "rows": recipe.model.embedding_rows(subword.n_tokens),
        "subwords": len(subwords),
        "rare": {name: int(np.count_nonzero(subwords < limit)) for name, limit in RARE.items()},
    }


def _word_statistics(
    lines: Sequence[str], tokenization: Tokenization, encode: Callable[[str], list[int]]
) -> Statistics:
    """Count the words of a text that are one subword, several subwords, or partly unknown.

    Args:
        lines: Raw text.
        tokenization: Splits it into words.
        encode: Splits a word into subwords, and returns their ids.
    """
    # Each different word is encoded once.
    frequencies: Counter[str] = Counter()
    for line in lines:
        frequencies.update(tokenization.tokenize(line).split())
    n_whole = 0  # occurrences of words that are one subword
    n_subwords = 0
    unknown: Counter[str] = Counter()
    for word, frequency in frequencies.items():
        ids = encode(word)
        n_subwords += frequency * len(ids)
        if len(ids) == 1:
            n_whole += frequency
        if UNK_ID in ids:
            unknown[tokenization.detokenize(word)] = frequency
    return {
        "lang": tokenization.lang,
        "words": frequencies.total(),
        "whole": n_whole,
        "subwords": n_subwords,
        "unknown": {_cut(word): n for word, n in unknown.most_common(N_UNKNOWN_WORDS)},
    }


def _round_trip_score(recipe: Recipe, tokenization: Tokenization, lines: list[str]) -> float | None:
    """Compute the sacreBLEU of a text that was tokenized and detokenized, against itself.

    Args:
        recipe: The recipe, whose scoring applies.
        tokenization: The tokenization of the target side.
        lines: Raw target text.

    Returns:
        The score, or None if the recipe does not tokenize.
    """
    if tokenization.tokenizer != "moses":
        return None
    # Moses loses some distinctions, such as spaces around a slash. This bounds any BLEU.
    restored = [tokenization.detokenize(tokenization.tokenize(line)) for line in lines]
    bleu = sacre_bleu(
        restored,
        lines,
        lang=recipe.corpus.tgt_lang,
        lowercase=recipe.scoring.lowercase,
        n_bootstrap=1,
    )
    return float(bleu["score"])


def _samples(
    prepared: PreparedCorpus, tokenizations: Mapping[str, Tokenization], subword: Subword
) -> Statistics:
    """Return the sample pairs: kept ones at all steps of preparation, dropped ones as raw text.

    Args:
        tokenizations: The tokenization of each side, "src" and "tgt".
    """
    samples = prepared.samples()
    kept = []
    encoders = {"src": subword.encode, "tgt": subword.encode_target}
    for pair in samples["kept"]:
        steps = {}
        for side in SIDES:
            steps[side] = _steps(pair[side], tokenizations[side], encoders[side], subword)
        kept.append(pair | steps)
    dropped = []
    for pair in samples["dropped"]:
        raw = {side: {"raw": _cut(pair[side])} for side in SIDES}
        dropped.append(pair | raw)
    return {"samples": kept, "dropped": dropped}


def _steps(
    line: str, tokenization: Tokenization, encode: Callable[[str], list[int]], subword: Subword
) -> dict[str, str]:
    """Return a line at all steps of preparation: raw text, tokens, subwords, ids.

    Tokens and subwords are those of the model and, for a page, as a reader writes them.

    Args:
        line: Raw text.
        encode: Splits tokens into subwords, and returns their ids.
    """
    tokens = tokenization.tokenize(line)
    ids = [*encode(tokens), EOS_ID]
    words = compute_words(subword, tokenization, ids)
    return {
        "raw": _cut(line),
        "tokens": _cut(tokens),
        "subwords": _cut(" ".join(subword.pieces(ids))),
        "ids": _cut(" ".join(map(str, ids))),
        "words": _cut(" ".join(word.text for word in words)),
        "marked_subwords": _cut(" ".join(mark_subwords(subword, tokenization, ids, words))),
    }


def _cut(text: str) -> str:
    """Return a text, or its beginning if it is long."""
    n_more = len(text) - MAX_CHARACTERS
    if n_more <= 0:
        return text
    return f"{text[:MAX_CHARACTERS]}... ({n_more:,} more characters)"
