"""Write the demo corpus: English-German pairs from a small grammar, the same bytes every time.

    python data/demo/make_corpus.py [OUT_DIR]

The grammar is in the modules of this folder: `lexicon.py` and `names.py` have the words,
`meaning.py` the parts of a clause, `english.py` and `german.py` the grammar of the two languages,
and `constructions.py` the kinds of sentences.
"""

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from constructions import CONSTRUCTIONS
from dice import Dice
from meaning import Pair

SPLITS = {"train": 20_000, "dev": 500, "test": 500}
SEED = 1706
MAX_WORDS = 25


def is_readable(pair: Pair) -> bool:
    """Return whether both sides have 3 to 25 words."""
    return all(3 <= len(side.split()) <= MAX_WORDS for side in (pair.en, pair.de))


def distinct_pairs(dice: Dice) -> Iterator[Pair]:
    """Yield sentence pairs; no sentence occurs twice on either side."""
    seen_en: set[str] = set()
    seen_de: set[str] = set()
    while True:
        pair = dice.weigh(CONSTRUCTIONS)(dice)
        if is_readable(pair) and pair.en not in seen_en and pair.de not in seen_de:
            seen_en.add(pair.en)
            seen_de.add(pair.de)
            yield pair


def write(out_dir: Path) -> None:
    """Write train, dev and test, one sentence a line."""
    out_dir.mkdir(parents=True, exist_ok=True)
    pairs = distinct_pairs(Dice(SEED))
    for split, size in SPLITS.items():
        part = list(islice(pairs, size))
        for language in ("en", "de"):
            text = "".join(f"{getattr(pair, language)}\n" for pair in part)
            path = out_dir / f"{split}.{language}"
            path.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
