"""What is published: the paper's Tables 2 and 4 with the literature's rows, and reproductions."""

import tomllib
from pathlib import Path
from typing import Any

# By target language: the figure of a run that is comparable with Table 2.
TABLE_2_KINDS = {"de": "compound_split_bleu.score_quotes_replaced", "fr": "tokenized_bleu"}

TABLES: dict[str, Any] = tomllib.loads(
    Path(__file__).with_name("published.toml").read_text(encoding="utf-8")
)
NOTES: list[str] = TABLES.pop("notes")
COUNTED_DE = NOTES[0]
