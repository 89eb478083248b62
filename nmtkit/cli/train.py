"""nmtkit train."""

from nmtkit.cli import options as opt
from nmtkit.cli.inputs import load_pipeline
from nmtkit.config.settings import RUNS, Settings
from nmtkit.rendering.show import print_path


def train(
    recipe: opt.RecipeName,
    overrides: opt.Overrides = None,
    # Settings of the machine
    runs_dir: opt.RunsDir = RUNS,
    device: opt.Device = "auto",
    max_tokens: opt.MaxTokens = None,
    processes: opt.Processes = 1,
    dtype: opt.Dtype = "auto",
    accelerate: opt.AccelerateOption = "auto",
    deterministic: opt.Deterministic = False,
    tensorboard: opt.TensorBoard = None,
    force: opt.Force = False,
) -> None:
    """Train on the prepared corpus, or resume an interrupted run.

    Example: nmtkit train demo
    """
    settings = Settings(
        runs_dir,
        device=device,
        max_tokens=max_tokens,
        processes=processes,
        dtype=dtype,
        accelerate=accelerate,
        deterministic=deterministic,
        tensorboard=tensorboard,
    )
    pipeline = load_pipeline(recipe, overrides, settings, ["train"] if force else [])
    # Imports torch, after mistakes in the recipe were reported.
    from nmtkit.stages import train as stage
    from nmtkit.training.distributed import is_worker

    # With several processes, the one that the user started prints the path.
    artifact = stage.run(pipeline)
    if not is_worker():
        print_path(artifact.path)
