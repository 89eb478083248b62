"""Text that no page and no terminal should take at its word, and a corpus that is full of it."""

from typing import Any

HOSTILE = "<script>alert(1)</script> \"'&amp; \u202egnol\u2028 \x1b[31m]]> <img src=http://x/y.png>"


def hostile_facts() -> dict[str, Any]:
    """What `nmtkit inspect` tells of a corpus whose every text is hostile."""

    def row(split: str, of: str, n: int) -> dict[str, Any]:
        numbers = [1.0, 1.25, 1.5, 7.5, 1.1] if of == "ratio" else [8, 13, 14, 15, 10.2]
        keys = ("median", "p95", "p99", "max", "mean")
        counts = {} if of == "ratio" else {"tokens": 61 * n, "unknown": n}
        found = dict(zip(keys, numbers, strict=True))
        return {"split": split, "of": of, "pairs": 6 * n, **found, **counts}

    sides = ("src", "tgt", "ratio")
    histogram = {"train": [(5, 20.0), (15, 80.0)], "dev": [(5, 60.0), (15, 40.0)]}
    words = {"words": 1_234, "whole": 617, "subwords": 2_468, "unknown": {HOSTILE: 12}}
    steps = dict.fromkeys(("raw", "tokens", "subwords", "ids"), HOSTILE)
    return {
        "recipe": "mine",
        "description": HOSTILE,
        "path": f"runs/{HOSTILE}",
        "other_code": {},
        "names": {"src": "en", "tgt": "de", "ratio": "de/en"},
        "corpora": [
            {
                "corpus": "one",
                "pairs": 3_000,
                "kept": 2_990,
                "dropped": {"too_long": 7, "ratio": 3},
            },
            {"corpus": HOSTILE, "pairs": 1_000, "kept": 1_000, "dropped": {}},
        ],
        "max_positions": 12,
        "n_too_long": 700,
        "lengths": [
            row(split, of, n) for split, n in (("train", 700), ("dev", 11)) for of in sides
        ],
        "histograms": dict.fromkeys(sides, histogram),
        "vocabulary": {
            "method": "bpe",
            "tokens": 9_733,
            "rows": 9_736,
            "subwords": 9_729,
            "rare": {"never": 21, "fewer than 10 times": 3_273},
        },
        "words": [{"lang": lang, **words} for lang in ("en", "de")],
        "round_trip": 98.76,
        "samples": [
            {"corpus": corpus, "line": line, "src": steps, "tgt": steps}
            for corpus, line in (("one", 1), ("one", 1_234), (HOSTILE, 5))
        ],
        "dropped": [
            {"corpus": HOSTILE, "line": 77, "reason": "too_long", "src": steps, "tgt": steps}
        ],
    }
