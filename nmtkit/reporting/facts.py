"""What commands tell, as values: stages fill them in, tables show them."""

from dataclasses import dataclass, field
from typing import Any, Literal

from nmtkit.duration import duration
from nmtkit.reporting.code import OtherCode
from nmtkit.reporting.cost import BY_TIME, COUNTED, by_time
from nmtkit.reporting.devices import TrainingCost


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
    stages: list[Any]  # the states of `nmtkit status`
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
