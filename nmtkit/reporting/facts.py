"""What commands tell, as values: stages fill them in, tables show them."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class State:
    """How far one stage of a chain is."""

    stage: str
    state: str  # "fresh", "partial", "missing", "damaged" or "unknown"
    fingerprint: str | None
    path: str | None  # where the artifact is, or will be
    why: str


@dataclass(frozen=True)
class Download:
    """A file that the recipe reads from the network."""

    url: str
    n_bytes: int
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
    training_flops: float
    device: str
    tgt_tokens_per_second: float  # measured on this machine just now
    training_seconds: float  # about, of all steps

    def rows(self) -> list[tuple[str, str]]:
        """Names and values, as a person reads them."""
        about = "" if self.vocabulary_is_known else "about "
        speed = f"{self.tgt_tokens_per_second:,.0f} target tokens/s"
        return [
            ("to download", f"{self.download_bytes:,} bytes"),
            ("disk, downloads included", f"about {self.disk_bytes / 2**30:.1f} GiB"),
            ("parameters", f"{about}{self.n_parameters:,}"),
            ("arithmetic of training", f"{about}{self.training_flops:.2e} FLOPs"),
            ("speed here", f"{speed} on {self.device}, from two trial passes"),
            ("training here", f"about {_duration(self.training_seconds)}"),
        ]


@dataclass(frozen=True)
class Sample:
    """A line of the test set and its translation."""

    src: str
    reference: str
    hypothesis: str


@dataclass(frozen=True)
class StageResult:
    """What a stage made and what it took."""

    name: str
    summary: str
    path: str


@dataclass(frozen=True)
class Results:
    """What a run ends with."""

    stages: list[StageResult]
    samples: list[Sample]
    scores: dict[str, Any]


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    if seconds < 5_400:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3_600:.0f} hours" if seconds < 259_200 else f"{seconds / 86_400:.0f} days"
