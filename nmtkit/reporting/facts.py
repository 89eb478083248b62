"""What commands tell, as values: stages fill them in, tables show them."""

from dataclasses import dataclass, field
from typing import Any

from nmtkit.reporting.code import OtherCode
from nmtkit.reporting.cost import TrainingCost


@dataclass(frozen=True)
class State:
    """How far one stage of a chain is."""

    stage: str
    state: str  # "fresh", "partial", "diverged", "missing", "damaged" or "unknown"
    fingerprint: str | None
    path: str | None  # where the artifact is, or will be
    why: str
    other_code: OtherCode = field(default_factory=dict)  # that made it


@dataclass(frozen=True)
class ComparedSystem:
    """A system beside the first one, the baseline."""

    name: str
    identical: bool  # line by line, to the baseline
    scores: dict[str, Any]  # each kind of BLEU, or bracket F1
    tests: dict[str, Any]  # of each paired test: score, p-value, interval and signature of a metric
    other_code: OtherCode = field(default_factory=dict)  # that made the translations of a run


@dataclass(frozen=True)
class Difference:
    """A line that the systems translate differently."""

    line: int  # from 1
    src: str | None
    references: list[str]
    hyps: list[str]
    scores: list[float]  # of each system, sentence-level


@dataclass(frozen=True)
class Comparison:
    """Systems on one test set, and the lines where they differ most."""

    test_set: dict[str, Any]
    seed: str  # of the paired tests
    sentence_metric: str  # what the differences are measured by
    systems: list[ComparedSystem]
    differences: list[Difference]


@dataclass(frozen=True)
class StudyRow:
    """A variant of a study's recipe, finished or not."""

    name: str
    change: str  # the recipe or the overrides that the other rows do not have
    run: str  # what to type behind `nmtkit run`
    is_base: bool  # it is the first row, or differs from it in the seed alone
    state: str  # "finished", "diverged", "being made", "stopped", "damaged" or "not run"
    why: str  # of any other state than "finished"
    n_parameters: int  # about, while the vocabulary is not known
    scored: str | None = None  # the fingerprint of its scores
    steps: int | None = None
    cost: TrainingCost | None = None
    dev_perplexity: float | None = None  # per subword, of the checkpoint that is scored
    scores: dict[str, Any] = field(default_factory=dict)  # as `score` published them
    other_code: OtherCode = field(default_factory=dict)  # that made them
    published: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class StudyTable:
    """A study: what its rows reached, beside figures that are published."""

    name: str
    description: str
    bleu: str  # the kind that is beside the published one
    rows: list[StudyRow]


@dataclass(frozen=True)
class Sample:
    """A line of the first test set and its translation."""

    src: str
    reference: str | None
    hypothesis: str


@dataclass(frozen=True)
class StageResult:
    """What a stage made and what it took."""

    name: str
    summary: str
    path: str
    other_code: OtherCode = field(default_factory=dict)  # that made it


@dataclass(frozen=True)
class Results:
    """What a run ends with."""

    stages: list[StageResult]
    samples: list[Sample]
    scores: dict[str, Any]


@dataclass(frozen=True)
class TrainingCorpus:
    """What became of the pairs of one training corpus."""

    name: str
    pairs: int
    kept: int
    dropped: dict[str, int]  # by reason


@dataclass(frozen=True)
class Counted:
    """A word or a piece, and how often it occurs."""

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
    unknown_words: list[Counted]  # of dev and test, the most frequent first


@dataclass(frozen=True)
class Split:
    """Train, dev or test."""

    name: str
    n_pairs: int
    n_too_long: int  # pairs with a side longer than [model] max_positions
    sides: tuple[Side, Side]
    ratios: Quantiles  # of target length / source length
    ratio_histogram: Histogram  # bins of equal ratio, the first one open too


@dataclass(frozen=True)
class Vocabulary:
    """The subwords, and how often they occur on both sides of train; special symbols left out."""

    method: str
    n_tokens: int  # special symbols counted
    n_rows: int  # of the embedding matrix
    n_subwords: int  # special symbols not counted
    n_never: int
    n_under_10: int  # those that never occur counted
    n_under_100: int
    most_frequent: list[Counted]
    rarest: list[Counted]  # of those that occur


@dataclass(frozen=True)
class SplitWord:
    """A word and the pieces that it is split into."""

    word: str
    pieces: list[str]
    n_pieces: int  # there may be more than are shown


@dataclass(frozen=True)
class Splitting:
    """How the running words of one side of dev are split."""

    lang: str
    n_words: int
    n_whole: int
    n_pieces: int
    whole: list[Counted]  # frequent words kept whole
    most_split: list[SplitWord]


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
