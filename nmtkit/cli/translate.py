"""nmtkit translate."""

import gc
from pathlib import Path
from typing import Annotated, Literal

import typer

from nmtkit.cli import options as opt
from nmtkit.cli.inputs import (
    check_file,
    check_output,
    check_unused,
    file_or_stream,
    find_bundles,
    load_pipeline,
    pipeline_inputs,
    recipe_names,
)
from nmtkit.config.settings import RUNS, EnginePrecision, Settings
from nmtkit.decoding.engine import MAX_TEMPERATURE, MIN_TEMPERATURE, Sampling
from nmtkit.decoding.output_formats import SINGLE, Format, engine_for_format
from nmtkit.rendering.show import print_path
from nmtkit.store.artifacts import open_directory
from nmtkit.store.code_version import warn_of_other_code
from nmtkit.utils.errors import UserError

RECIPE_FORM = "nmtkit translate RECIPE"
TEXT_FORM = "nmtkit translate --recipe RECIPE -i FILE"
BUNDLE_FORM = "nmtkit translate --bundle DIR"
BEAM_FORM = "nmtkit translate"
SAMPLE_FORM = "nmtkit translate --sample"


def translate(
    recipe: Annotated[
        str | None,
        typer.Argument(
            metavar="[RECIPE]",
            help="Translate the test sets of this recipe. To translate a text instead, use "
            "--bundle or --recipe.",
            autocompletion=recipe_names,
            show_default=False,
        ),
    ] = None,
    # The model, for a text
    bundles: opt.Bundles = [],  # noqa: B006 - typer copies it
    bundle_recipe: opt.BundleRecipe = None,
    overrides: opt.Overrides = None,
    # The text and its translation
    source: opt.Input = None,
    target: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            parser=file_or_stream,
            help="Output file, or - for standard output (default).",
        ),
    ] = None,
    plain: opt.Plain = False,
    # Search
    beam: Annotated[
        int | None,
        typer.Option(
            "--beam", metavar="N", help="Beam size (default: the bundle's).", min=1, max=1_024
        ),
    ] = None,
    length_penalty: Annotated[
        float | None,
        typer.Option(
            metavar="ALPHA",
            help="Length penalty alpha (default: the bundle's); 0 for none.",
            min=0.0,
            max=10.0,
        ),
    ] = None,
    length_penalty_formula: Annotated[
        Literal["gnmt", "fairseq"] | None,
        typer.Option(
            "--penalty-formula",
            metavar="FORMULA",
            help="Divisor of log-probabilities: ((5 + length) / 6)^ALPHA for gnmt, length^ALPHA "
            "for fairseq (default: the bundle's).",
        ),
    ] = None,
    sample: Annotated[
        bool,
        typer.Option(
            "--sample",
            help="Draw translations at random, by the model's probabilities, without a beam.",
        ),
    ] = False,
    top_k: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="With --sample: draw from the N most probable tokens.", min=1
        ),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            metavar="T",
            help="With --sample: divisor of the logits (default: 1).",
            min=MIN_TEMPERATURE,
            max=MAX_TEMPERATURE,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="With --sample: another seed gives other translations (default: 1). With "
            "--engine torch, the same seed gives the same.",
            min=0,
            max=2**31 - 1,
        ),
    ] = None,
    n_best: Annotated[
        int | None,
        typer.Option("--n-best", metavar="N", help="Write the N best translations.", min=1),
    ] = None,
    # Output
    output_format: Annotated[
        Format | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="Output format: text, moses, json, fairseq or pharaoh.",
        ),
    ] = None,
    align: opt.Alignment = False,
    # Engine
    engine: opt.Engine = None,
    dtype: opt.EngineDtype = None,
    no_split: Annotated[
        bool,
        typer.Option("--no-split", help="Do not split lines into sentences."),
    ] = False,
    # Settings of the machine
    runs_dir: opt.RunsDir = RUNS,
    mirror: opt.Mirror = None,
    device: opt.Device = "auto",
    force: opt.Force = False,
) -> None:
    """Translate the test sets of a recipe, or any text.

    Example: nmtkit translate --recipe demo -i text.en -o text.de
    """
    # The test sets of a recipe
    if recipe is not None:
        text_options = {
            "--bundle": bundles,
            "--recipe": bundle_recipe,
            "--input": source,
            "--output": target,
            "--plain": plain,
            "--beam": beam,
            "--length-penalty": length_penalty,
            "--penalty-formula": length_penalty_formula,
            "--sample": sample,
            "--top-k": top_k,
            "--temperature": temperature,
            "--seed": seed,
            "--n-best": n_best,
            "--format": output_format,
            "--alignment": align,
            "--engine": engine,
            "--dtype": dtype,
            "--no-split": no_split,
        }
        check_unused(text_options, RECIPE_FORM, TEXT_FORM)
        settings = Settings(runs_dir, mirror=mirror, device=device)
        # Imports pydantic; a line of text need not wait for it.
        from nmtkit.config.loading import NoFileError

        try:
            pipeline = load_pipeline(recipe, overrides, settings, ["translate"] if force else [])
        except NoFileError:
            if Path(recipe).is_file():
                raise UserError(
                    f"{recipe} is not a recipe; to translate this text, pass --recipe RECIPE -i "
                    f"{recipe}"
                ) from None
            raise
        from nmtkit.stages import translate as stage  # imports the readers of text

        print_path(stage.run(pipeline).path)
        return

    # A text
    if not bundles and bundle_recipe is None:
        raise UserError(
            f"the recipe is missing, as in `{RECIPE_FORM}`; to translate a text, pass --bundle "
            "DIR or --recipe RECIPE"
        )
    form = BUNDLE_FORM if bundles else TEXT_FORM
    check_unused({"--mirror": mirror, "--force": force}, form, RECIPE_FORM)
    if sample:
        check_unused({"--beam": beam, "--n-best": n_best}, SAMPLE_FORM, BEAM_FORM)
    else:
        values = {"--top-k": top_k, "--temperature": temperature, "--seed": seed}
        check_unused(values, BEAM_FORM, SAMPLE_FORM)
    output_format = _choose_format(output_format, n_best)
    _check_target(target)
    align = align or output_format == "pharaoh"
    engine = engine_for_format(output_format, engine, align=align)
    settings = Settings(runs_dir, device=device)
    settings.check()
    # No output may replace what is read: the text, or a file of the recipe.
    inputs = [source or Path("/dev/stdin")]
    bundles = find_bundles(bundles, bundle_recipe, overrides, settings)
    if bundle_recipe is not None:
        inputs += pipeline_inputs(load_pipeline(bundle_recipe, overrides, settings))
    check_output("--output", target, inputs)

    # Imports and models are faster to load without the garbage collector.
    gc.disable()
    from nmtkit.decoding import text_files  # imports the readers of text
    from nmtkit.translator import Translator

    sampling = None
    if sample:
        sampling = Sampling(
            seed=1 if seed is None else seed,
            temperature=1.0 if temperature is None else temperature,
            top_k=top_k,
        )
    translator = Translator(
        *bundles,
        device=device,
        engine=engine,
        dtype=dtype or EnginePrecision.AUTO,
        beam_size=beam,
        length_penalty=length_penalty,
        length_penalty_formula=length_penalty_formula,
        split_sentences=not no_split,
        sampling=sampling,
    )
    gc.freeze()
    gc.enable()
    warn_of_other_code(open_directory(bundle) for bundle in bundles)
    # The search finds no more translations than the beam holds.
    beam_size = translator.decoding.beam_size
    if n_best is not None and n_best > beam_size:
        raise UserError(
            f"--n-best {n_best:,} is more than the beam size {beam_size:,}; pass --beam {n_best}"
        )
    output = text_files.Output(output_format, n_best or 1, align)
    text_files.translate(translator, output, source, target, plain=plain)


def _choose_format(output_format: Format | None, n_best: int | None) -> Format:
    """Return the output format, whose default depends on --n-best."""
    if output_format is None:
        return "text" if n_best is None else "moses"
    if n_best is not None and output_format in SINGLE:
        raise UserError(
            f"--format {output_format} writes one translation per line; with --n-best, pass "
            "--format moses, json or fairseq"
        )
    return output_format


def _check_target(target: Path | None) -> None:
    """Refuse an output that cannot be written, or whose name promises compressed text."""
    if target is None:
        return
    from nmtkit.sources.text_file import is_compressed  # imports all decompressors

    if is_compressed(target.name):
        raise UserError(
            f"--output {target} would not be compressed; omit {target.suffix}, and compress the "
            "file afterwards"
        )
    check_file("--output", target)
