"""nmtkit translate."""

import gc
from typing import Annotated

import typer

from nmtkit import progress
from nmtkit.cli.options import (
    DTYPE,
    Alignment,
    Beam,
    Bundles,
    Device,
    Engine,
    Input,
    LengthPenalty,
    LineFormat,
    Output,
    check_file,
    command,
    either,
    saying,
    tell,
)
from nmtkit.decoding.formats import DETAILED, Format
from nmtkit.errors import UserError
from nmtkit.machine import EngineName, EnginePrecision
from nmtkit.sources.archives import is_compressed
from nmtkit.stages.chain import Chain


@command("nmtkit translate demo", "mirror", "device", remake=["translate"])
def _of_recipe(chain: Chain) -> None:
    from nmtkit.stages import translate as stage

    tell(stage.run(chain).path)


@command("nmtkit translate --bundle DIR -i text.en -o text.de")
def _of_text(
    bundles: Bundles = [],  # noqa: B006
    source: Input = None,
    target: Output = None,
    beam: Beam = None,
    length_penalty: LengthPenalty = None,
    n_best: Annotated[
        int | None,
        typer.Option("--n-best", metavar="N", min=1, help="Write the N best translations."),
    ] = None,
    how: LineFormat = None,
    align: Alignment = False,
    device: Device = "auto",
    engine: Engine = None,
    dtype: Annotated[
        EnginePrecision | None,
        saying(DTYPE, "Precision of the engine: float32, the default, bfloat16, float16 or int8."),
    ] = None,
) -> None:
    how = how or ("text" if n_best is None else "moses")
    if how == "text" and n_best is not None:
        raise UserError(
            "--format text has one translation a line; with --n-best, use moses, json or fairseq"
        )
    if source and target and target.exists() and source.exists() and source.samefile(target):
        raise UserError(f"--input and --output are both {target}; name another --output")
    if target and is_compressed(target.name):
        raise UserError(
            f"--output {target} would not be compressed; name it without {target.suffix}, and "
            "compress it afterwards"
        )
    check_file("--output", target)
    engine = engine_for(how, engine, align=align)
    gc.disable()  # to import and to load is faster without it
    from nmtkit.cli import text  # imports what reads text
    from nmtkit.translator import Translator

    translator = Translator(
        *bundles,
        device=device,
        engine=engine,
        dtype=dtype or EnginePrecision.AUTO,
        beam_size=beam,
        length_penalty=length_penalty,
    )
    gc.freeze()
    gc.enable()
    if (n_best or 1) > translator.decoding.beam_size:
        raise UserError(
            f"--n-best {n_best:,} is more than the beam of {translator.decoding.beam_size:,}; add "
            f"--beam {n_best}"
        )
    text.translate(translator, text.Output(how, n_best or 1, align), source, target)


translate = either(
    _of_recipe,
    _of_text,
    "[RECIPE]",
    "Translate this recipe's test sets, in place of a text with --bundle.",
    is_recipe=lambda names, given: bool(names) or not given["bundles"],
)


def engine_for(how: Format, engine: EngineName | None, *, align: bool) -> EngineName:
    """Return the engine that was named; auto is torch where words are to be linked."""
    if align and how not in DETAILED:
        raise UserError(f"--format {how} has no alignment; use --format json or fairseq")
    if not align or engine not in (None, EngineName.AUTO):
        return engine or EngineName.AUTO
    progress.say("engine: torch, since CTranslate2 links no words")
    return EngineName.TORCH
