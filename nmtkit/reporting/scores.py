"""What scores are called, and how each was counted."""

from collections.abc import Mapping
from typing import Any

SCORE_NAMES = {
    "sacrebleu": "sacreBLEU",
    "bracket_f1": "bracket F1",
    "chrf": "chrF2",
    "ter": "TER",
    "tokenized_bleu": "tokenized BLEU",
    "compound_split_bleu": "compound-split BLEU",
}


def how_counted(score: Mapping[str, Any]) -> str:
    """Return how a score was counted, with the signature of sacreBLEU's."""
    return str(score["how"]) + (f"; {score['signature']}" if "signature" in score else "")
