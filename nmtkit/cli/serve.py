"""nmtkit serve."""

from typing import Annotated

import typer

from nmtkit.cli import options as opt
from nmtkit.cli.inputs import find_bundles
from nmtkit.config.settings import RUNS, EnginePrecision, Settings
from nmtkit.utils import progress


def serve(
    # The model
    bundles: opt.Bundles = [],  # noqa: B006 - typer copies it
    recipe: opt.BundleRecipe = None,
    overrides: opt.Overrides = None,
    runs_dir: opt.RunsDir = RUNS,
    # The server
    host: Annotated[
        str,
        typer.Option(
            metavar="HOST",
            help="Address to listen on; 127.0.0.1 is reachable from this machine only.",
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            metavar="PORT", help="Port to listen on; 0 for a free one.", min=0, max=65_535
        ),
    ] = 5_000,
    max_characters: Annotated[
        int,
        typer.Option(metavar="N", help="Maximum number of characters of a request.", min=1),
    ] = 10_000,
    # Engine
    device: opt.Device = "auto",
    engine: opt.Engine = None,
    dtype: opt.EngineDtype = None,
) -> None:
    """Translate in a browser, or for clients of LibreTranslate.

    Example: nmtkit serve --recipe demo
    """
    settings = Settings(runs_dir, device=device)
    settings.check()
    folders = find_bundles(bundles, recipe, overrides, settings)
    from nmtkit.config.settings import EngineName
    from nmtkit.serve.server import Server, is_loopback
    from nmtkit.store.artifacts import open_directory
    from nmtkit.store.code_version import warn_of_other_code
    from nmtkit.translator import Translator

    translator = Translator(
        *folders,
        device=device,
        engine=engine or EngineName.AUTO,
        dtype=dtype or EnginePrecision.AUTO,
    )
    warn_of_other_code(open_directory(folder) for folder in folders)
    server = Server(translator, host, port, max_characters)
    if not is_loopback(host):
        progress.warn(
            f"serve: anyone who can connect to {host}, port {server.server_address[1]} can use the "
            "model: there is no authentication or encryption",
            even_if_quiet=True,
        )
    server.serve_until_stopped()
