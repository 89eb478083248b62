"""What an inspection tells, as tables of text: the same on a terminal and on a page."""

from collections import Counter
from dataclasses import dataclass

from nmtkit.reporting.facts import Inspection, Quantiles, Side, Split, Splitting


@dataclass(frozen=True)
class Grid:
    """A table whose rows stand in groups."""

    title: str
    columns: tuple[str, ...]
    n_labels: int  # the first columns say what a row is about; the others are numbers
    groups: list[list[tuple[str, ...]]]  # rows of a group share their first cell


def share(part: int, whole: int) -> str:
    """A part of a whole in percent, never 0 for something nor 100 for less than all."""
    if part == 0:
        return "0 %"
    if part == whole:
        return "100 %"
    percent = 100 * part / whole
    if percent < 0.01:
        return "< 0.01 %"
    return f"{min(percent, 99.99):.2f} %" if percent < 1 or percent > 99 else f"{percent:.1f} %"


def spoken(reason: str) -> str:
    """A reason to drop a pair, as a person says it."""
    return reason.replace("_", " ")


def corpora_grid(inspection: Inspection) -> Grid:
    """The training pairs that were read, kept, and dropped why."""

    def group(name: str, pairs: int, kept: int, dropped: Counter[str]) -> list[tuple[str, ...]]:
        return [
            (name, "read", f"{pairs:,}", ""),
            (name, "kept", f"{kept:,}", share(kept, pairs)),
            *(
                (name, f"dropped: {spoken(reason)}", f"{n:,}", share(n, pairs))
                for reason, n in dropped.most_common()
            ),
        ]

    corpora = inspection.corpora
    groups = [
        group(corpus.name, corpus.pairs, corpus.kept, Counter(corpus.dropped)) for corpus in corpora
    ]
    if len(corpora) > 1:
        dropped = sum((Counter(corpus.dropped) for corpus in corpora), Counter[str]())
        pairs, kept = (sum(getattr(c, name) for c in corpora) for name in ("pairs", "kept"))
        groups.append(group("all", pairs, kept, dropped))
    return Grid("training corpora", ("corpus", "", "pairs", "share"), 2, groups)


def left_out(inspection: Inspection) -> str:
    """What training leaves out of the pairs that were kept."""
    train = inspection.splits[0]
    limit = f"max_positions = {inspection.max_positions:,} tokens"
    if train.n_too_long == 0:
        return f"Training reads every pair that was kept: none is longer than {limit}."
    return (
        f"Training leaves out {train.n_too_long:,} of the pairs that were kept "
        f"({share(train.n_too_long, train.n_pairs)}): a side is longer than {limit}."
    )


def round_trip(inspection: Inspection) -> str | None:
    """What Moses loses of the target text of dev, if it tokenizes it."""
    if inspection.round_trip is None:
        return None
    return (
        f"Round trip: tokenized and detokenized by Moses, the {inspection.splits[0].sides[1].lang} "
        f"text of dev scores {inspection.round_trip:.2f} sacreBLEU against itself; no translation "
        "of it can be expected to score more."
    )


def sizes_grid(inspection: Inspection) -> Grid:
    """Pairs and tokens of each split."""
    src, tgt = (side.lang for side in inspection.splits[0].sides)
    columns = (
        "split",
        "pairs",
        f"{src} tokens",
        f"{tgt} tokens",
        f"{src} mean",
        f"{tgt} mean",
        f"over {inspection.max_positions:,}",
        "share",
    )
    return Grid(
        "sizes in subword tokens",
        columns,
        1,
        [
            [
                (
                    split.name,
                    f"{split.n_pairs:,}",
                    *(f"{side.n_tokens:,}" for side in split.sides),
                    *(f"{side.n_tokens / split.n_pairs:.1f}" for side in split.sides),
                    f"{split.n_too_long:,}",
                    share(split.n_too_long, split.n_pairs),
                )
            ]
            for split in inspection.splits
        ],
    )


def lengths_grid(inspection: Inspection) -> Grid:
    """Quantiles of the lengths of sentences, and of target length / source length."""

    def row(split: Split, what: str, quantiles: Quantiles, digits: int) -> tuple[str, ...]:
        values = (quantiles.median, quantiles.p95, quantiles.p99, quantiles.max)
        return (split.name, what, *(f"{value:,.{digits}f}" for value in values))

    return Grid(
        "lengths in subword tokens",
        ("split", "", "median", "95 %", "99 %", "longest"),
        2,
        [
            [
                *(row(split, side.lang, side.lengths, 0) for side in split.sides),
                row(split, ratio_name(split), split.ratios, 2),
            ]
            for split in inspection.splits
        ],
    )


def ratio_name(split: Split) -> str:
    """How the ratio of lengths is written, such as de/en."""
    src, tgt = split.sides
    return f"{tgt.lang}/{src.lang}"


def vocabulary_grid(inspection: Inspection) -> Grid:
    """The size of the vocabulary, and how much of it train leaves nearly untrained."""
    vocabulary = inspection.vocabulary
    rows = [
        ("tokens, special symbols counted", f"{vocabulary.n_tokens:,}", ""),
        ("rows of the embedding matrix", f"{vocabulary.n_rows:,}", ""),
        *(
            (f"subwords that occur {often}", f"{n:,}", share(n, vocabulary.n_subwords))
            for often, n in (
                ("never", vocabulary.n_never),
                ("fewer than 10 times", vocabulary.n_under_10),
                ("fewer than 100 times", vocabulary.n_under_100),
            )
        ),
    ]
    title = f"vocabulary ({vocabulary.method}): size and use in train"
    return Grid(title, ("", "number", "share"), 1, [[row] for row in rows])


def splitting_grid(inspection: Inspection) -> Grid:
    """How the running words of dev are split."""
    return Grid(
        "how the running words of dev are split",
        ("side", "words", "kept whole", "share", "pieces a word"),
        1,
        [
            [
                (
                    side.lang,
                    f"{side.n_words:,}",
                    f"{side.n_whole:,}",
                    share(side.n_whole, side.n_words),
                    pieces_a_word(side),
                )
            ]
            for side in inspection.splitting
        ],
    )


def pieces_a_word(side: Splitting) -> str:
    """How many pieces a running word has."""
    return f"{side.n_pieces / max(1, side.n_words):.2f}"


def held_out_sides(inspection: Inspection) -> list[tuple[str, Side]]:
    """Both sides of dev, with the name of the split."""
    return [
        (split.name, side)
        for split in inspection.splits
        if split.name != "train"
        for side in split.sides
    ]


def unknown_grid(inspection: Inspection) -> Grid:
    """Tokens of dev that the vocabulary lacks."""
    return Grid(
        "unknown tokens of dev",
        ("split", "side", "tokens", "unknown", "share"),
        2,
        [
            [
                (
                    split.name,
                    side.lang,
                    f"{side.n_tokens:,}",
                    f"{side.n_unknown:,}",
                    share(side.n_unknown, side.n_tokens),
                )
                for side in split.sides
            ]
            for split in inspection.splits
            if split.name != "train"
        ],
    )
