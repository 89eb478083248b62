"""nmtkit translate."""

import gc
from pathlib import Path
from typing import Annotated

import typer

from nmtkit.cli import options
from nmtkit.config.settings import RUNS, EngineName, EnginePrecision, Settings
from nmtkit.decoding.formats import DETAILED, OF_THE_BEST, Format
from nmtkit.sources.archives import is_compressed
from nmtkit.stages.pipeline import Pipeline, warn_of_other_code
from nmtkit.store.artifacts import open_directory
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError

PRECISION = options.option(
    "TYPE", "Precision of the engine: float32, the default, bfloat16, float16 or int8."
)


@options.command("nmtkit translate demo", "mirror", "device", force=["translate"])
def _of_recipe(pipeline: Pipeline) -> None:
    from nmtkit.stages import translate as stage

    options.print_path(stage.run(pipeline).path)


@options.command("nmtkit translate --recipe demo -i text.en -o text.de", "device")
def _of_text(
    settings: Settings,
    bundles: options.Bundles = [],  # noqa: B006
    average_of: Annotated[
        str | None,
        typer.Option(
            "--recipe",
            metavar="RECIPE",
            autocompletion=options.recipe_names,
            help="In place of --bundle: the recipe whose average made the bundle.",
        ),
    ] = None,
    overrides: options.Overrides = None,
    source: options.Input = None,
    target: options.Output = None,
    plain: options.Plain = False,
    beam: options.Beam = None,
    length_penalty: options.LengthPenalty = None,
    n_best: Annotated[
        int | None, options.option("N", "Write the N best translations.", "--n-best", least=1)
    ] = None,
    how: options.LineFormat = None,
    align: options.Alignment = False,
    engine: options.Engine = None,
    dtype: Annotated[EnginePrecision | None, PRECISION] = None,
    no_split: Annotated[
        bool,
        options.flag("Translate a line as it is; do not split it into sentences.", "--no-split"),
    ] = False,
) -> None:
    how = how or ("text" if n_best is None else "moses")
    if how in OF_THE_BEST and n_best is not None:
        raise UserError(
            f"--format {how} has one translation a line; with --n-best, use moses, json or fairseq"
        )
    if target and is_compressed(target.name):
        raise UserError(
            f"--output {target} would not be compressed; name it without {target.suffix}, and "
            "compress it afterwards"
        )
    options.check_file("--output", target)
    inputs = [source or Path("/dev/stdin")]
    align |= how == "pharaoh"
    engine = engine_for(how, engine, align=align)
    if average_of is not None:
        if bundles:
            raise UserError("--recipe and --bundle both name a model; leave one of them out")
        pipeline = options.load_pipeline(average_of, overrides, settings)
        inputs += options.pipeline_inputs(pipeline)
        bundles = [pipeline.need("average").path]
    elif overrides or settings.runs_dir != RUNS:
        raise UserError("--set and --runs-dir are of a recipe; leave them out with --bundle")
    options.check_output("--output", target, inputs)
    gc.disable()  # to import and to load is faster without it
    from nmtkit.decoding import text_files as text  # imports what reads text
    from nmtkit.translator import Translator

    translator = Translator(
        *bundles,
        device=settings.device,
        engine=engine,
        dtype=dtype or EnginePrecision.AUTO,
        beam_size=beam,
        length_penalty=length_penalty,
        split_sentences=not no_split,
    )
    gc.freeze()
    gc.enable()
    warn_of_other_code(open_directory(bundle) for bundle in bundles)
    if (n_best or 1) > translator.decoding.beam_size:
        raise UserError(
            f"--n-best {n_best:,} is more than the beam of {translator.decoding.beam_size:,}; add "
            f"--beam {n_best}"
        )
    text.translate(translator, text.Output(how, n_best or 1, align), source, target, plain=plain)


translate = options.either(
    _of_recipe,
    _of_text,
    "[RECIPE]",
    "Translate this recipe's test sets, in place of a text with --recipe or --bundle.",
    is_recipe=lambda names, given: bool(names) or not (given["bundles"] or given["average_of"]),
)


def engine_for(how: Format, engine: EngineName | None, *, align: bool) -> EngineName:
    """Return the engine that was named; auto is torch where words are to be linked."""
    if align and how not in DETAILED:
        raise UserError(f"--format {how} has no alignment; use --format json or fairseq")
    if not align or engine not in (None, EngineName.AUTO):
        return engine or EngineName.AUTO
    progress.log("engine: torch, since CTranslate2 links no words")
    return EngineName.TORCH
