"""nmtkit inspect: what a prepared corpus contains, to check before training on it.

Ids and offsets are read in chunks, so a corpus may be larger than memory. The size of the result is
bounded, whatever the corpus contains.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from nmtkit import progress
from nmtkit.cli.options import Html, command
from nmtkit.corpus.moses import Tokenization
from nmtkit.corpus.prepared import SIDES, PreparedCorpus
from nmtkit.corpus.prepared import Split as SplitName
from nmtkit.corpus.store import Ids
from nmtkit.corpus.subword import Subword
from nmtkit.evaluation.sacre import sacre_bleu
from nmtkit.recipe import Recipe
from nmtkit.reporting import inspection as facts
from nmtkit.reporting.code import marked
from nmtkit.reporting.page import replace_page
from nmtkit.reporting.show import Form, show
from nmtkit.stages.chain import Chain
from nmtkit.stages.code import other_code
from nmtkit.store import verify
from nmtkit.symbols import EOS_ID, SPECIALS, UNK_ID

Ints = npt.NDArray[np.int64]
Pair = dict[str, Any]  # of samples.json

PAIRS_PER_CHUNK = 2**20  # 50 MB of lengths and ratios

# Logarithms of ratios are counted in fine bins, so that quantiles are exact to 0.3 %.
FINE_BINS_PER_OCTAVE = 120
OCTAVES = 10  # up and down; ratios beyond are counted in the last bin
FINE_BINS_PER_BIN = 15  # a bin that is shown is an eighth of an octave; odd, to center one at 1
SHOWN_OCTAVES = 2

LENGTH_BINS = 40  # at most
BIN_WIDTHS = tuple(digit * 10**power for power in range(7) for digit in (1, 2, 5))

N_EXAMPLES = 20  # of words
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
        replace_page(html, facts.render_page(found))
        progress.say(f"inspect: wrote {html}")
    title = f"nmtkit inspect {found.recipe}: {marked(found.path, other)}"
    show(form, found, [title, *facts.notes(found), *facts.grids(found), *facts.sample_grids(found)])


def gather(recipe: Recipe, prepared: PreparedCorpus) -> facts.Inspection:
    """Describe a prepared corpus."""
    samples, subword, both = prepared.samples(), prepared.subword(), prepared.tokenizations()
    src, tgt = both.src, both.tgt
    limit = recipe.model.max_positions
    train = _split(prepared, "train", subword, limit, None)
    done = {"normalized": src.normalize_punctuation, "lower-cased": src.lowercase}
    return facts.Inspection(
        recipe=recipe.name,
        description=recipe.description,
        path=str(prepared.path),
        max_positions=limit,
        normalizing=", ".join(name for name, is_done in done.items() if is_done),
        corpora=[
            facts.TrainingCorpus(each.corpus, each.pairs, each.kept, each.dropped)
            for each in prepared.counts().train
        ],
        splits=[train, _split(prepared, "dev", subword, limit, train.sides[0].histogram.starts)],
        vocabulary=_vocabulary(recipe, prepared, subword),
        splitting=(
            _splitting(prepared.dev_lines("src"), src, subword),
            _splitting(prepared.dev_lines("tgt"), tgt, subword),
        ),
        round_trip=_round_trip(recipe, tgt, prepared.dev_lines("tgt")),
        samples=[
            facts.SamplePair(
                pair["corpus"],
                pair["line"],
                _steps(pair["src"], src, subword),
                _steps(pair["tgt"], tgt, subword),
            )
            for pair in _some_of_each(samples["kept"], "corpus", MAX_SAMPLES)
        ],
        dropped=[
            facts.DroppedPair(
                pair["corpus"], pair["line"], pair["reason"], *(_cut(pair[side]) for side in SIDES)
            )
            for pair in _some_of_each(samples["dropped"], "reason", MAX_DROPPED)
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
    bleu = sacre_bleu(hyps, lines, lang=lang, lowercase=lowercase, n_bootstrap=1)
    return float(bleu["score"])


# Lengths and ratios


def _split(
    prepared: PreparedCorpus,
    name: SplitName,
    subword: Subword,
    max_positions: int,
    starts: list[float] | None,
) -> facts.Split:
    """Describe a split; `starts` are those of the bins of lengths, None for what suits it."""
    both = [prepared.ids(name, side) for side in SIDES]
    lengths = [np.zeros(1, np.int64), np.zeros(1, np.int64)]  # sentences of each length
    ratios = np.zeros(2 * OCTAVES * FINE_BINS_PER_OCTAVE + 1, np.int64)  # pairs per fine bin
    middle, n_too_long = len(ratios) // 2, 0
    for start in range(0, len(both[0]), PAIRS_PER_CHUNK):
        src, tgt = (np.diff(ids.offsets[start : start + PAIRS_PER_CHUNK + 1]) for ids in both)
        lengths = [
            _sum(one, np.bincount(more)) for one, more in zip(lengths, (src, tgt), strict=True)
        ]
        fine = np.rint(np.log2(tgt / src) * FINE_BINS_PER_OCTAVE).astype(np.int64)
        ratios += np.bincount(np.clip(fine, -middle, middle) + middle, minlength=len(ratios))
        n_too_long += int(np.count_nonzero(np.maximum(src, tgt) > max_positions))
    starts = starts or _length_starts(lengths)

    def side(number: int) -> facts.Side:
        how = (prepared.tokenizations().src, prepared.tokenizations().tgt)[number]
        words: Counter[str] = Counter()
        if name == "dev":  # train has only ids
            words = _unknown_words(both[number], prepared.dev_lines(SIDES[number]), how, subword)
        return facts.Side(
            lang=how.lang,
            n_tokens=len(both[number].ids),
            lengths=_quantiles(lengths[number], float),
            histogram=_length_histogram(lengths[number], starts),
            n_unknown=int(both[number].counts(subword.n_tokens)[UNK_ID]),
            unknown_words=[
                facts.Counted(_cut(word, MAX_WORD_CHARACTERS), count)
                for word, count in words.most_common(N_EXAMPLES)
            ],
        )

    return facts.Split(
        name=name,
        n_pairs=len(both[0]),
        n_too_long=n_too_long,
        sides=(side(0), side(1)),
        ratios=_quantiles(ratios, _ratio),
        ratio_histogram=_ratio_histogram(ratios),
    )


def _sum(counts: Ints, more: Ints) -> Ints:
    longest = max(len(counts), len(more))
    return np.pad(counts, (0, longest - len(counts))) + np.pad(more, (0, longest - len(more)))


def _quantiles(counts: Ints, value: Callable[[int], float]) -> facts.Quantiles:
    """Return quantiles of values, where the i-th smallest is `value(i)`, `counts[i]` times."""
    so_far = np.cumsum(counts)

    def quantile(percent: int) -> float:
        rank = -(-int(so_far[-1]) * percent // 100)  # in integers, to be exact
        return value(int(np.searchsorted(so_far, rank)))

    return facts.Quantiles(quantile(50), quantile(95), quantile(99), quantile(100))


def _length_starts(lengths: Sequence[Ints]) -> list[float]:
    """Return the starts of equal bins that cover 99.9 % of the sentences of each side."""
    typical = max(int(np.searchsorted(np.cumsum(one), 0.999 * one.sum())) for one in lengths)
    width = next(width for width in BIN_WIDTHS if typical <= width * (LENGTH_BINS - 1))
    longest = max(len(one) - 1 for one in lengths)
    return [*map(float, range(1, min(longest, typical + width) + 1, width))]


def _length_histogram(lengths: Ints, starts: list[float]) -> facts.Histogram:
    # Bins beyond the longest sentence of this side are empty.
    padded = _sum(lengths, np.zeros(int(starts[-1]) + 1, np.int64))
    return facts.Histogram(starts, np.add.reduceat(padded, [*map(int, starts)]).tolist())


def _ratio(fine_bin: float) -> float:
    return float(2.0 ** (fine_bin / FINE_BINS_PER_OCTAVE - OCTAVES))


def _ratio_histogram(ratios: Ints) -> facts.Histogram:
    """Return bins of an eighth of an octave; the outermost, at 1/4 and 4, are open-ended."""
    middle = len(ratios) // 2
    n_beside = SHOWN_OCTAVES * FINE_BINS_PER_OCTAVE // FINE_BINS_PER_BIN
    first = middle - n_beside * FINE_BINS_PER_BIN - FINE_BINS_PER_BIN // 2
    starts = [first + i * FINE_BINS_PER_BIN for i in range(2 * n_beside + 1)]
    counts = np.add.reduceat(ratios, [0, *starts[1:]])
    return facts.Histogram([_ratio(start - 0.5) for start in starts], counts.tolist())


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


def _vocabulary(recipe: Recipe, prepared: PreparedCorpus, subword: Subword) -> facts.Vocabulary:
    of_sides = (prepared.ids("train", side).counts(subword.n_tokens) for side in SIDES)
    counts: Ints = np.add(*of_sides)[len(SPECIALS) :]
    return facts.Vocabulary(
        method=recipe.subword.method,
        n_tokens=subword.n_tokens,
        n_rows=recipe.model.rows_for(subword.n_tokens),
        n_subwords=len(counts),
        n_never=int(np.count_nonzero(counts == 0)),
        n_under_10=int(np.count_nonzero(counts < 10)),
        n_under_100=int(np.count_nonzero(counts < 100)),
    )


def _splitting(lines: Sequence[str], how: Tokenization, subword: Subword) -> facts.Splitting:
    words = Counter(word for line in lines for word in how.tokenize(line).split())
    n_pieces = {word: len(subword.encode(word)) for word in words}
    return facts.Splitting(
        lang=how.lang,
        n_words=words.total(),
        n_whole=sum(n for word, n in words.items() if n_pieces[word] == 1),
        n_pieces=sum(n * n_pieces[word] for word, n in words.items()),
    )


# Samples


def _some_of_each(pairs: Sequence[Pair], key: str, most: int) -> list[Pair]:
    """Return at most `most` pairs in order, spread evenly over the groups and within each."""
    groups: dict[str, list[Pair]] = {}
    for pair in pairs:
        groups.setdefault(pair[key], []).append(pair)
    each = max(1, most // max(1, len(groups)))
    counts = {name: min(each, len(group)) for name, group in groups.items()}
    spread = [
        group[i * len(group) // counts[name]]
        for name, group in groups.items()
        for i in range(counts[name])
    ]
    return spread[:most]


def _steps(line: str, how: Tokenization, subword: Subword) -> facts.Steps:
    raw = line[:MAX_CHARACTERS]
    tokens = how.tokenize(line if how.is_of_trees else raw)  # a part of a tree is none
    ids = [*subword.encode(tokens), EOS_ID]
    return facts.Steps(
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
