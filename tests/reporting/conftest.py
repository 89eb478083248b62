"""An inspection made by hand, with text that no page and no terminal should take at its word."""

from dataclasses import replace

import pytest

from nmtkit.reporting.inspection import (
    Counted,
    DroppedPair,
    Histogram,
    Inspection,
    Quantiles,
    SamplePair,
    Side,
    Split,
    Splitting,
    Steps,
    TrainingCorpus,
    Vocabulary,
)

HOSTILE = "<script>alert(1)</script> \"'&amp; \u202egnol\u2028 \x1b[31m]]> <img src=http://x/y.png>"


def steps_of(lang: str, raw: str) -> Steps:
    """The steps of a line that takes none."""
    return Steps(lang, raw, 99_700, raw.lower(), raw, ["he@@", "\u2581llo", raw, "</s>"], [5], 1)


def _side(lang: str, n: int) -> Side:
    lengths = Histogram([1.0, 6.0, 11.0, 16.0], [n, 3 * n, 2 * n, 0])
    return Side(lang, 61 * n, Quantiles(8, 13, 14, 15), lengths, n, [Counted(HOSTILE, n)])


def _split(name: str, n: int) -> Split:
    ratios = Histogram(
        [2.0 ** ((i - 16.5) / 8) for i in range(33)], [0] * 15 + [n, 5 * n] + 16 * [0]
    )
    sides = (_side("en", n), _side("de", n + 1))
    return Split(name, 6 * n, n, sides, Quantiles(1, 1.25, 1.5, 7.5), ratios)


@pytest.fixture
def inspection() -> Inspection:
    """Facts of a corpus whose every text is hostile."""
    splitting = Splitting("en", 1_234, 617, 2_468)
    return Inspection(
        recipe="mine",
        description=HOSTILE,
        path=f"runs/{HOSTILE}",
        max_positions=12,
        normalizing="normalized",
        corpora=[
            TrainingCorpus("one", 3_000, 2_990, {"too_long": 7, "ratio": 3}),
            TrainingCorpus(HOSTILE, 1_000, 1_000, {}),
        ],
        splits=[_split("train", 700), _split("dev", 11)],
        vocabulary=Vocabulary(
            "bpe",
            9_733,
            9_736,
            9_729,
            21,
            3_273,
            8_863,
        ),
        splitting=(splitting, replace(splitting, lang="de")),
        round_trip=98.76,
        samples=[
            SamplePair("one", 1, steps_of("en", HOSTILE), steps_of("de", "Zwei")),
            SamplePair("one", 1_234, steps_of("en", "Two"), steps_of("de", HOSTILE)),
        ],
        dropped=[DroppedPair(HOSTILE, 77, "too_long", HOSTILE, "Wort")],
    )
