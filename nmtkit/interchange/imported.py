"""A model of another program with everything that a bundle needs."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torch import Tensor

from nmtkit.config.model import DecodingConfig
from nmtkit.corpus.moses import Tokenization, Tokenizations
from nmtkit.corpus.subword import Subword
from nmtkit.model.weights import Description
from nmtkit.utils.language import Language


@dataclass(frozen=True)
class TextPreparation:
    """The text processing before subwords. Other programs do not record it.

    Attributes:
        tokenizer: None: Moses for BPE codes, none for a sentencepiece model.
        normalize_punctuation: Whether punctuation was normalized.
        aggressive_hyphens: Whether hyphens were split; None: if the dictionary has them.
        lowercase: Whether text was lowercased.
    """

    tokenizer: Literal["moses", "none"] | None = None
    normalize_punctuation: bool = False
    aggressive_hyphens: bool | None = None
    lowercase: bool = False

    def tokenizations(
        self,
        langs: tuple[Language, Language],
        tokenizer: Literal["moses", "none"],
        aggressive_hyphens: bool,
    ) -> Tokenizations:
        """Return the tokenization of both sides.

        Args:
            langs: The languages of source and target.
            tokenizer: The tokenizer, if none was chosen.
            aggressive_hyphens: Whether hyphens were split, if that was not chosen.
        """
        # The user's choice takes precedence over detection.
        hyphens = self.aggressive_hyphens
        src, tgt = (
            Tokenization(
                lang.code,
                self.normalize_punctuation,
                self.lowercase,
                self.tokenizer or tokenizer,
                aggressive_hyphens if hyphens is None else hyphens,
            )
            for lang in langs
        )
        return Tokenizations(src=src, tgt=tgt)


@dataclass(frozen=True)
class ImportedModel:
    """A model, its weights and its text processing.

    Attributes:
        program: The program that the model is from, such as "fairseq".
        description: The model.
        weights: Its weights by our names.
        subword: Its vocabulary.
        tokenizations: The tokenization of both sides.
        decoding: Default settings of the search.
        hashes: The SHA-256 of the files that were read, by their names.
    """

    program: str
    description: Description
    weights: Mapping[str, Tensor]
    subword: Subword
    tokenizations: Tokenizations
    decoding: DecodingConfig
    hashes: Mapping[str, str]

    def save_text(self, folder: Path) -> None:
        """Save the text processing in the folder of a bundle."""
        self.subword.save(folder)
        self.tokenizations.save(folder)
