"""An inspection as one HTML page: no script, no other file, nothing from the network.

All that comes from the corpus or the recipe goes through `text`, which escapes it; the page's
Content-Security-Policy would stop the rest.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from html import escape
from math import log2
from pathlib import Path
from typing import TypeVar

from nmtkit.errors import UserError
from nmtkit.reporting.facts import (
    Counted,
    DroppedPair,
    Histogram,
    Inspection,
    SamplePair,
    Split,
    Splitting,
    Steps,
)
from nmtkit.reporting.inspection import (
    Grid,
    corpora_grid,
    held_out_sides,
    left_out,
    lengths_grid,
    ratio_name,
    share,
    sizes_grid,
    splitting_grid,
    spoken,
    unknown_grid,
    vocabulary_grid,
)
from nmtkit.reporting.svg import Mark, histogram
from nmtkit.visible import visible

Entry = TypeVar("Entry")

STYLE = Path(__file__).with_name("page.css")
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
JOINING = re.compile("@@$|^\u2581")  # what marks a piece as the start, or not the start, of a word
RATIO_TICKS = (("1/4", -2), ("1/2", -1), ("1", 0), ("2", 1), ("4", 2))  # names, octaves
MAX_TICKS = 6
SWATCHES = {
    "train": '<rect class="bar" width="28" height="12"/>',
    "dev": '<path class="dev" d="M0 6H28"/>',
    "test": '<path class="test" d="M0 6H28"/>',
}


def write_page(inspection: Inspection, path: Path) -> None:
    """Write the page to `path`, whole or not at all.

    Raises:
        UserError: there is no such folder, or `path` is one itself.
    """
    if path.is_dir() or not path.parent.is_dir():
        what = "is a folder" if path.is_dir() else f"would lie in {path.parent}, which is no folder"
        raise UserError(f"--html {path} {what}; name a file in a folder that exists")
    draft = path.with_name(f".{path.name}.partial")
    try:
        draft.write_text(render_page(inspection), encoding="utf-8", newline="\n")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def render_page(inspection: Inspection) -> str:
    """The page as text: a function of `inspection` alone."""
    name = text(inspection.recipe)
    sections = {
        "Corpora": _corpora(inspection),
        "Lengths": _lengths(inspection),
        "Vocabulary": _vocabulary(inspection),
        "Unknown tokens": _unknown(inspection),
        "Samples": _samples(inspection),
        "Dropped pairs": _dropped(inspection),
    }
    links = "".join(f'<li><a href="#{_key(title)}">{title}</a></li>' for title in sections)
    body = "\n".join(
        f'<section id="{_key(title)}" aria-labelledby="{_key(title)}-h">'
        f'<h2 id="{_key(title)}-h">{title}</h2>\n{content}</section>'
        for title, content in sections.items()
    )
    style = STYLE.read_text(encoding="utf-8")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{name}: the prepared corpus</title>
<style>
{style}</style>
</head>
<body>
<header>
<h1>{name}</h1>
<p>{text(inspection.description)}</p>
<p><code>{text(inspection.path)}</code></p>
{_figures(inspection)}
</header>
<nav aria-label="Sections"><ul>{links}</ul></nav>
<main>
{body}
</main>
<footer>Lengths are in tokens of the subword vocabulary, end symbols counted.
Made by <code>nmtkit inspect</code>.</footer>
</body>
</html>
"""


# Sections


def _figures(inspection: Inspection) -> str:
    train, dev, _ = inspection.splits
    src, tgt = train.sides
    vocabulary = inspection.vocabulary
    read = sum(corpus.pairs for corpus in inspection.corpora)
    n_held_out = sum(side.n_tokens for _, side in held_out_sides(inspection))
    n_unknown = sum(side.n_unknown for _, side in held_out_sides(inspection))
    pieces = [f"{side.n_pieces / max(1, side.n_words):.2f}" for side in inspection.splitting]
    figures = [
        ("Pairs to train on", f"{train.n_pairs - train.n_too_long:,}", f"of {read:,} read"),
        (f"Tokens, {src.lang}", _millions(src.n_tokens), f"{_mean(train, 0)} a sentence"),
        (f"Tokens, {tgt.lang}", _millions(tgt.n_tokens), f"{_mean(train, 1)} a sentence"),
        ("Vocabulary", f"{vocabulary.n_tokens:,}", f"{vocabulary.n_rows:,} rows"),
        ("Pieces a word", " / ".join(pieces), f"{dev.name}, {src.lang} / {tgt.lang}"),
        ("Unknown", share(n_unknown, n_held_out), "of dev and test"),
    ]
    items = "".join(
        f'<div><dt>{text(name)}</dt><dd>{text(value)}</dd><dd class="note">{text(note)}</dd></div>'
        for name, value, note in figures
    )
    return f'<dl class="figures">{items}</dl>'


