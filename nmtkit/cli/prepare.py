"""nmtkit prepare."""

from nmtkit.cli import options as opt
from nmtkit.cli.inputs import load_pipeline
from nmtkit.config.settings import RUNS, Settings
from nmtkit.rendering.show import print_path


def prepare(
    recipe: opt.RecipeName,
    overrides: opt.Overrides = None,
    runs_dir: opt.RunsDir = RUNS,
    mirror: opt.Mirror = None,
    workers: opt.Workers = None,
    force: opt.Force = False,
) -> None:
    """Download, tokenize, clean and split into subwords.

    Example: nmtkit prepare demo
    """
    settings = Settings(runs_dir, mirror=mirror, workers=workers)
    pipeline = load_pipeline(recipe, overrides, settings, ["prepare"] if force else [])
    from nmtkit.stages import prepare as stage  # imports tokenizers

    print_path(stage.run(pipeline).path)
