"""nmtkit inspect: what a prepared corpus contains, to check before training on it.

Ids and offsets are read in chunks, so a corpus may be larger than memory. The size of the result is
bounded, whatever the corpus contains.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from nmtkit import progress
from nmtkit.cli.options import Html, command
from nmtkit.corpus.moses import Tokenization
from nmtkit.corpus.prepared import SIDES, SPLITS, PreparedCorpus
from nmtkit.corpus.prepared import Split as SplitName
from nmtkit.corpus.store import Ids
from nmtkit.corpus.subword import Subword
from nmtkit.evaluation.bleu import sacre_bleu
from nmtkit.recipe import Recipe
from nmtkit.reporting.code import marked
from nmtkit.reporting.grid import Grid
from nmtkit.reporting.inspection import (
    Counted,
    DroppedPair,
    Histogram,
    Inspection,
    Quantiles,
    SamplePair,
    Side,
    Split,
    Splitting,
    Steps,
    TrainingCorpus,
    Vocabulary,
    corpora_grid,
    lengths_grid,
    notes,
    render_page,
    sample_grids,
    vocabulary_grid,
    words_grid,
)
from nmtkit.reporting.page import replace_page
from nmtkit.reporting.show import Form, show
from nmtkit.stages.chain import Chain
from nmtkit.stages.code import other_code
from nmtkit.store import verify
from nmtkit.symbols import EOS_ID, SPECIALS, UNK_ID

Ints = npt.NDArray[np.int64]
Entry = TypeVar("Entry")

PAIRS_PER_CHUNK = 2**20  # 50 MB of lengths and ratios

# Logarithms of ratios are counted in fine bins, so that quantiles are exact to 0.3 %.
FINE_BINS_PER_OCTAVE = 120
OCTAVES = 10  # up and down; ratios beyond are counted in the last bin
FINE_BINS_PER_BIN = 15  # a bin that is shown is an eighth of an octave; odd, to center one at 1
SHOWN_OCTAVES = 2

LENGTH_BINS = 40  # at most
BIN_WIDTHS = tuple(digit * 10**power for power in range(7) for digit in (1, 2, 5))

N_EXAMPLES = 20  # of pieces and words
MAX_SAMPLES = 24
MAX_DROPPED = 30
MAX_CHARACTERS = 300  # of a line that is shown
MAX_IDS = 150
MAX_WORD_CHARACTERS = 40


@command("nmtkit inspect demo --html corpus.html")
def inspect(chain: Chain, form: Form, html: Html = None) -> None:
    """Show lengths, vocabulary and samples of a prepared corpus."""
    prepared = PreparedCorpus(verify(chain.need("prepare")))
    other = other_code(prepared.artifact.manifest)
    found = replace(gather(chain.recipe, prepared), other_code=other)
    if html is not None:
        replace_page(html, render_page(found))
        progress.say(f"inspect: wrote {html}")
    parts: list[Grid | str] = [
        f"nmtkit inspect {found.recipe}: {marked(found.path, other)}",
        corpora_grid(found),
        *notes(found),
        lengths_grid(found),
        vocabulary_grid(found),
        words_grid(found),
        *sample_grids(found),
    ]
    show(form, found, parts)


def gather(recipe: Recipe, prepared: PreparedCorpus) -> Inspection:
    """Describe a prepared corpus."""
    samples, subword, how = prepared.samples(), prepared.subword(), prepared.tokenizations()
    sides = how.src, how.tgt
    measured = {
        split: _measure(prepared, split, subword.n_tokens, recipe.model.max_positions)
        for split in SPLITS
    }
    return Inspection(
        recipe=recipe.name,
        description=recipe.description,
        path=str(prepared.path),
        max_positions=recipe.model.max_positions,
        normalizing=_normalizing(sides[0]),
        corpora=[
            TrainingCorpus(corpus.corpus, corpus.pairs, corpus.kept, corpus.dropped)
            for corpus in prepared.counts().train
        ],
        splits=_splits(prepared, measured, sides, subword),
        vocabulary=_vocabulary(recipe, subword, np.add(*measured["train"].tokens)),
        splitting=(
            _splitting(prepared.dev_lines("src"), sides[0], subword),
            _splitting(prepared.dev_lines("tgt"), sides[1], subword),
        ),
        round_trip=_round_trip(recipe, sides[1], prepared.dev_lines("tgt")),
        samples=[
            _sample(pair, sides, subword)
            for pair in _some_of_each(samples["kept"], lambda pair: pair["corpus"], MAX_SAMPLES)
        ],
        dropped=[
            DroppedPair(
                pair["corpus"], pair["line"], pair["reason"], *(_cut(pair[side]) for side in SIDES)
            )
            for pair in _some_of_each(samples["dropped"], lambda pair: pair["reason"], MAX_DROPPED)
        ],
    )


def _round_trip(recipe: Recipe, how: Tokenization, lines: list[str]) -> float | None:
    """Return what a perfect translation of dev can score at most; None: all that can be scored.

    Moses does not restore the text of most languages exactly.
    """
    if how.tokenizer != "moses":
        return None
    hyps = [how.detokenize(how.tokenize(line)) for line in lines]
    lang, lowercase = recipe.corpus.tgt_lang, recipe.scoring.lowercase
    return sacre_bleu(hyps, lines, lang=lang, lowercase=lowercase, n_bootstrap=1).score


def _normalizing(side: Tokenization) -> str:
    done = {"normalized": side.normalize_punctuation, "lower-cased": side.lowercase}
    return ", ".join(name for name, is_done in done.items() if is_done)


# Counting ids


@dataclass(frozen=True)
class _Measured:
    """Counts of a split, source side first."""

    sides: tuple[Ids, Ids]
    tokens: tuple[Ints, Ints]  # (n_tokens,) occurrences of each id
    lengths: tuple[Ints, Ints]  # (longest + 1,) sentences of each length
    ratios: Ints  # pairs per fine bin of log2(target length / source length)
    n_too_long: int


def _measure(
    prepared: PreparedCorpus, split: SplitName, n_tokens: int, max_positions: int
) -> _Measured:
    src, tgt = (prepared.ids(split, side) for side in SIDES)
    src_lengths, tgt_lengths = np.zeros(1, np.int64), np.zeros(1, np.int64)
    ratios = np.zeros(2 * OCTAVES * FINE_BINS_PER_OCTAVE + 1, np.int64)
    n_too_long = 0
    for start in range(0, len(src), PAIRS_PER_CHUNK):
        of_chunk = slice(start, start + PAIRS_PER_CHUNK + 1)
        src_chunk, tgt_chunk = np.diff(src.offsets[of_chunk]), np.diff(tgt.offsets[of_chunk])
        src_lengths = _sum(src_lengths, np.bincount(src_chunk))
        tgt_lengths = _sum(tgt_lengths, np.bincount(tgt_chunk))
        fine = np.rint(np.log2(tgt_chunk / src_chunk) * FINE_BINS_PER_OCTAVE).astype(np.int64)
        middle = len(ratios) // 2
        ratios += np.bincount(np.clip(fine, -middle, middle) + middle, minlength=len(ratios))
        n_too_long += int(np.count_nonzero(np.maximum(src_chunk, tgt_chunk) > max_positions))
    tokens = src.counts(n_tokens), tgt.counts(n_tokens)
    return _Measured((src, tgt), tokens, (src_lengths, tgt_lengths), ratios, n_too_long)


def _sum(counts: Ints, more: Ints) -> Ints:
    longest = max(len(counts), len(more))
    return np.pad(counts, (0, longest - len(counts))) + np.pad(more, (0, longest - len(more)))


# Splits


def _splits(
    prepared: PreparedCorpus,
    measured: Mapping[SplitName, _Measured],
    sides: tuple[Tokenization, Tokenization],
    subword: Subword,
) -> list[Split]:
    starts = _length_starts(measured["train"].lengths)

    def side_of(split: SplitName, number: int) -> Side:
        one = measured[split]
        words: Counter[str] = Counter()
        if split == "dev":  # train has only ids
            lines = prepared.dev_lines(SIDES[number])
            words = _unknown_words(one.sides[number], lines, sides[number], subword)
        return Side(
            lang=sides[number].lang,
            n_tokens=len(one.sides[number].ids),
            lengths=_quantiles(one.lengths[number], lambda length: length),
            histogram=_length_histogram(one.lengths[number], starts),
            n_unknown=int(one.tokens[number][UNK_ID]),
            unknown_words=_most_common(words),
        )

    return [
        Split(
            name=split,
            n_pairs=len(one.sides[0]),
            n_too_long=one.n_too_long,
            sides=(side_of(split, 0), side_of(split, 1)),
            ratios=_quantiles(one.ratios, _ratio),
            ratio_histogram=_ratio_histogram(one.ratios),
        )
        for split, one in measured.items()
    ]


def _quantiles(counts: Ints, value: Callable[[int], float]) -> Quantiles:
    """Return quantiles of values, where the i-th smallest is `value(i)`, `counts[i]` times."""
    so_far = np.cumsum(counts)

    def quantile(percent: int) -> float:
        rank = -(-int(so_far[-1]) * percent // 100)  # in integers, to be exact
        return value(int(np.searchsorted(so_far, rank)))

    return Quantiles(quantile(50), quantile(95), quantile(99), quantile(100))


def _length_starts(lengths: Sequence[Ints]) -> list[int]:
    """Return the starts of equal bins that cover 99.9 % of the sentences of each side."""
    typical = max(int(np.searchsorted(np.cumsum(one), 0.999 * one.sum())) for one in lengths)
    width = next(width for width in BIN_WIDTHS if typical <= width * (LENGTH_BINS - 1))
    longest = max(len(one) - 1 for one in lengths)
    return list(range(1, min(longest, typical + width) + 1, width))


def _length_histogram(lengths: Ints, starts: list[int]) -> Histogram:
    # Bins beyond the longest sentence of this side are empty.
    padded = _sum(lengths, np.zeros(starts[-1] + 1, np.int64))
    return Histogram([float(start) for start in starts], np.add.reduceat(padded, starts).tolist())


def _ratio(fine_bin: float) -> float:
    return float(2.0 ** (fine_bin / FINE_BINS_PER_OCTAVE - OCTAVES))


def _ratio_histogram(ratios: Ints) -> Histogram:
    """Return bins of an eighth of an octave; the outermost, at 1/4 and 4, are open-ended."""
    middle = len(ratios) // 2
    n_beside = SHOWN_OCTAVES * FINE_BINS_PER_OCTAVE // FINE_BINS_PER_BIN
    first = middle - n_beside * FINE_BINS_PER_BIN - FINE_BINS_PER_BIN // 2
    starts = [first + i * FINE_BINS_PER_BIN for i in range(2 * n_beside + 1)]
    counts = np.add.reduceat(ratios, [0, *starts[1:]])
    return Histogram([_ratio(start - 0.5) for start in starts], counts.tolist())


def _unknown_words(
    side: Ids, lines: Sequence[str], how: Tokenization, subword: Subword
) -> Counter[str]:
    places = np.flatnonzero(side.ids == UNK_ID)
    sentences = set(np.searchsorted(side.offsets, places, side="right").tolist())  # from 1
    return Counter(
        word
        for number, line in enumerate(lines, start=1)
        if number in sentences
        for word in how.tokenize(line).split()
        if UNK_ID in subword.encode(word)
    )


# Subwords


def _vocabulary(recipe: Recipe, subword: Subword, tokens: Ints) -> Vocabulary:
    counts = tokens[len(SPECIALS) :]
    occurring = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]

    def counted(numbers: Ints) -> list[Counted]:
        pieces = subword.pieces((numbers + len(SPECIALS)).tolist())
        return [
            Counted(_cut(piece, MAX_WORD_CHARACTERS), int(count))
            for piece, count in zip(pieces, counts[numbers], strict=True)
        ]

    return Vocabulary(
        method=recipe.subword.method,
        n_tokens=subword.n_tokens,
        n_rows=recipe.model.rows_for(subword.n_tokens),
        n_subwords=len(counts),
        n_never=int(np.count_nonzero(counts == 0)),
        n_under_10=int(np.count_nonzero(counts < 10)),
        n_under_100=int(np.count_nonzero(counts < 100)),
        most_frequent=counted(occurring[:N_EXAMPLES]),
        rarest=counted(occurring[::-1][:N_EXAMPLES]),
    )


def _splitting(lines: Sequence[str], how: Tokenization, subword: Subword) -> Splitting:
    words = Counter(word for line in lines for word in how.tokenize(line).split())
    n_pieces = {word: len(subword.encode(word)) for word in words}
    return Splitting(
        lang=how.lang,
        n_words=words.total(),
        n_whole=sum(n for word, n in words.items() if n_pieces[word] == 1),
        n_pieces=sum(n * n_pieces[word] for word, n in words.items()),
    )


def _most_common(words: Counter[str]) -> list[Counted]:
    return [
        Counted(_cut(word, MAX_WORD_CHARACTERS), count)
        for word, count in words.most_common(N_EXAMPLES)
    ]


# Samples


def _some_of_each(
    entries: Sequence[Entry], key: Callable[[Entry], Hashable], most: int
) -> list[Entry]:
    """Return at most `most` entries in order, spread evenly over the groups and within each."""
    groups: dict[Hashable, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(key(entry), []).append(entry)
    each = max(1, most // max(1, len(groups)))
    return [entry for group in groups.values() for entry in _spread(group, each)][:most]


def _spread(group: Sequence[Entry], most: int) -> Iterable[Entry]:
    n = min(most, len(group))
    return (group[i * len(group) // n] for i in range(n))


def _sample(
    pair: dict[str, Any], sides: tuple[Tokenization, Tokenization], subword: Subword
) -> SamplePair:
    src, tgt = (_steps(pair[side], how, subword) for side, how in zip(SIDES, sides, strict=True))
    return SamplePair(pair["corpus"], pair["line"], src, tgt)


def _steps(line: str, how: Tokenization, subword: Subword) -> Steps:
    raw = line[:MAX_CHARACTERS]
    tokens = how.tokenize(line if how.is_of_trees else raw)  # a part of a tree is none
    ids = [*subword.encode(tokens), EOS_ID]
    return Steps(
        lang=how.lang,
        raw=raw,
        n_left_out=len(line) - len(raw),
        normalized=_cut(replace(how, tokenizer="none").tokenize(raw), 2 * MAX_CHARACTERS),
        tokens=_cut(tokens, 2 * MAX_CHARACTERS),  # an ampersand becomes five characters
        pieces=[_cut(piece, MAX_WORD_CHARACTERS) for piece in subword.pieces(ids[:MAX_IDS])],
        ids=ids[:MAX_IDS],
        n_ids=len(ids),
    )


def _cut(text: str, most: int = MAX_CHARACTERS) -> str:
    """Cut a text that is too long, and say how much is missing."""
    if len(text) <= most:
        return text
    return f"{text[:most]}... ({len(text) - most:,} more characters)"
