"""A prepared corpus: the folder that `prepare` publishes. No other module knows its file names.

Training and dev pairs are stored as token ids (`store`), dev pairs as raw text too; beside them lie
the subword model, the tokenization, counts, and samples to look at.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from nmtkit.corpus.ids import Ids
from nmtkit.corpus.moses import TOKENIZATION, Tokenizations
from nmtkit.corpus.special_tokens import UNK_ID
from nmtkit.corpus.subword import CODES, MODEL_FILE, SUBWORD_FILES, Subword, load_subword
from nmtkit.sources.text import TextFile, read_lines
from nmtkit.store.artifacts import Artifact
from nmtkit.store.records import Record, read_json, read_record, write_json, write_lines
from nmtkit.store.verification import verify

Split = Literal["train", "dev"]
Side = Literal["src", "tgt"]
SPLITS: tuple[Split, ...] = ("train", "dev")
SIDES: tuple[Side, ...] = ("src", "tgt")

COUNTS, SAMPLES = "counts.json", "samples.json"


class Size(Record):
    """How much a split holds, end symbols counted."""

    pairs: int
    src_tokens: int
    tgt_tokens: int


class Counts(Record):
    train: list[dict[str, Any]]  # of each corpus: its name, pairs, kept, dropped by reason
    vocabulary: int  # tokens, special symbols counted
    sizes: dict[Split, Size]


@dataclass(frozen=True)
class PreparedCorpus:
    """Reads what the functions below write."""

    artifact: Artifact

    def ids(self, split: Split, side: Side) -> Ids:
        return Ids.open(ids_place(self.artifact.path, split, side))

    def dev_lines(self, side: Side) -> list[str]:
        text = TextFile(self.artifact.file(_dev_text(side)), keep_bom=True)
        return list(read_lines(text))

    def counts(self) -> Counts:
        return read_record(self._verified(COUNTS), Counts)

    def samples(self) -> dict[str, list[dict[str, Any]]]:
        """Raw pairs that were "kept" and "dropped", verified."""
        samples: dict[str, list[dict[str, Any]]] = read_json(self._verified(SAMPLES))
        return samples

    def subword(self) -> Subword:
        return load_subword(self.artifact)

    def subword_model(self) -> Path:
        """Return the file of the subword model: BPE codes, or a sentencepiece model."""
        is_bpe = MODEL_FILE not in self.artifact.manifest.files
        return self.artifact.file(CODES if is_bpe else MODEL_FILE)

    def tokenizations(self) -> Tokenizations:
        return Tokenizations.load(self.artifact)

    def files_of_a_bundle(self) -> list[Path]:
        """What translating raw text needs of it: the subword model and the tokenization."""
        names = (*SUBWORD_FILES, TOKENIZATION)
        return [self.artifact.file(name) for name in names if name in self.artifact.manifest.files]

    def hashes_of_text(self) -> dict[str, str]:
        """The hash of each of these files: models with equal ones read and write the same ids."""
        files = self.artifact.manifest.files
        return {path.name: files[path.name].sha256 for path in self.files_of_a_bundle()}

    def _verified(self, name: str) -> Path:
        return verify(self.artifact, name).file(name)


def count_unknown(folder: Path, n_tokens: int) -> int:
    sides = (Ids.open(ids_place(folder, "train", side)) for side in SIDES)
    return sum(int(side.counts(n_tokens)[UNK_ID]) for side in sides)


def write_dev_lines(folder: Path, side: Side, lines: list[str]) -> None:
    write_lines(folder / _dev_text(side), lines)


def write_counts(folder: Path, train: list[dict[str, Any]], vocabulary: int) -> None:
    """Write what became of the training corpora, and the sizes of the splits, ids written."""
    sizes = {}
    for split in SPLITS:
        src, tgt = (Ids.open(ids_place(folder, split, side)) for side in SIDES)
        sizes[split] = Size(pairs=len(src), src_tokens=len(src.ids), tgt_tokens=len(tgt.ids))
    counts = Counts(train=train, vocabulary=vocabulary, sizes=sizes)
    write_json(folder / COUNTS, counts.model_dump())


def write_samples(folder: Path, kept: list[dict[str, Any]], dropped: list[dict[str, Any]]) -> None:
    write_json(folder / SAMPLES, {"kept": kept, "dropped": dropped})


def ids_place(folder: Path, split: Split, side: Side) -> Path:
    """Return where `store.ids_writer` writes the ids of one side."""
    return folder / f"{split}.{side}"


def _dev_text(side: Side) -> str:
    return f"dev.{side}.txt"
