"""nmtkit force: how a bundle rates given translations (forced decoding)."""

from pathlib import Path
from typing import Annotated

from nmtkit.cli.options import (
    Alignment,
    Bundles,
    Device,
    Engine,
    LineFormat,
    Plain,
    argument,
    command,
)
from nmtkit.cli.translate import engine_for
from nmtkit.utils.errors import UserError


@command("nmtkit force source.en translation.de --bundle DIR")
def force(
    src: Annotated[Path, argument("SRC", "The source, a file or a pipe.")],
    tgt: Annotated[Path, argument("TGT", "Its translation, line by line.")],
    bundles: Bundles,
    how: LineFormat = None,
    align: Alignment = False,
    plain: Plain = False,
    device: Device = "auto",
    engine: Engine = None,
) -> None:
    how = how or "text"
    if how == "moses":
        raise UserError("--format moses is for translations that are found; use another")
    align |= how == "pharaoh"
    engine = engine_for(how, engine, align=align)
    from nmtkit.decoding import text_files as text  # imports what reads text
    from nmtkit.stages.pipeline import warn_of_other_code
    from nmtkit.store.artifacts import open_directory
    from nmtkit.translator import Translator

    translator = Translator(*bundles, device=device, engine=engine)
    warn_of_other_code(open_directory(bundle) for bundle in bundles)
    for line in text.rated(translator, src, tgt, how, align=align, plain=plain):
        print(line)  # typer.echo would remove escape sequences of the text
