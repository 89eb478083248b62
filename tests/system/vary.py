"""Makes a large parallel corpus by varying a small real one, new words coming as they do in nature.

    python tests/system/vary.py SRC TGT N_PAIRS OUT_SRC OUT_TGT

The pairs are written over and over, and from the second time on a tenth of their purely alphabetic
words are exchanged. Such a word is a new one, the front of one real word joined to the end of
another, as often as Heaps' law says: V(n) = K n^b different words among n, K and b fitted to each
side of the real text. Otherwise it is one that was made before, at random, so that words made early
grow frequent and most stay rare (Simon's process, which leaves Zipf's law).
"""

import math
import random
import sys
from pathlib import Path

EXCHANGED = 0.1
SEED = 1


class Side:
    """One language: its lines, Heaps' law in them, and the words made so far."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = [line.split(" ") for line in lines]
        self.words = sorted({word for line in self.lines for word in line if word.isalpha()})
        self.k, self.b = self._fit()
        self.made: list[str] = []
        self.n = sum(map(len, self.lines))  # running words written so far
        self.random = random.Random(SEED)

    def _fit(self) -> tuple[float, float]:
        """Fit V = K n^b through the vocabulary of a quarter of the lines, shuffled, and of all."""
        lines = self.lines.copy()
        random.Random(SEED).shuffle(lines)
        points = []
        for part in (lines[: len(lines) // 4], lines):
            running = [word for line in part for word in line]
            points.append((math.log(len(running)), math.log(len(set(running)))))
        (x0, y0), (x1, y1) = points
        b = (y1 - y0) / (x1 - x0)
        return math.exp(y1 - b * x1), b

    def varied(self, index: int) -> str:
        """Line `index` with some of its words exchanged."""
        words = self.lines[index].copy()
        choose = self.random.random
        # The share of running words that are seen for the first time, here all among the exchanged.
        new = self.k * self.b * self.n ** (self.b - 1) / EXCHANGED
        for place, word in enumerate(words):
            if choose() < EXCHANGED and word.isalpha():
                words[place] = self._exchanged(new)
        self.n += len(words)
        return " ".join(words)

    def _exchanged(self, new: float) -> str:
        if self.made and self.random.random() >= new:
            return self.made[int(self.random.random() * len(self.made))]
        first, second = (self.words[int(self.random.random() * len(self.words))] for _ in "ab")
        word = first[: max(2, len(first) * 2 // 3)] + second[len(second) // 2 :].lower()
        self.made.append(word)
        return word


def vary(src: Path, tgt: Path, n_pairs: int, out_src: Path, out_tgt: Path) -> None:
    """Write `n_pairs` pairs made from those of two files."""
    for path, out in ((src, out_src), (tgt, out_tgt)):
        with path.open(encoding="utf-8", newline="\n") as file:
            side = Side(file.read().removesuffix("\n").split("\n"))
        with out.open("w", encoding="utf-8", newline="\n") as file:
            for i in range(n_pairs):
                times, index = divmod(i, len(side.lines))
                line = side.varied(index) if times else " ".join(side.lines[index])
                file.write(f"{line}\n")


if __name__ == "__main__":
    vary(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), *map(Path, sys.argv[4:6]))
