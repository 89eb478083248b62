"""nmtkit bench translate."""

from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated

import typer

from nmtkit.cli import options as opt
from nmtkit.cli.inputs import find_bundle
from nmtkit.config.settings import RUNS, EngineName, EnginePrecision, Settings
from nmtkit.decoding.bundle import open_bundle
from nmtkit.rendering.show import Form, show
from nmtkit.sources.kinds import read_plain
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import is_blank

STDIN = Path("/dev/stdin")
MAX_LINES = 500  # of the input
COLUMNS = {
    "engine": "{engine}",
    "precision": "{dtype}",
    "beam": "{beam_size:,}",
    "sentences/s": "{sentences_per_second:,.1f}",
    "tokens/s": "{tokens_per_second:,.0f}",
    "memory": "{memory}",
    "load, s": "{load_seconds:.2f}",
}


def bench_translate(
    # The model
    bundles: opt.SingleBundle = [],  # noqa: B006 - typer copies it
    recipe: opt.BundleRecipe = None,
    overrides: opt.Overrides = None,
    runs_dir: opt.RunsDir = RUNS,
    # The text
    source: opt.Input = None,
    plain: opt.Plain = False,
    # What to measure: all combinations
    engine: Annotated[
        list[EngineName] | None,
        typer.Option(
            metavar="ENGINE",
            help="torch, ctranslate2 or auto (default); repeat the option for several.",
        ),
    ] = None,
    dtype: Annotated[
        list[EnginePrecision] | None,
        typer.Option(
            metavar="TYPE",
            help="Precision of the engine, such as int8; repeat the option for several.",
        ),
    ] = None,
    beam: Annotated[
        list[int] | None,
        typer.Option(
            "--beam",
            metavar="N",
            help="Beam size (default: the bundle's); repeat the option for several.",
            min=1,
            max=1_024,
        ),
    ] = None,
    device: opt.Device = "auto",
    # Output
    as_json: opt.Json = False,
    table: opt.Table = None,
) -> None:
    """Measure translation: sentences/s, tokens/s, memory.

    Example: nmtkit bench translate --recipe demo -i FILE --beam 1 --beam 4
    """
    settings = Settings(runs_dir, device=device)
    bundle = find_bundle(bundles, recipe, overrides, settings)
    lines: list[str] = []
    for line in read_plain(source or STDIN, is_plain=plain):
        # Blank lines are not translated, and would count as sentences.
        if not is_blank(line):
            lines.append(line)
        if len(lines) == MAX_LINES:
            break
    if not lines:
        raise UserError(
            f"{source or 'standard input'} has no lines to translate; pass a text with --input"
        )
    bundle_decoding = open_bundle(bundle).decoding
    from nmtkit.benchmark.speed import (  # imports torch
        TranslationSetting,
        measure_in_process,
        speed_grid,
        translation_speed,
    )

    measure = partial(translation_speed, folder=bundle, lines=lines, settings=settings)
    # Each setting runs in a process of its own, whose peak of memory is its own.
    engines = engine or [EngineName.AUTO]
    precisions = dtype or [EnginePrecision.FLOAT32]
    beam_sizes = beam or [bundle_decoding.beam_size]
    speeds = []
    for name, precision, size in product(engines, precisions, beam_sizes):
        setting = TranslationSetting(name, precision, bundle_decoding.with_values(size))
        if_killed = f"{name} with beam {size} was killed, possibly for lack of memory; lower --beam"
        speeds.append(measure_in_process(measure, setting, if_killed=if_killed))
    title = f"translation of {len(lines):,} sentences"
    show(Form(as_json, table), speeds, [speed_grid(title, speeds, COLUMNS)])
