"""What commands tell, as values: stages fill them in, tables show them."""

from dataclasses import dataclass, field
from typing import Any, Literal

from nmtkit.duration import duration
from nmtkit.reporting.code import OtherCode
from nmtkit.reporting.cost import BY_TIME, COUNTED, by_time
from nmtkit.reporting.devices import TrainingCost


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
class Made:
    """A folder of an artifact, finished or not."""

    run: str | None  # what to type behind `nmtkit run`; None: it does not say
    stage: str
    fingerprint: str
    path: str
    state: str  # "published", "damaged", "being made", "stopped", "set aside" or "being freed"
    n_bytes: int
    age_seconds: float
    scores: dict[str, Any]  # of each test set, as `score` published them
    other_code: OtherCode = field(default_factory=dict)  # that made it


@dataclass(frozen=True)
class Garbage:
    """What can be freed, and what is not although no recipe may need it."""

    freed: list[Made]
    kept: list[Made]
    why: dict[str, str]  # by path
    n_bytes: int  # that become free


@dataclass(frozen=True)
class Verified:
    """An artifact, or the texts that it was made from, hashed again."""

    what: str
    path: str
    differences: list[str]
    other_code: OtherCode = field(default_factory=dict)  # that made it


@dataclass(frozen=True)
class Check:
    """One thing that `nmtkit selftest` looked at."""

    what: str
    state: Literal["held", "noted", "skipped", "failed"]  # noted: works, but is worth knowing
    seen: str


@dataclass(frozen=True)
class Download:
    """A file that the recipe reads from the network."""

    url: str
    n_bytes: int | None  # None: nobody published it, and it was never downloaded
    is_here: bool


@dataclass(frozen=True)
class Plan:
    """What would run and what it takes."""

    recipe: str
    stages: list[State]
    downloads: list[Download]
    download_bytes: int  # still to fetch
    disk_bytes: int  # about, of what is still to be made
    vocabulary_is_known: bool
    n_parameters: int
    update_flops: float
    device: str
    tgt_tokens_per_second: float  # measured on this machine just now
    cost: TrainingCost  # about, of all steps

    def rows(self) -> list[tuple[str, str]]:
        """Names and values, as a person reads them."""
        about = "" if self.vocabulary_is_known else "about "
        speed = f"{self.tgt_tokens_per_second:,.0f} target tokens/s"
        return [
            ("to download", f"{self.download_bytes:,} bytes"),
            ("disk, downloads included", f"about {self.disk_bytes / 2**30:.1f} GiB"),
            ("parameters", f"{about}{self.n_parameters:,}"),
            ("speed here", f"{speed} on {self.device}"),
            ("training here", f"about {duration(self.cost.seconds)}"),
            (BY_TIME, f"about {by_time(self.cost)}"),
            (COUNTED, f"{about}{self.cost.product_flops:.2e} FLOPs"),
        ]


@dataclass(frozen=True)
class TrainingSpeed:
    """How fast a machine trains a recipe's model; real tokens only, end symbols counted."""

    recipe: str
    way: str  # the last of the techniques that were switched on
    device: str
    threads: int
    text: str  # "the recipe's" or "made up"
    n_parameters: int
    steps: int  # that were timed
    tgt_tokens_per_update: float
    tgt_tokens_per_second: float
    flops: float  # useful FLOP/s: matrix products of real tokens
    mfu: float  # their share of the peak
    peak_of: str  # what that peak is
    peak_bytes: int  # memory
    start_seconds: float  # of the first, untimed steps: compiling is in them
    fill: float  # real tokens among those that rows are filled up to, or attention pads to
    parts: dict[str, float]  # shares of a step's time


@dataclass(frozen=True)
class TranslationSpeed:
    """How fast a machine translates with a bundle."""

    engine: str
    dtype: str
    beam_size: int
    batch: int  # lines that the engine gets at a time
    device: str
    threads: int
    sentences: int
    sentences_per_second: float
    tokens_per_second: float  # of the output, EOS included
    flops: float  # useful FLOP/s: matrix products of the steps that the best hypotheses need
    peak_flops: float  # of a large product
    peak_of: str  # the precision of that product
    share_of_peak: float
    peak_bytes: int  # memory of the whole process
    load_seconds: float


@dataclass(frozen=True)
class CorpusFile:
    """A file that a corpus of the catalog is read from."""

    url: str | None  # None: it comes with nmtkit
    path: str | None  # where it is, if it is
    n_bytes: int | None
    sha256: str | None  # as published
    md5: str | None
    hash: str  # which one was published
    state: str
    members: list[str]  # of the archive


@dataclass(frozen=True)
class CorpusEntry:
    """A corpus of the catalog."""

    name: str
    licence: str
    n_pairs: dict[str, int | None]  # by languages; None: no count is known
    files: list[CorpusFile]


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
