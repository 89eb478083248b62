"""What a prepared corpus contains: facts, their tables and charts, and a page of them."""

from collections import Counter
from dataclasses import dataclass, field

from nmtkit.reporting.chart import Axis, Chart, Series
from nmtkit.reporting.code import OtherCode, code_note
from nmtkit.reporting.grid import Grid, Row
from nmtkit.reporting.page import TEMPLATES

RATIO_TICKS = ((0.25, "1/4"), (0.5, "1/2"), (1, "1"), (2, "2"), (4, "4"))


@dataclass(frozen=True)
class TrainingCorpus:
    """What became of the pairs of one training corpus."""

    name: str
    pairs: int
    kept: int
    dropped: dict[str, int]  # by reason


@dataclass(frozen=True)
class Counted:
    """A word, and how often it occurs."""

    text: str
    count: int


@dataclass(frozen=True)
class Histogram:
    """How many fall into each bin; the last bin is open."""

    starts: list[float]  # where each bin begins
    counts: list[int]


@dataclass(frozen=True)
class Quantiles:
    """What half, 95 % and 99 % of the values do not exceed, and the largest."""

    median: float
    p95: float
    p99: float
    max: float


@dataclass(frozen=True)
class Side:
    """One side of a split; lengths are in tokens of the subword vocabulary, end symbols counted."""

    lang: str
    n_tokens: int
    lengths: Quantiles
    histogram: Histogram  # of lengths; equal bins on all sides of all splits
    n_unknown: int
    unknown_words: list[Counted]  # of dev, the most frequent first


@dataclass(frozen=True)
class Split:
    """Train or dev."""

    name: str
    n_pairs: int
    n_too_long: int  # pairs with a side longer than [model] max_positions
    sides: tuple[Side, Side]
    ratios: Quantiles  # of target length / source length
    ratio_histogram: Histogram  # bins of equal ratio, the first one open too


@dataclass(frozen=True)
class Vocabulary:
    """The subwords, and how many hardly occur on both sides of train."""

    method: str
    n_tokens: int  # special symbols counted
    n_rows: int  # of the embedding matrix
    n_subwords: int  # special symbols not counted
    n_never: int
    n_under_10: int  # those that never occur counted
    n_under_100: int


@dataclass(frozen=True)
class Splitting:
    """How the running words of one side of dev are split."""

    lang: str
    n_words: int
    n_whole: int
    n_pieces: int


@dataclass(frozen=True)
class Steps:
    """A raw line and what each step makes of it."""

    lang: str
    raw: str
    n_left_out: int  # characters of the raw line that are not looked at, for it is too long
    normalized: str  # as the recipe normalizes and lower-cases
    tokens: str
    pieces: list[str]
    ids: list[int]
    n_ids: int  # there may be more than are shown

    def rows(self, normalizing: str) -> list[tuple[str, str]]:
        """Return the name of each step and what it makes."""
        n_more = self.n_ids - len(self.ids)
        more = f" (and {n_more:,} more)" if n_more else ""
        cut = f" (and {self.n_left_out:,} more characters)" if self.n_left_out else ""
        return [
            ("raw", self.raw + cut),
            *([(normalizing, self.normalized)] if normalizing else []),
            ("tokens", self.tokens),
            ("subwords", " ".join(self.pieces) + more),
            ("ids", " ".join(map(str, self.ids)) + more),
        ]


@dataclass(frozen=True)
class SamplePair:
    """A training pair that was kept."""

    corpus: str
    line: int  # from 1
    src: Steps
    tgt: Steps


@dataclass(frozen=True)
class DroppedPair:
    """A training pair that was left out."""

    corpus: str
    line: int  # from 1
    reason: str
    src: str
    tgt: str


@dataclass(frozen=True)
class Inspection:
    """A prepared corpus as a person wants to see it before training."""

    recipe: str
    description: str
    path: str
    max_positions: int
    normalizing: str  # what is done before tokens are made; "" for nothing
    corpora: list[TrainingCorpus]
    splits: list[Split]  # train, dev
    vocabulary: Vocabulary
    splitting: tuple[Splitting, Splitting]
    round_trip: float | None  # sacreBLEU of dev's own target text after its tokenization by Moses
    samples: list[SamplePair]
    dropped: list[DroppedPair]
    other_code: OtherCode = field(default_factory=dict)  # that made it


# Sentences and tables


