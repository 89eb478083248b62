"""nmtkit inspect."""

from nmtkit.cli import options as opt
from nmtkit.cli.inputs import check_output, load_pipeline, pipeline_inputs
from nmtkit.config.settings import RUNS, Settings
from nmtkit.rendering.grid import Grid
from nmtkit.rendering.show import Form, refuse_csv, show
from nmtkit.utils import progress


def inspect(
    recipe: opt.RecipeName,
    overrides: opt.Overrides = None,
    html: opt.Html = None,
    runs_dir: opt.RunsDir = RUNS,
    as_json: opt.Json = False,
    table: opt.Table = None,
) -> None:
    """Show lengths, vocabulary and samples of a corpus.

    Example: nmtkit inspect demo --html corpus.html
    """
    form = Form(as_json, table)
    refuse_csv(form)
    # Imported here, as they take long.
    from nmtkit.analysis.corpus import corpus_statistics
    from nmtkit.analysis.corpus_page import corpus_grids, corpus_notes, corpus_page
    from nmtkit.corpus.prepared import PreparedCorpus
    from nmtkit.rendering.document import render_page, replace_page
    from nmtkit.store.artifacts import verify

    pipeline = load_pipeline(recipe, overrides, Settings(runs_dir))
    check_output("--html", html, pipeline_inputs(pipeline))
    prepared = PreparedCorpus(verify(pipeline.need("prepare")))
    statistics = corpus_statistics(pipeline.recipe, prepared)
    if html is not None:
        replace_page(html, render_page(corpus_page(statistics)))
        progress.log(f"inspect: wrote {html}")
    parts: list[Grid | str] = [f"nmtkit inspect {statistics['recipe']}: {statistics['path']}"]
    parts += statistics["first_pairs"]
    parts += corpus_notes(statistics)
    parts += corpus_grids(statistics)
    show(form, statistics, parts)
