"""nmtkit attention."""

import os
from pathlib import Path
from typing import Annotated

import typer

from nmtkit.analysis.attention import VIEW_FORMAT, compute_attention, parse_view
from nmtkit.analysis.attention_page import AttentionDrawing, attention_page, findings_grid
from nmtkit.cli import options as opt
from nmtkit.cli.inputs import check_output, check_page, find_bundle
from nmtkit.config.settings import RUNS, EngineName, Settings
from nmtkit.rendering.document import replace_page
from nmtkit.rendering.show import Form, show
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import quote


def _check_utf8(text: str | None) -> str | None:
    """Refuse an argument with bytes that are not UTF-8 (to Python, surrogates)."""
    if text is not None:
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise UserError(
                f"{quote(text)} is not valid UTF-8; set the terminal to UTF-8"
            ) from None
    return text


def attention(
    sentence: Annotated[
        str,
        typer.Argument(metavar="SENTENCE", help="The source sentence.", callback=_check_utf8),
    ],
    translation: Annotated[
        str | None,
        typer.Argument(
            metavar="[TRANSLATION]",
            help="Its translation (default: the bundle's own).",
            callback=_check_utf8,
        ),
    ] = None,
    *,
    # The model
    bundles: opt.SingleBundle = [],  # noqa: B006 - typer copies it
    recipe: opt.BundleRecipe = None,
    overrides: opt.Overrides = None,
    runs_dir: opt.RunsDir = RUNS,
    # Pictures
    html: opt.Html = None,
    svg: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write an SVG picture.", callback=check_page),
    ] = None,
    view: Annotated[
        str | None,
        typer.Option(
            metavar=VIEW_FORMAT,
            help="View that --svg draws, such as encoder.5 or cross.2.3 (default: the alignment).",
        ),
    ] = None,
    subwords: Annotated[
        bool,
        typer.Option("--subwords", help="Show the subwords of the model instead of whole words."),
    ] = False,
    device: opt.Device = "auto",
    # Output
    as_json: opt.Json = False,
    table: opt.Table = None,
) -> None:
    """Draw the attention of a bundle, as in Figures 3 to 5.

    Example: nmtkit attention 'It is late.' --recipe demo --html page.html
    """
    if view and svg is None:
        raise UserError("--view selects what --svg draws; pass --svg FILE, or omit --view")
    # Loading the model takes seconds, so mistakes are reported first.
    check_output("--html", html)
    check_output("--svg", svg)
    if html is not None and svg is not None and os.path.realpath(html) == os.path.realpath(svg):
        raise UserError(f"--html and --svg are both {html}; pass two different files")
    bundle = find_bundle(bundles, recipe, overrides, Settings(runs_dir, device=device))
    from nmtkit.store.artifacts import open_directory
    from nmtkit.store.code_version import warn_of_other_code
    from nmtkit.translator import Translator  # imports the readers of text

    # CTranslate2 does not return the weights of all heads.
    translator = Translator(bundle, device=device, engine=EngineName.TORCH, split_sentences=False)
    warn_of_other_code([open_directory(bundle)])
    result = compute_attention(translator, bundle, sentence, translation, subwords=subwords)
    if svg is not None:
        drawn_view = parse_view(result, view) if view else result.alignment
        replace_page(svg, AttentionDrawing(result, drawn_view).svg(is_file=True))
        progress.log(f"attention: drew {result.title(drawn_view)} in {svg}")
    if html is not None:
        replace_page(html, attention_page(result))
        progress.log(f"attention: wrote {html}")
    show(Form(as_json, table), result, [findings_grid(result)])