def share(part: int, whole: int) -> str:
    """A part of a whole in percent, never 0 for something nor 100 for less than all."""
    if part == 0:
        return "0 %"
    if part == whole:
        return "100 %"
    percent = 100 * part / whole
    if percent < 0.01:
        return "< 0.01 %"
    return f"{min(percent, 99.99):.2f} %" if percent < 1 or percent > 99 else f"{percent:.1f} %"


def spoken(reason: str) -> str:
    """A reason to drop a pair, as a person says it."""
    return reason.replace("_", " ")


def notes(inspection: Inspection) -> list[str]:
    """What training leaves out, what Moses loses of dev, and the words that are unknown."""
    train = inspection.splits[0]
    limit = f"max_positions = {inspection.max_positions:,} tokens"
    found = [f"Training reads every pair that was kept: none is longer than {limit}."]
    if train.n_too_long:
        found = [
            f"Training leaves out {train.n_too_long:,} of the pairs that were kept "
            f"({share(train.n_too_long, train.n_pairs)}): a side is longer than {limit}."
        ]
    if inspection.round_trip is not None:
        found.append(
            f"Round trip: tokenized and detokenized by Moses, the {train.sides[1].lang} text of "
            f"dev scores {inspection.round_trip:.2f} sacreBLEU against itself; no translation of "
            "it can be expected to score more."
        )
    for side in inspection.splits[1].sides:
        if words := "  ".join(f"{word.text} {word.count:,}" for word in side.unknown_words):
            found.append(f"Words of dev, {side.lang}, with an unknown token: {words}")
    return [*found, *filter(None, [code_note(inspection.other_code)])]


def grids(inspection: Inspection) -> list[Grid]:
    """What a person checks before training."""
    return [table(inspection) for table in (corpora_grid, lengths_grid, vocabulary_grid)]


def corpora_grid(inspection: Inspection) -> Grid:
    """The training pairs that were read, kept, and dropped why."""

    def group(name: str, pairs: int, kept: int, dropped: Counter[str]) -> list[Row]:
        return [
            (name, "read", f"{pairs:,}", ""),
            (name, "kept", f"{kept:,}", share(kept, pairs)),
            *(
                (name, f"dropped: {spoken(reason)}", f"{n:,}", share(n, pairs))
                for reason, n in dropped.most_common()
            ),
        ]

    groups = [group(c.name, c.pairs, c.kept, Counter(c.dropped)) for c in inspection.corpora]
    if len(groups) > 1:
        dropped = sum((Counter(c.dropped) for c in inspection.corpora), Counter[str]())
        pairs, kept = (
            sum(getattr(c, name) for c in inspection.corpora) for name in ("pairs", "kept")
        )
        groups.append(group("all", pairs, kept, dropped))
    return Grid("training corpora", ("corpus", "", "pairs", "share"), 2, groups)


def lengths_grid(inspection: Inspection) -> Grid:
    """The lengths of the sentences of each side, their ratios, and tokens that are unknown."""
    groups = []
    for split in inspection.splits:
        name = f"{split.name}, {split.n_pairs:,} pairs"
        rows = [
            (
                name,
                side.lang,
                *(f"{value:,.0f}" for value in vars(side.lengths).values()),
                f"{side.n_tokens / split.n_pairs:.1f}",
                f"{side.n_tokens:,}",
                f"{side.n_unknown:,}",
                share(side.n_unknown, side.n_tokens),
            )
            for side in split.sides
        ]
        ratios = (f"{value:,.2f}" for value in vars(split.ratios).values())
        groups.append([*rows, (name, _ratio(split), *ratios, "", "", "", "")])
    quantiles, counts = (
        ("median", "95 %", "99 %", "longest"),
        ("mean", "tokens", "unknown", "share"),
    )
    return Grid("lengths in subword tokens", ("split", "", *quantiles, *counts), 2, groups)


def _ratio(split: Split) -> str:
    """How the ratio of lengths is written, such as de/en."""
    src, tgt = split.sides
    return f"{tgt.lang}/{src.lang}"