def _corpora(inspection: Inspection) -> str:
    tables = _table(corpora_grid(inspection)) + _table(sizes_grid(inspection))
    return f"<p>{text(left_out(inspection))}</p>\n{tables}"


def _lengths(inspection: Inspection) -> str:
    charts = [
        *(_length_chart(inspection, number) for number in (0, 1)),
        _ratio_chart(inspection),
    ]
    key = "".join(
        f'<li><svg viewBox="0 0 28 12" class="both">{drawing}</svg>{name}</li>'
        for name, drawing in SWATCHES.items()
    )
    return (
        f'<ul class="key" aria-hidden="true">{key}</ul>\n'
        f'<div class="charts">{"".join(charts)}<div>{_table(lengths_grid(inspection))}</div></div>'
    )


def _length_chart(inspection: Inspection, number: int) -> str:
    train, *held_out = inspection.splits
    side = train.sides[number]
    starts = [round(start) for start in side.histogram.starts]
    width = starts[1] - starts[0] if len(starts) > 1 else 1
    names = [_span(start, start + width - 1) for start in starts[:-1]] + [f"{starts[-1]:,} or more"]
    ticks = [Mark((value - 0.5) / width, f"{value:,}") for value in _ticks(starts[-1])]
    median = round(side.lengths.median)
    marks = [Mark((median - 0.5) / width, f"median {median:,}")]
    if inspection.max_positions < starts[-1]:
        limit = inspection.max_positions
        marks.append(Mark(limit / width, f"max_positions {limit:,}"))
    caption = f"<b>{text(side.lang)}</b> tokens a sentence, share of sentences"
    description = (
        f"Of train, half of the sentences have at most {median:,} tokens, 95 % at most "
        f"{side.lengths.p95:,.0f}, 99 % at most {side.lengths.p99:,.0f}; the longest has "
        f"{side.lengths.max:,.0f}."
    )
    chart = histogram(
        f"length-{number}",
        f"Lengths of the {side.lang} sentences",
        description,
        bars=_shares(side.histogram),
        bar_names=_bar_names([f"{name} tokens" for name in names], side.histogram, "sentences"),
        lines=[(split.name, _shares(split.sides[number].histogram)) for split in held_out],
        ticks=ticks,
        marks=marks,
    )
    return _figure(("src", "tgt")[number], caption, chart)


def _ratio_chart(inspection: Inspection) -> str:
    train, *held_out = inspection.splits
    ratios = train.ratio_histogram
    n_bins = len(ratios.starts)
    per_octave = n_bins // 4
    median = f"{train.ratios.median:.2f}"
    names = [
        f"{low:.2f} to {high:.2f}"
        for low, high in zip(ratios.starts, ratios.starts[1:], strict=False)
    ]
    names = [f"less than {ratios.starts[1]:.2f}", *names[1:], f"{ratios.starts[-1]:.2f} or more"]
    description = (
        f"Of train, half of the pairs have a ratio of at most {median}, 95 % at "
        f"most {train.ratios.p95:.2f}, 99 % at most {train.ratios.p99:.2f}."
    )
    chart = histogram(
        "ratio",
        f"Target length / source length ({ratio_name(train)})",
        description,
        bars=_shares(ratios),
        bar_names=_bar_names(names, ratios, "pairs"),
        lines=[(split.name, _shares(split.ratio_histogram)) for split in held_out],
        ticks=[Mark(n_bins / 2 + octaves * per_octave, name) for name, octaves in RATIO_TICKS],
        marks=[
            Mark(n_bins / 2 + log2(train.ratios.median) * per_octave, f"median {median}"),
        ],
    )
    name = text(ratio_name(train))
    return _figure("both", f"<b>{name}</b> ratio of lengths, share of pairs", chart)


