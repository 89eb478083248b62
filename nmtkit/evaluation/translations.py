"""Translated test sets: what `translate` publishes. No other file spells the names in its folder.

Each set is a folder of its own name: the source and the reference (if there is one) that were used,
the hypotheses in the order of the source, and how the model rates each of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmtkit import artifacts
from nmtkit.artifacts import Artifact
from nmtkit.sources.text import TextFile, read_lines

SOURCE, REFERENCE, HYPOTHESES = "source.txt", "reference.txt", "hypotheses.txt"
RATINGS = "ratings.json"


@dataclass(frozen=True)
class TranslatedSet:
    """One set, its files verified."""

    name: str
    source: Path
    hypotheses: Path
    reference: Path | None
    ratings: Path

    def repairs(self) -> list[list[str]]:
        """Return how each output of a parser had to be repaired."""
        return [rating.get("repairs", []) for rating in artifacts.read_json(self.ratings)]

    def lines(self) -> Iterator[tuple[str, str, str | None]]:
        """Yield each source, hypothesis and reference."""
        sides = [read_lines(TextFile(path)) for path in (self.source, self.hypotheses)]
        references = None if self.reference is None else read_lines(TextFile(self.reference))
        for src, hyp in zip(*sides, strict=True):
            yield src, hyp, None if references is None else next(references)


def translated_sets(artifact: Artifact) -> list[TranslatedSet]:
    """Return the sets of a finished `translate`, in the order of the recipe.

    Raises:
        DamagedError: A file is not what was published.
    """
    artifacts.verify(artifact)
    files = artifact.manifest.files
    return [
        TranslatedSet(
            name,
            artifact.file(f"{name}/{SOURCE}"),
            artifact.file(f"{name}/{HYPOTHESES}"),
            artifact.path / name / REFERENCE if f"{name}/{REFERENCE}" in files else None,
            artifact.file(f"{name}/{RATINGS}"),
        )
        for name in artifact.manifest.depends_on["test"]["names"]
    ]


def write_set(
    folder: Path,
    name: str,
    src: Sequence[str],
    hyps: Sequence[str],
    refs: Sequence[str] | None,
    ratings: Sequence[Mapping[str, Any]],
) -> None:
    """Write what `translated_sets` reads."""
    place = folder / name
    place.mkdir(exist_ok=True)
    for file, lines in ((SOURCE, src), (HYPOTHESES, hyps), (REFERENCE, refs)):
        if lines is not None:
            text = "".join(f"{line}\n" for line in lines)
            (place / file).write_text(text, encoding="utf-8", newline="\n")
    artifacts.write_json(place / RATINGS, ratings)
