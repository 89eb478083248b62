"""What `translate` and `score` publish. No other module knows the names of these files.

A translated set is a folder of its own name: the source, the references that were used (none, one,
`reference.txt`, or several, `reference.1.txt` and so on), the hypotheses, and their ratings.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmtkit.sources.text import TextFile, read_lines
from nmtkit.store.artifacts import Artifact
from nmtkit.store.records import read_json, write_json, write_lines
from nmtkit.store.verification import verify

SOURCE, HYPOTHESES, RATINGS = "source.txt", "hypotheses.txt", "ratings.json"
SCORES = "scores.json"

Lines = Sequence[str]
Ratings = Sequence[Mapping[str, Any]]  # of each line of the hypotheses


@dataclass(frozen=True)
class TranslatedSet:
    """One set, its files verified."""

    name: str
    source: Path
    hypotheses: Path
    references: tuple[Path, ...]
    ratings: Path

    def repairs(self) -> list[list[str]]:
        return [rating.get("repairs", []) for rating in read_json(self.ratings)]

    def read(self) -> tuple[list[str], list[str], list[list[str]]]:
        """Return the lines of the source, of the hypotheses, and of each reference."""
        paths = (self.source, self.hypotheses, *self.references)
        src, hyps, *references = (list(read_lines(TextFile(path))) for path in paths)
        return src, hyps, references


def translated_sets(artifact: Artifact) -> list[TranslatedSet]:
    """Return the sets of a finished `translate`, in the order of the recipe."""
    verify(artifact)
    sets = []
    for name in artifact.manifest.depends_on["test"]["names"]:
        n_references = sum(f.startswith(f"{name}/reference.") for f in artifact.manifest.files)
        files = (SOURCE, HYPOTHESES, RATINGS, *_reference_files(n_references))
        src, hyps, ratings, *references = (artifact.file(f"{name}/{file}") for file in files)
        sets.append(TranslatedSet(name, src, hyps, tuple(references), ratings))
    return sets


def _reference_files(n_references: int) -> list[str]:
    numbers = range(1, n_references + 1)
    return ["reference.txt"] if n_references == 1 else [f"reference.{n}.txt" for n in numbers]


def write_set(
    folder: Path, name: str, src: Lines, hyps: Lines, references: Sequence[Lines], ratings: Ratings
) -> None:
    place = folder / name
    place.mkdir(exist_ok=True)
    files = (SOURCE, HYPOTHESES, *_reference_files(len(references)))
    for file, lines in zip(files, (src, hyps, *references), strict=True):
        write_lines(place / file, lines)
    write_json(place / RATINGS, ratings)


def write_scores(folder: Path, scores: Mapping[str, Mapping[str, Any]]) -> None:
    write_json(folder / SCORES, scores)


def read_scores(artifact: Artifact) -> dict[str, Any]:
    scores: dict[str, Any] = read_json(verify(artifact, SCORES).file(SCORES))
    return scores