def _vocabulary(inspection: Inspection) -> str:
    vocabulary = inspection.vocabulary
    most, rarest = (_words(each, "und") for each in (vocabulary.most_frequent, vocabulary.rarest))
    splitting = "".join(
        f'<div class="{css}">{_splitting(side)}</div>'
        for css, side in zip(("src", "tgt"), inspection.splitting, strict=True)
    )
    return (
        f"{_table(vocabulary_grid(inspection))}"
        f'<div class="two"><div><h3>Most frequent subwords of train</h3>{most}</div>'
        f"<div><h3>Rarest that occur in train</h3>{rarest}</div></div>\n"
        f"{_table(splitting_grid(inspection))}"
        f'<div class="two">{splitting}</div>\n'
    )


def _splitting(side: Splitting) -> str:
    lang = text(side.lang)
    split = "".join(
        f"<li><small>{word.n_pieces}</small> <span>{_pieces(word.pieces, side.lang)}"
        f"{_more(word.n_pieces - len(word.pieces))}</span></li>"
        for word in side.most_split
    )
    return (
        f"<h3>{lang}: frequent words kept whole</h3>{_words(side.whole, side.lang)}"
        f"<h3>{lang}: words split into the most pieces</h3>"
        f'<ul class="split">{split}</ul>'
    )


def _unknown(inspection: Inspection) -> str:
    words = "".join(
        f"<h3>{text(split)}, {text(side.lang)}: words that hold one</h3>"
        f"{_words(side.unknown_words, side.lang)}"
        for split, side in held_out_sides(inspection)
        if side.unknown_words
    )
    return f"{_table(unknown_grid(inspection))}{words}"


def _samples(inspection: Inspection) -> str:
    by_corpus = _grouped(inspection.samples, lambda pair: pair.corpus)
    return "".join(
        f"<h3>{text(corpus)}</h3>\n"
        + "".join(
            _sample(pair, inspection.normalizing, is_open=number == 0)
            for number, pair in enumerate(pairs)
        )
        for corpus, pairs in by_corpus.items()
    )


def _sample(pair: SamplePair, normalizing: str, *, is_open: bool) -> str:
    sides = "".join(
        f'<dl class="steps {css}" aria-label="{text(steps.lang)}">{_steps(steps, normalizing)}</dl>'
        for css, steps in (("src", pair.src), ("tgt", pair.tgt))
    )
    return (
        f"<details{' open' if is_open else ''}><summary>"
        f"{_of_corpus('span', pair.src.raw, pair.src.lang, 'line')}"
        f'<span class="place">line {pair.line:,}</span></summary>\n'
        f"{sides}</details>\n"
    )


def _steps(steps: Steps, normalizing: str) -> str:
    not_shown = ""
    if steps.n_left_out:
        not_shown = f' <span class="note">and {steps.n_left_out:,} more characters</span>'
    more = _more(steps.n_ids - len(steps.ids))
    rows = [(f"{steps.lang}, raw", _of_corpus("span", steps.raw, steps.lang) + not_shown)]
    if normalizing:
        rows.append((normalizing, _of_corpus("span", steps.normalized, steps.lang)))
    rows += [
        ("tokens", _of_corpus("span", steps.tokens, steps.lang)),
        ("subwords", _pieces(steps.pieces, steps.lang) + more),
        (
            f"{steps.n_ids:,} ids",
            f'<span class="mono ids">{" ".join(map(str, steps.ids))}{more}</span>',
        ),
    ]
    return "".join(f"<dt>{text(name)}</dt><dd>{value}</dd>" for name, value in rows)


def _dropped(inspection: Inspection) -> str:
    if not inspection.dropped:
        return "<p>Cleaning dropped no pair.</p>"
    src, tgt = (side.lang for side in inspection.splits[0].sides)

    def pair(one: DroppedPair) -> str:
        return (
            f'<p class="place">{text(one.corpus)}, line {one.line:,}</p><div class="two pair">'
            f"{_of_corpus('p', one.src, src, 'src')}{_of_corpus('p', one.tgt, tgt, 'tgt')}</div>\n"
        )

    by_reason = _grouped(inspection.dropped, lambda pair: pair.reason)
    return "".join(
        f'<h3 class="capital">{text(spoken(reason))}</h3>\n{"".join(map(pair, pairs))}'
        for reason, pairs in by_reason.items()
    )


def _grouped(entries: Iterable[Entry], key: Callable[[Entry], str]) -> dict[str, list[Entry]]:
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(key(entry), []).append(entry)
    return groups


# Tables


