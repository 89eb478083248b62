"""nmtkit bench translate."""

from functools import partial
from itertools import filterfalse, islice, product
from pathlib import Path
from typing import Annotated

from nmtkit.cli.options import BEAM, ENGINE, Bundle, Device, Input, Plain, command, option
from nmtkit.config.loading import override_decoding
from nmtkit.config.settings import RUNS, EngineName, EnginePrecision, Settings
from nmtkit.decoding.bundle import open_bundle
from nmtkit.reporting.show import Form, show
from nmtkit.sources.kinds import read_plain
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import is_blank

STDIN = Path("/dev/stdin")
MOST_LINES = 500  # of the input
SPEED = {
    "engine": "{engine}",
    "precision": "{dtype}",
    "beam": "{beam_size:,}",
    "sentences/s": "{sentences_per_second:,.1f}",
    "tokens/s": "{tokens_per_second:,.0f}",
    "memory": "{memory}",
    "load, s": "{load_seconds:.2f}",
}


@command("nmtkit bench translate --bundle DIR -i FILE --beam 1 --beam 4")
def bench_translate(
    form: Form,
    bundle: Bundle,
    source: Input = None,
    plain: Plain = False,
    engine: Annotated[list[EngineName] | None, ENGINE] = None,
    dtype: Annotated[
        list[EnginePrecision] | None,
        option("TYPE", "Precision of the engine, such as int8; repeat it for several."),
    ] = None,
    beam: Annotated[list[int] | None, BEAM] = None,
    device: Device = "auto",
) -> None:
    text = read_plain(source or STDIN, is_plain=plain)
    lines = list(islice(filterfalse(is_blank, text), MOST_LINES))
    if not lines:
        raise UserError(f"{source or 'standard input'} has no lines to translate; name another one")
    own = open_bundle(bundle).decoding
    from nmtkit.benchmark.speed import apart, speed_grid, translation_speed

    on = Settings(RUNS, device=device)
    speeds = [
        apart(
            partial(translation_speed, folder=bundle, lines=lines, settings=on),
            how,
            if_killed=f"{how[0]} with beam {how[2].beam_size} was killed, perhaps for lack of "
            "memory; lower --beam",
        )
        for how in product(
            engine or [EngineName.AUTO],
            dtype or [EnginePrecision.FLOAT32],
            [override_decoding(own, size) for size in beam or [own.beam_size]],
        )
    ]
    title = f"translation of {len(lines):,} sentences"
    show(form, speeds, [speed_grid(title, speeds, SPEED)])
