"""A prepared corpus: the folder that `prepare` publishes. No other module knows its file names.

Training and dev pairs are stored as token ids (`ids`), dev pairs also as raw text. The folder also
has the subword model, the tokenization, counts, and samples to look at.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from nmtkit.corpus.bpe_subword import CODES
from nmtkit.corpus.ids import Ids
from nmtkit.corpus.moses import TOKENIZATION, Tokenizations
from nmtkit.corpus.sentencepiece_subword import MODEL_FILE
from nmtkit.corpus.special_tokens import UNK_ID
from nmtkit.corpus.subword import SUBWORD_FILES, Subword, load_subword
from nmtkit.sources.text_file import TextFile, read_lines
from nmtkit.store.artifacts import Artifact, verify
from nmtkit.store.records import Record, read_json, read_record, write_json, write_lines

Split = Literal["train", "dev"]
Side = Literal["src", "tgt"]
SPLITS: tuple[Split, ...] = ("train", "dev")
SIDES: tuple[Side, ...] = ("src", "tgt")

COUNTS = "counts.json"
SAMPLES = "samples.json"


class Size(Record):
    """The size of a split, end symbols counted."""

    pairs: int
    src_tokens: int
    tgt_tokens: int


class Counts(Record):
    """The contents of counts.json.

    Attributes:
        train: For each training corpus its name and its numbers of pairs, of kept pairs, and of
            dropped pairs by reason.
        vocabulary: Number of tokens, special symbols counted.
        sizes: The sizes of the splits.
    """

    train: list[dict[str, Any]]
    vocabulary: int
    sizes: dict[Split, Size]


@dataclass(frozen=True)
class PreparedCorpus:
    """Reads the files that the functions below write."""

    artifact: Artifact

    def ids(self, split: Split, side: Side) -> Ids:
        """Open the token ids of one side of a split."""
        return Ids.open(ids_place(self.artifact.path, split, side))

    def dev_lines(self, side: Side) -> list[str]:
        """Read the raw lines of one side of the development set."""
        text = TextFile(self.artifact.file(_dev_text(side)), keep_bom=True)
        return list(read_lines(text))

    def counts(self) -> Counts:
        """Read and verify the counts."""
        return read_record(self._verified(COUNTS), Counts)

    def samples(self) -> dict[str, list[dict[str, Any]]]:
        """Read and verify samples of the raw pairs that were "kept" and "dropped"."""
        samples: dict[str, list[dict[str, Any]]] = read_json(self._verified(SAMPLES))
        return samples

    def subword(self) -> Subword:
        """Load the subword model."""
        return load_subword(self.artifact)

    def subword_model(self) -> Path:
        """Return the file of the subword model: BPE codes, or a sentencepiece model."""
        is_bpe = MODEL_FILE not in self.artifact.manifest.files
        return self.artifact.file(CODES if is_bpe else MODEL_FILE)

    def tokenizations(self) -> Tokenizations:
        """Read the tokenization of both sides."""
        return Tokenizations.load(self.artifact)

    def bundle_files(self) -> list[Path]:
        """Return the files that translating raw text needs: subword model and tokenization."""
        names = (*SUBWORD_FILES, TOKENIZATION)
        return [self.artifact.file(name) for name in names if name in self.artifact.manifest.files]

    def text_hashes(self) -> dict[str, str]:
        """Return the hashes of the files of a bundle, by their names.

        Models with equal hashes read and write the same ids.
        """
        files = self.artifact.manifest.files
        return {path.name: files[path.name].sha256 for path in self.bundle_files()}

    def _verified(self, name: str) -> Path:
        return verify(self.artifact, name).file(name)


def count_unknown(folder: Path, n_tokens: int) -> int:
    """Count the unknown tokens in both sides of the training text.

    Args:
        n_tokens: Size of the vocabulary.
    """
    n_unknown = 0
    for side in SIDES:
        ids = Ids.open(ids_place(folder, "train", side))
        n_unknown += int(ids.counts(n_tokens)[UNK_ID])
    return n_unknown


def write_dev_lines(folder: Path, side: Side, lines: list[str]) -> None:
    """Write the raw lines of the development set."""
    write_lines(folder / _dev_text(side), lines)


def write_counts(folder: Path, train: list[dict[str, Any]], vocabulary: int) -> None:
    """Write the counts, with the sizes of the splits, whose ids must be written before.

    Args:
        train: The numbers of pairs of the training corpora, as in `Counts`.
        vocabulary: Number of tokens, special symbols counted.
    """
    sizes = {}
    for split in SPLITS:
        src = Ids.open(ids_place(folder, split, "src"))
        tgt = Ids.open(ids_place(folder, split, "tgt"))
        sizes[split] = Size(pairs=len(src), src_tokens=len(src.ids), tgt_tokens=len(tgt.ids))
    counts = Counts(train=train, vocabulary=vocabulary, sizes=sizes)
    write_json(folder / COUNTS, counts.model_dump())


def write_samples(folder: Path, kept: list[dict[str, Any]], dropped: list[dict[str, Any]]) -> None:
    """Write samples of the raw training pairs.

    Args:
        kept: Pairs with "corpus", "line", "src" and "tgt".
        dropped: The same with "reason".
    """
    write_json(folder / SAMPLES, {"kept": kept, "dropped": dropped})


def ids_place(folder: Path, split: Split, side: Side) -> Path:
    """Return the prefix of the three files of one side, as `ids_writer` and `Ids.open` take it."""
    return folder / f"{split}.{side}"


def _dev_text(side: Side) -> str:
    return f"dev.{side}.txt"
