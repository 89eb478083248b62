"""What is published: the paper's Tables 2 and 4 with the literature's rows, and reproductions."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

# By target language: the figure of a run beside Table 2, and what columns and plots are called.
TABLE_2_KINDS = {"de": "compound_split_bleu.score_quotes_replaced", "fr": "tokenized_bleu"}
LANGUAGES = {
    "de": "English-German (ours: quotes replaced)",
    "fr": "English-French (ours: tokenized; published: not said)",
}


@dataclass(frozen=True)
class Translated:
    """A row of Table 2: BLEU on newstest2014, and training cost in FLOPs."""

    model: str
    en_de: float | None = None
    en_fr: float | None = None
    en_de_flops: float | None = None
    en_fr_flops: float | None = None


@dataclass(frozen=True)
class Parsed:
    """A row of Table 4: F1 on section 23 of the Wall Street Journal."""

    parser: str
    training: str
    f1: float


@dataclass(frozen=True)
class Reproduction:
    """A system trained from scratch, and its BLEU on newstest2014, English-German, as published."""

    counted: str  # how
    source: str
    model: str
    bleu: str
    lines: int | None = None  # of the test set; None: not said


_FILE = tomllib.loads(Path(__file__).with_name("published.toml").read_text(encoding="utf-8"))
NOTES: list[str] = _FILE["notes"]
COUNTED_DE = NOTES[0]
TABLE_2 = [Translated(**row) for row in _FILE["table_2"]]
TABLE_4 = [Parsed(**row) for row in _FILE["table_4"]]
REPRODUCTIONS = [
    Reproduction(group["counted"], **system)
    for group in _FILE["reproductions"]
    for system in group["systems"]
]
# By how BLEU was counted: the figure of ours that is comparable, if any.
OURS: dict[str, str | None] = {each["counted"]: each.get("ours") for each in _FILE["reproductions"]}