def _table(grid: Grid) -> str:
    head = "".join(
        f'<th scope="col"{_numeric(number >= grid.n_labels)}>{text(name)}</th>'
        if name
        else "<td></td>"
        for number, name in enumerate(grid.columns)
    )
    is_grouped = any(len(group) > 1 for group in grid.groups)
    if is_grouped:
        bodies = "".join(
            f"<tbody>{_row_group(text(rows[0][0]), [_cells(grid, row) for row in rows])}</tbody>"
            for rows in grid.groups
        )
    else:
        lines = "".join(
            f'<tr><th scope="row">{text(row[0])}</th>{_cells(grid, row)}</tr>'
            for rows in grid.groups
            for row in rows
        )
        bodies = f"<tbody>{lines}</tbody>"
    return _scroll(grid.title, f"<thead><tr>{head}</tr></thead>{bodies}")


def _cells(grid: Grid, row: Sequence[str]) -> str:
    """The cells of a row after its first one."""
    return "".join(
        f'<th scope="row">{text(cell)}</th>'
        if number < grid.n_labels
        else f"<td{_numeric(True)}>{text(cell)}</td>"
        for number, cell in enumerate(row)
        if number > 0
    )


def _row_group(head: str, rows: Sequence[str]) -> str:
    label = f'<th scope="rowgroup" rowspan="{len(rows)}">{head}</th>'
    return "".join(f"<tr>{label if i == 0 else ''}{row}</tr>" for i, row in enumerate(rows))


def _scroll(title: str, table: str) -> str:
    """A table in a box of its own, which a keyboard can scroll."""
    return (
        f'<div class="scroll" role="region" aria-label="{text(title)}" tabindex="0">'
        f"<table><caption>{text(title)}</caption>{table}</table></div>\n"
    )


def _numeric(is_number: bool) -> str:
    return ' class="n"' if is_number else ""


# Charts


def _figure(css: str, caption: str, chart: str) -> str:
    return f'<figure class="{css}"><figcaption>{caption}</figcaption>{chart}</figure>'


def _shares(one: Histogram) -> list[float]:
    return [count / max(1, sum(one.counts)) for count in one.counts]


def _bar_names(names: Iterable[str], one: Histogram, what: str) -> list[str]:
    total = sum(one.counts)
    return [
        f"{name}: {count:,} {what}, {share(count, total)}"
        for name, count in zip(names, one.counts, strict=True)
    ]


def _span(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _ticks(last: int) -> range:
    """Few round values up to `last`."""
    steps = (digit * 10**power for power in range(9) for digit in (1, 2, 5))
    every = next(step for step in steps if last // step <= MAX_TICKS)
    return range(every, last + 1, every)


# Text


def text(value: str) -> str:
    """Text as HTML shows it, whatever it holds, between tags or in double quotes."""
    return escape(visible(value))


def _of_corpus(tag: str, value: str, lang: str, css: str = "") -> str:
    """Text of a language, whose direction is its own."""
    kind = f' class="{css}"' if css else ""
    return f'<{tag}{kind} lang="{text(lang)}" dir="auto">{text(value)}</{tag}>'


def _pieces(pieces: Iterable[str], lang: str) -> str:
    shown = " ".join(_piece(piece) for piece in pieces)
    return f'<span class="mono" lang="{text(lang)}" dir="auto">{shown}</span>'


def _piece(piece: str) -> str:
    """A piece with its mark set back."""
    mark = JOINING.search(piece)
    if mark is None:
        return text(piece)
    before, after = piece[: mark.start()], piece[mark.end() :]
    return f"<span>{text(before)}<i>{mark.group()}</i>{text(after)}</span>"


def _words(words: Sequence[Counted], lang: str) -> str:
    items = "".join(
        f"<li>{_pieces([word.text], lang)} <small>{word.count:,}</small></li>" for word in words
    )
    return f'<ul class="words">{items}</ul>' if items else "<p>There is none.</p>"


def _more(n: int) -> str:
    return f' <span class="note">... {n:,} more</span>' if n else ""


def _mean(split: Split, number: int) -> str:
    return f"{split.sides[number].n_tokens / split.n_pairs:.1f}"


def _millions(n: int) -> str:
    return f"{n / 1e6:,.1f} M" if n >= 1e7 else f"{n:,}"


def _key(title: str) -> str:
    return title.lower().replace(" ", "-")