def vocabulary_grid(inspection: Inspection) -> Grid:
    """The size of the vocabulary, how much of it train hardly uses, and how it splits dev."""
    vocabulary = inspection.vocabulary
    rows = [
        ("tokens, special symbols counted", f"{vocabulary.n_tokens:,}", ""),
        ("rows of the embedding matrix", f"{vocabulary.n_rows:,}", ""),
        *(
            (f"subwords that occur {often} in train", f"{n:,}", share(n, vocabulary.n_subwords))
            for often, n in (
                ("never", vocabulary.n_never),
                ("fewer than 10 times", vocabulary.n_under_10),
                ("fewer than 100 times", vocabulary.n_under_100),
            )
        ),
    ]
    for side in inspection.splitting:
        whole = f"{side.n_whole:,}", share(side.n_whole, side.n_words)
        rows.append((f"{side.lang} words of dev that are one subword", *whole))
        pieces = f"{side.n_pieces / max(1, side.n_words):.2f}"
        rows.append((f"subwords per {side.lang} word of dev", pieces, ""))
    return Grid.of(f"vocabulary ({vocabulary.method})", ("", "number", "share"), rows, 1)


def sample_grids(inspection: Inspection) -> list[Grid]:
    """The first sample of each corpus, step by step, and the first dropped pair of each reason."""
    samples = {pair.corpus: pair for pair in reversed(inspection.samples)}.values()
    grids = []
    for pair in reversed(samples):
        both = (side.rows(inspection.normalizing) for side in (pair.src, pair.tgt))
        groups = [
            [(name, pair.src.lang, src), (name, pair.tgt.lang, tgt)]
            for (name, src), (_, tgt) in zip(*both, strict=True)
        ]
        grids.append(Grid(f"{pair.corpus}, line {pair.line:,}", ("", "", ""), 3, groups))
    dropped = {pair.reason: pair for pair in reversed(inspection.dropped)}.values()
    rows = [
        (spoken(each.reason), f"{each.corpus}, line {each.line:,}", f"{each.src}\n{each.tgt}")
        for each in reversed(dropped)
    ]
    if rows:
        grids.append(Grid.of("a dropped pair of each reason", ("reason", "where", ""), rows, 3))
    return grids


# The page


def render_page(inspection: Inspection) -> str:
    """The page as text: a function of `inspection` alone."""
    return TEMPLATES.get_template("inspection.html.j2").render(
        inspection=inspection,
        notes=notes(inspection),
        corpora=corpora_grid(inspection),
        lengths=lengths_grid(inspection),
        vocabulary=vocabulary_grid(inspection),
        charts=charts(inspection),
        spoken=spoken,
    )


def charts(inspection: Inspection) -> list[Chart]:
    """Histograms of the lengths of both sides, and of their ratio."""
    (train, dev), limit = inspection.splits, inspection.max_positions
    found = []
    for number, (of_train, of_dev) in enumerate(zip(train.sides, dev.sides, strict=True)):
        bins, median = of_train.histogram.starts, of_train.lengths.median
        end = bins[-1] + (bins[1] - bins[0] if len(bins) > 1 else 1)
        marks = [(median, f"median {median:,.0f}")]
        if limit < bins[-1]:
            marks.append((limit + 1.0, f"max_positions {limit:,}"))
        title = f"{of_train.lang} tokens a sentence, share of sentences"
        series = _histograms(of_train.histogram, of_dev.histogram, end)
        found.append(_shares(f"length-{number}", title, series, Axis(), marks))
    bins, median = train.ratio_histogram.starts, train.ratios.median
    title = f"{_ratio(train)} ratio of lengths, share of pairs"
    series = _histograms(train.ratio_histogram, dev.ratio_histogram, bins[-1] ** 2 / bins[-2])
    octaves = Axis(is_log=True, ticks=RATIO_TICKS)
    return [*found, _shares("ratio", title, series, octaves, [(median, f"median {median:.2f}")])]


def _shares(
    key: str, title: str, series: list[Series], x: Axis, marks: list[tuple[float, str]]
) -> Chart:
    said = f"Train and dev: {', '.join(name for _, name in marks)}; the table has the quantiles."
    return Chart(key, title, series, x, Axis(low=0, unit=" %"), marks, said)


def _histograms(train: Histogram, dev: Histogram, end: float) -> list[Series]:
    """Return train as bars and dev as steps, in percent; `end` is that of the last, open bin."""
    bars, steps = (
        [*zip(one.starts, [100 * n / max(1, sum(one.counts)) for n in one.counts], strict=True)]
        for one in (train, dev)
    )
    last = (end, 0.0)
    return [Series("train", [*bars, last], "bars"), Series("dev", [*steps, last], "steps", 7)]
