"""The recipe or the model that a command works on, from the values of its options."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from nmtkit.cli.checks import check_output
from nmtkit.config.settings import RUNS, Settings
from nmtkit.utils.errors import UserError

if TYPE_CHECKING:
    from nmtkit.stages.pipeline import Pipeline


def recipe_names(beginning: str) -> list[str]:
    """Return the names of nmtkit's own recipes that begin with some letters, for the shell."""
    # Imports pydantic; `nmtkit --help` does not need it.
    from nmtkit.config.loading import bundled_recipes

    return [path.stem for path in bundled_recipes() if path.stem.startswith(beginning)]


def load_pipeline(
    recipe: str, overrides: Sequence[str] | None, settings: Settings, force: Sequence[str] = ()
) -> "Pipeline":
    """Load a recipe, and return the pipeline of its stages on this machine.

    Args:
        recipe: Name or path of the recipe.
        overrides: Values of --set.
        settings: Settings of the machine, to be checked.
        force: Stages whose artifacts are deleted and rebuilt.
    """
    from nmtkit.config.loading import load_recipe
    from nmtkit.stages.pipeline import Pipeline

    settings.check()
    check_output("--tensorboard", settings.tensorboard)
    overrides = overrides or []
    return Pipeline(load_recipe(recipe, overrides), settings, recipe, overrides, force=force)


def pipeline_inputs(pipeline: "Pipeline") -> list[Path]:
    """Return the files and folders that a command on a recipe may read."""
    from nmtkit.config.loading import recipe_path
    from nmtkit.sources.source import Source

    settings = pipeline.settings
    inputs = [recipe_path(pipeline.command), settings.downloads_dir]
    if settings.mirror is not None:
        inputs.append(settings.mirror)
    corpus = pipeline.recipe.corpus
    texts: list[object] = list(corpus.train)
    texts += corpus.dev_sources
    texts += corpus.drop_held_out
    texts += pipeline.recipe.test.sets
    for source in texts:
        if isinstance(source, Source):
            # This command may not need the text, and its environment variable may be missing.
            with suppress(UserError):
                inputs += [file.path for file in source.files()]
    return inputs


def find_bundles(
    bundles: Sequence[Path],
    recipe: str | None,
    overrides: Sequence[str] | None,
    settings: Settings,
) -> list[Path]:
    """Return the folders of the bundles that a command loads.

    Args:
        recipe: The value of --recipe, whose averaged model is used instead.
        overrides: The values of --set, for the recipe.
        settings: The folder of artifacts, for the recipe.

    Raises:
        UserError: No model or two models are named, or the recipe has none yet.
    """
    if recipe is not None:
        if bundles:
            raise UserError("--recipe and --bundle both name a model; pass only one of them")
        return [load_pipeline(recipe, overrides, settings).need("average").path]
    if not bundles:
        raise UserError("the model is missing; pass --recipe RECIPE or --bundle DIR")
    if overrides or settings.runs_dir != RUNS:
        raise UserError(
            "--set and --runs-dir apply to a recipe, not to a bundle; pass --recipe, or omit them"
        )
    for bundle in bundles:
        _check_is_bundle(bundle)
    return list(bundles)


def find_bundle(
    bundles: Sequence[Path],
    recipe: str | None,
    overrides: Sequence[str] | None,
    settings: Settings,
) -> Path:
    """Return the folder of the only bundle that a command loads; see `find_bundles`.

    Args:
        overrides: The values of --set.
        settings: The folder of artifacts.
    """
    folders = find_bundles(bundles, recipe, overrides, settings)
    if len(folders) > 1:
        raise UserError(
            f"expected one model, got {len(folders):,}; pass --recipe or --bundle only once"
        )
    return folders[0]


def _check_is_bundle(bundle: Path) -> None:
    """Refuse the name of a recipe where the folder of a bundle is expected."""
    is_own = not bundle.exists() and str(bundle) in recipe_names(str(bundle))
    if is_own or (bundle.suffix == ".toml" and not bundle.is_dir()):
        raise UserError(
            f"{bundle} does not exist; for the model of a recipe, pass --recipe {bundle}"
        )
