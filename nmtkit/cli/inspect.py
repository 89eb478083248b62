"""nmtkit inspect: what a prepared corpus contains, to check before training on it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nmtkit.cli.options import Html, check_output, command, pipeline_inputs
from nmtkit.config.recipe import Recipe
from nmtkit.corpus.moses import Tokenization
from nmtkit.corpus.prepared import SIDES, SPLITS, PreparedCorpus
from nmtkit.corpus.special_tokens import EOS_ID, SPECIALS, UNK_ID
from nmtkit.corpus.subword import Subword
from nmtkit.evaluation.sacre import sacre_bleu
from nmtkit.reporting.chart import Axis, Chart, Series
from nmtkit.reporting.document import Part, page_of, replace_page
from nmtkit.reporting.grid import Grid, Row
from nmtkit.reporting.show import Form, show
from nmtkit.stages.first_pairs import local_pair_lines
from nmtkit.stages.pipeline import Pipeline
from nmtkit.store.verification import verify
from nmtkit.utils import progress

Facts = dict[str, Any]  # plain values, as --json prints them
Values = npt.NDArray[Any]

QUANTILES = {"median": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
N_BINS = 40
RARE = {"never": 1, "fewer than 10 times": 10, "fewer than 100 times": 100}
N_WORDS = 20
MAX_CHARACTERS = 300  # of a text that is shown


@command("nmtkit inspect demo --html corpus.html")
def inspect(pipeline: Pipeline, form: Form, html: Html = None) -> None:
    check_output("--html", html, pipeline_inputs(pipeline))
    facts = facts_of(pipeline.recipe, PreparedCorpus(verify(pipeline.need("prepare"))))
    if html is not None:
        replace_page(html, page_of(document(facts)))
        progress.log(f"inspect: wrote {html}")
    title = f"nmtkit inspect {facts['recipe']}: {facts['path']}"
    show(form, facts, [title, *facts["first_pairs"], *notes(facts), *grids(facts)])


def facts_of(recipe: Recipe, prepared: PreparedCorpus) -> Facts:
    """Describe a prepared corpus; lengths are in subwords, end symbols counted."""
    samples, subword, both = prepared.samples(), prepared.subword(), prepared.tokenizations()
    hows = {"src": both.src, "tgt": both.tgt}
    names = {side: how.lang for side, how in hows.items()}
    names["ratio"] = f"{names['tgt']}/{names['src']}"
    of: dict[tuple[str, str], Values] = {}  # lengths of each split and side, and their ratios
    counts: dict[tuple[str, str], Values] = {}  # of each token
    for split in SPLITS:
        for side in SIDES:
            ids = prepared.ids(split, side)
            of[split, side], counts[split, side] = ids.lengths, ids.counts(subword.n_tokens)
        of[split, "ratio"] = of[split, "tgt"] / of[split, "src"]
    longer = np.maximum(of["train", "src"], of["train", "tgt"])
    subwords = (counts["train", "src"] + counts["train", "tgt"])[len(SPECIALS) :]
    return {
        "recipe": recipe.name,
        "description": recipe.description,
        "path": str(prepared.artifact.path),
        "names": names,
        "first_pairs": local_pair_lines(recipe),
        "corpora": prepared.counts().model_dump()["train"],
        "weights": recipe.corpus.weights,
        "max_positions": recipe.model.max_positions,
        "n_too_long": int(np.count_nonzero(longer > recipe.model.max_positions)),
        "lengths": _lengths(of, {place: int(each[UNK_ID]) for place, each in counts.items()}),
        "histograms": _histograms(of),
        "vocabulary": {
            "method": recipe.subword.method,
            "tokens": subword.n_tokens,
            "rows": recipe.model.rows_for(subword.n_tokens),
            "subwords": len(subwords),
            "rare": {name: int(np.count_nonzero(subwords < n)) for name, n in RARE.items()},
        },
        "words": [_words(prepared.dev_lines(side), hows[side], subword) for side in SIDES],
        "round_trip": _round_trip(recipe, both.tgt, prepared.dev_lines("tgt")),
        "samples": [
            {**pair, **{side: _steps(pair[side], hows[side], subword) for side in SIDES}}
            for pair in samples["kept"]
        ],
        "dropped": [
            {**pair, **{side: {"raw": _cut(pair[side])} for side in SIDES}}
            for pair in samples["dropped"]
        ],
    }


def _lengths(
    of: Mapping[tuple[str, str], Values], n_unknown: Mapping[tuple[str, str], int]
) -> list[Facts]:
    rows = []
    for (split, side), values in of.items():
        found = np.quantile(values, [*QUANTILES.values()], method="inverted_cdf").tolist()
        row = {"split": split, "of": side, "pairs": len(values), "mean": float(values.mean())}
        row |= dict(zip(QUANTILES, found, strict=True))
        if side != "ratio":
            row |= {"tokens": int(values.sum()), "unknown": n_unknown[split, side]}
        rows.append(row)
    return rows


def _histograms(of: Mapping[tuple[str, str], Values]) -> Facts:
    """Return the middles of bins and the percentage of each split in them; the last are open."""
    found: Facts = {}
    for side, unit in (("src", 1), ("tgt", 1), ("ratio", 1 / 16)):
        typical = np.quantile(of["train", side], 0.999)  # what is longer has one more bin
        width = unit * (1 + typical // (N_BINS * unit))
        edges = np.arange(width / 2, typical + 2 * width, width)
        found[side] = {}
        for split in SPLITS:
            values = of[split, side].clip(edges[0], edges[-1])
            shares = 100 * np.histogram(values, edges)[0] / len(values)
            middles = (edges[:-1] + width / 2).tolist()
            found[side][split] = [*zip(middles, shares.tolist(), strict=True)]
    return found


def _words(lines: Sequence[str], how: Tokenization, subword: Subword) -> Facts:
    words = Counter(word for line in lines for word in how.tokenize(line).split())
    ids = {word: subword.encode(word) for word in words}
    unknown = Counter({word: n for word, n in words.items() if UNK_ID in ids[word]})
    return {
        "lang": how.lang,
        "words": words.total(),
        "whole": sum(n for word, n in words.items() if len(ids[word]) == 1),
        "subwords": sum(n * len(ids[word]) for word, n in words.items()),
        "unknown": {_cut(word): n for word, n in unknown.most_common(N_WORDS)},
    }


def _round_trip(recipe: Recipe, how: Tokenization, lines: list[str]) -> float | None:
    """Return what dev scores that Moses took apart and put together; None: it did not."""
    if how.tokenizer != "moses":
        return None
    hyps = [how.detokenize(how.tokenize(line)) for line in lines]
    lang, lowercase = recipe.corpus.tgt_lang, recipe.scoring.lowercase
    bleu = sacre_bleu(hyps, lines, lang=lang, lowercase=lowercase, n_bootstrap=1)
    return float(bleu["score"])


def _steps(line: str, how: Tokenization, subword: Subword) -> dict[str, str]:
    tokens = how.tokenize(line)
    ids = [*subword.encode(tokens), EOS_ID]
    pieces = " ".join(subword.pieces(ids))
    steps = {"raw": line, "tokens": tokens, "subwords": pieces, "ids": " ".join(map(str, ids))}
    return {name: _cut(text) for name, text in steps.items()}


def _cut(text: str) -> str:
    n_more = len(text) - MAX_CHARACTERS
    return f"{text[:MAX_CHARACTERS]}... ({n_more:,} more characters)" if n_more > 0 else text


# What people read


def notes(facts: Facts) -> list[str]:
    found = [
        f"Kept pairs with a side longer than max_positions = {facts['max_positions']:,} tokens, "
        f"which training leaves out: {facts['n_too_long']:,}"
    ]
    if facts["round_trip"] is not None:
        found.append(
            f"Round trip: tokenized and detokenized by Moses, the {facts['names']['tgt']} text of "
            f"dev scores {facts['round_trip']:.2f} sacreBLEU against itself; no translation of it "
            "can be expected to score more."
        )
    found += [
        f"Words of dev, {side['lang']}, with an unknown token: {', '.join(side['unknown'])}"
        for side in facts["words"]
        if side["unknown"]
    ]
    return found


def document(facts: Facts) -> Part:
    """Return all of it; only the first pair of each corpus, and of each reason, is not folded."""
    corpora, lengths = _corpora_grid(facts), _lengths_grid(facts)
    vocabulary = _vocabulary_grid(facts["vocabulary"], facts["words"])
    dropped = _pair_parts(facts, "dropped", "reason")
    none = "" if dropped else "Cleaning dropped no pair."
    return Part(
        "inspect",
        facts["recipe"],
        f"{facts['description']}\n{facts['path']}",
        notes=["Lengths are in subwords, end symbols counted. Made by nmtkit inspect."],
        parts=[
            Part("corpora", "Corpora", table=corpora, notes=notes(facts)),
            Part("first-pairs", "First pairs", code="\n".join(facts["first_pairs"])),
            Part("lengths", "Lengths", table=lengths, charts=charts(facts)),
            Part("vocabulary", "Vocabulary", table=vocabulary),
            Part("samples", "Samples", parts=_pair_parts(facts, "samples", "corpus")),
            Part("dropped", "Dropped pairs", none, parts=dropped),
        ],
    )


def grids(facts: Facts) -> list[Grid]:
    """Return the tables of the document that are not folded."""
    parts = [each for part in document(facts).parts for each in (part, *part.parts)]
    return [each.table for each in parts if each.table and not each.is_folded]


def _corpora_grid(facts: Facts) -> Grid:
    groups = []
    for each, weight in zip(facts["corpora"], facts["weights"], strict=True):
        dropped = {
            f"dropped: {reason.replace('_', ' ')}": n for reason, n in each["dropped"].items()
        }
        numbers = {"read": each["pairs"], "kept": each["kept"], **dropped}
        if weight != 1:
            numbers[f"drawn in an epoch, about (weight {weight:g})"] = round(weight * each["kept"])
        shares = ((what, f"{n:,}", _share(n, each["pairs"])) for what, n in numbers.items())
        groups.append([(each["corpus"], *share) for share in shares])
    return Grid("training corpora", ("corpus", "", "pairs", "share"), 2, groups)


def _lengths_grid(facts: Facts) -> Grid:
    keys = (*QUANTILES, "mean", "tokens", "unknown")
    groups: dict[str, list[Row]] = {split: [] for split in SPLITS}
    for row in facts["lengths"]:
        split, name = f"{row['split']}, {row['pairs']:,} pairs", facts["names"][row["of"]]
        numbers = (_number(row[key]) if key in row else "" for key in keys)
        groups[row["split"]].append((split, name, *numbers))
    return Grid("lengths in subword tokens", ("split", "", *keys), 2, [*groups.values()])


def _vocabulary_grid(vocabulary: Facts, words: Sequence[Facts]) -> Grid:
    rows = [
        ("tokens, special symbols counted", f"{vocabulary['tokens']:,}", ""),
        ("rows of the embedding matrix", f"{vocabulary['rows']:,}", ""),
    ]
    for often, n in vocabulary["rare"].items():
        name = f"subwords that occur {often} in train"
        rows.append((name, f"{n:,}", _share(n, vocabulary["subwords"])))
    for side in words:
        share = _share(side["whole"], side["words"])
        rows.append(
            (f"{side['lang']} words of dev that are one subword", f"{side['whole']:,}", share)
        )
        pieces = f"{side['subwords'] / max(1, side['words']):.2f}"
        rows.append((f"subwords per {side['lang']} word of dev", pieces, ""))
    return Grid.of(f"vocabulary ({vocabulary['method']})", ("", "number", "share"), rows, 1)


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / max(1, whole):.2f} %"


def _pair_parts(facts: Facts, which: str, of: str) -> list[Part]:
    parts: list[Part] = []
    seen: set[str] = set()
    for number, pair in enumerate(facts[which]):
        groups = [
            [(name, facts["names"][side], pair[side][name]) for side in SIDES]
            for name in pair["src"]
        ]
        line = f"line {pair['line']:,}"
        why = f", dropped: {pair['reason'].replace('_', ' ')}" if "reason" in pair else ""
        table = Grid(f"{pair['corpus']}, {line}{why}", ("", "", ""), 3, groups)
        title, is_folded = f"{line}: {pair['src']['raw']}", pair[of] in seen
        parts.append(Part(f"{which}-{number}", title, table=table, is_folded=is_folded))
        seen.add(pair[of])
    return parts


def charts(facts: Facts) -> list[Chart]:
    found = []
    for side, name in facts["names"].items():
        series = [Series(split, each) for split, each in facts["histograms"][side].items()]
        title = f"{'Ratio' if side == 'ratio' else 'Length'}, {name}: percent of the pairs"
        found.append(Chart(f"histogram-{side}", title, series, y=Axis(low=0)))
    return found
