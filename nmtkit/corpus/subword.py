"""The subword model of an artifact: BPE or sentencepiece, with one interface (section 5.1)."""

from collections.abc import Container
from pathlib import Path

from nmtkit.corpus.bpe_subword import CODES, BpeSubword
from nmtkit.corpus.sentencepiece_subword import (
    MODEL_FILE,
    SOURCE_MODEL,
    TARGET_MODEL,
    SentencePiecePair,
    SentencePieceSubword,
)
from nmtkit.corpus.vocabulary import VOCABULARY, read_vocabulary
from nmtkit.store.artifacts import Artifact

# BpeSubword has CODES and VOCABULARY, SentencePieceSubword has MODEL_FILE and perhaps VOCABULARY,
# SentencePiecePair has the last two and VOCABULARY.
SUBWORD_FILES = (CODES, VOCABULARY, MODEL_FILE, SOURCE_MODEL, TARGET_MODEL)

Subword = BpeSubword | SentencePieceSubword | SentencePiecePair


def load_subword(artifact: Artifact) -> Subword:
    """Load the subword model of an artifact, by the method whose files its manifest lists."""
    files = artifact.manifest.files
    if SOURCE_MODEL in files:
        for name in (TARGET_MODEL, VOCABULARY):
            artifact.file(name)
    elif MODEL_FILE not in files:
        for name in (CODES, VOCABULARY):
            artifact.file(name)  # raises an error if the manifest lacks it
    return read_subword(artifact.path, files)


def read_subword(directory: Path, files: Container[str]) -> Subword:
    """Read the subword model in a folder.

    Args:
        files: Names of its files; others are not read.
    """
    if SOURCE_MODEL in files:
        return SentencePiecePair.load(directory)
    if MODEL_FILE not in files:
        return BpeSubword.load(directory)
    counts = read_vocabulary(directory) if VOCABULARY in files else None
    return SentencePieceSubword.load(directory, counts)
