"""The files that `translate` and `score` publish. No other module knows their names.

A translated set is a folder of its own name: the source, the references that were used (none, one,
`reference.txt`, or several, `reference.1.txt` and so on), the hypotheses, and their ratings. If the
model's tokens were lower-cased after the tokenizer, it also has these, for tokenized BLEU.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmtkit.sources.text_file import TextFile, read_lines
from nmtkit.store.artifacts import Artifact, verify
from nmtkit.store.records import read_json, write_json, write_lines

SOURCE = "source.txt"
HYPOTHESES = "hypotheses.txt"
TOKENS = "tokens.txt"
RATINGS = "ratings.json"
SCORES = "scores.json"

Lines = Sequence[str]
Ratings = Sequence[Mapping[str, Any]]  # of the hypotheses, line by line


@dataclass(frozen=True)
class TranslatedSet:
    """The verified files of a translated set."""

    name: str
    source: Path
    hypotheses: Path
    references: tuple[Path, ...]
    ratings: Path
    tokens: Path | None  # the hypotheses as the model wrote them, without subwords

    def repairs(self) -> list[list[str]]:
        """Return the repairs that turned hypotheses into parse trees, line by line."""
        return [rating.get("repairs", []) for rating in read_json(self.ratings)]

    def read(self) -> tuple[list[str], list[str], list[list[str]]]:
        """Return the lines of the source, of the hypotheses, and of the references."""
        references = [list(read_lines(TextFile(path))) for path in self.references]
        src = list(read_lines(TextFile(self.source)))
        hyps = list(read_lines(TextFile(self.hypotheses)))
        return src, hyps, references

    def read_tokens(self) -> list[str] | None:
        """Return the lines of the hypotheses as tokens, if they were published."""
        return None if self.tokens is None else list(read_lines(TextFile(self.tokens)))


def translated_sets(artifact: Artifact) -> list[TranslatedSet]:
    """Return the sets of a finished `translate`, in the order of the recipe."""
    verify(artifact)
    sets = []
    for name in artifact.manifest.depends_on["test"]["names"]:
        # The recipe does not know this number: a source of text may have none or several.
        n_references = sum(
            file.startswith(f"{name}/reference.") for file in artifact.manifest.files
        )
        references = [artifact.file(f"{name}/{file}") for file in _reference_files(n_references)]
        has_tokens = f"{name}/{TOKENS}" in artifact.manifest.files
        translated_set = TranslatedSet(
            name,
            source=artifact.file(f"{name}/{SOURCE}"),
            hypotheses=artifact.file(f"{name}/{HYPOTHESES}"),
            references=tuple(references),
            ratings=artifact.file(f"{name}/{RATINGS}"),
            tokens=artifact.file(f"{name}/{TOKENS}") if has_tokens else None,
        )
        sets.append(translated_set)
    return sets


def _reference_files(n_references: int) -> list[str]:
    """Return the names of the files of a number of references."""
    # Nearly all sets have one reference, whose name then needs no number.
    if n_references == 1:
        return ["reference.txt"]
    return [f"reference.{number}.txt" for number in range(1, n_references + 1)]


def write_set(
    folder: Path,
    name: str,
    src: Lines,
    hyps: Lines,
    references: Sequence[Lines],
    ratings: Ratings,
    tokens: Lines | None = None,
) -> None:
    """Write the files of a translated set.

    Args:
        folder: The draft of the artifact.
        src: Source text.
        hyps: Detokenized hypotheses, line by line.
        references: Zero or more references.
        ratings: Scores of the hypotheses and repairs, line by line.
        tokens: The hypotheses as tokens, if detokenized ones would have other tokens.
    """
    set_folder = folder / name
    set_folder.mkdir(exist_ok=True)
    write_lines(set_folder / SOURCE, src)
    write_lines(set_folder / HYPOTHESES, hyps)
    for file, refs in zip(_reference_files(len(references)), references, strict=True):
        write_lines(set_folder / file, refs)
    write_json(set_folder / RATINGS, ratings)
    if tokens is not None:
        write_lines(set_folder / TOKENS, tokens)


def write_scores(folder: Path, scores: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the scores of test sets, by set and kind, to the draft of an artifact."""
    write_json(folder / SCORES, scores)


def read_scores(artifact: Artifact) -> dict[str, Any]:
    """Return the scores of a finished `score`, by set and kind."""
    scores: dict[str, Any] = read_json(verify(artifact, SCORES).file(SCORES))
    return scores
