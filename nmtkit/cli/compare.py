"""nmtkit compare."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from nmtkit.cli import options as opt
from nmtkit.cli.inputs import check_output, load_pipeline, pipeline_inputs
from nmtkit.config.settings import RUNS, Settings
from nmtkit.rendering.show import Form, show
from nmtkit.utils import progress


def compare(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="SYSTEM...",
            help="The baseline, then other systems: recipes, 'RECIPE --set SECTION.KEY=VALUE', or "
            "files of plain text.",
            show_default=False,
        ),
    ],
    # The test set, unless it is that of the recipes
    test_set: opt.TestSet = None,
    references: opt.References = None,
    lang: opt.Lang = None,
    src: Annotated[
        Path | None,
        typer.Option("--src", metavar="FILE", help="Source text, one sentence per line."),
    ] = None,
    plain: opt.Plain = False,
    html: opt.Html = None,
    runs_dir: opt.RunsDir = RUNS,
    mirror: opt.Mirror = None,
    # Output
    all_kinds: opt.AllKinds = False,
    as_json: opt.Json = False,
    table: opt.Table = None,
) -> None:
    """Compare systems: scores, significance, differences.

    Example: nmtkit compare demo 'demo --set decoding.beam_size=1'
    """
    from nmtkit.analysis.comparison import compare_systems
    from nmtkit.analysis.comparison_page import comparison_page, comparison_parts, scores_grid
    from nmtkit.rendering.document import render_page, replace_page

    # The comparison takes minutes, so a page that would replace a text is refused before it.
    settings = Settings(runs_dir, mirror=mirror)
    references = references or []
    if html is not None:
        inputs = list(references)
        if src is not None:
            inputs.append(src)
        inputs += _system_inputs(names, settings)
        check_output("--html", html, inputs)
    comparison = compare_systems(
        names,
        settings,
        test_set=test_set,
        references=references,
        lang=lang,
        src=src,
        plain=plain,
    )
    all_kinds = all_kinds or comparison["paper_bleu"]
    if html is not None:
        replace_page(html, render_page(comparison_page(comparison, all_kinds=all_kinds)))
        progress.log(f"compare: wrote {html}")
    form = Form(as_json, table)
    parts = comparison_parts(comparison, all_kinds=all_kinds)
    if form.table == "csv":  # one table
        parts = [scores_grid(comparison, all_kinds=all_kinds)]
    show(form, comparison, parts)


def _system_inputs(names: Sequence[str], settings: Settings) -> list[Path]:
    """Return the files and folders that the systems are read from."""
    from nmtkit.analysis.comparison import is_text_file
    from nmtkit.store.provenance import split_overrides

    inputs = [settings.downloads_dir]
    if settings.mirror is not None:
        inputs.append(settings.mirror)
    for name in names:
        if is_text_file(name):
            inputs.append(Path(name))
        else:
            recipe, overrides = split_overrides(name)
            inputs += pipeline_inputs(load_pipeline(recipe, overrides, settings))
    return inputs
