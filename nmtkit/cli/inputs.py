"""From the values of options to the inputs of a command: checks, paths, a recipe or a model."""

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nmtkit.config.settings import RUNS, Settings
from nmtkit.utils.errors import UserError

if TYPE_CHECKING:
    from nmtkit.stages.pipeline import Pipeline


def check_folder(option: typer.CallbackParam, path: Path | None) -> Path | None:
    """Refuse a path that is not a folder. It need not exist yet."""
    if path is not None and path.exists() and not path.is_dir():
        raise UserError(f"{option.opts[0]} {path} is not a folder")
    return path


def check_mirror(option: typer.CallbackParam, path: Path | None) -> Path | None:
    """Refuse a path that is not an existing folder."""
    if path is not None and not path.is_dir():
        raise UserError(f"{option.opts[0]} {path} is not a folder")
    return path


def check_page(option: typer.CallbackParam, path: Path | None) -> Path | None:
    """Refuse a path at which no file can be written."""
    check_file(option.opts[0], path)
    return path


def check_file(option: str, path: Path | None) -> None:
    """Refuse a path at which no file can be written.

    Args:
        option: The name of the option, for the message.
        path: Its value; None if the user did not pass it.
    """
    if path is None:
        return
    if path.is_dir():
        raise UserError(f"{option} {path} is a folder; pass the path of a file")
    if not path.parent.is_dir():
        raise UserError(
            f"{option} {path}: {path.parent} is not a folder; create it, or pass another path"
        )


def file_or_stream(value: str) -> Path | None:
    """Return the path of a file, or None for "-" (standard input or output)."""
    return None if value == "-" else Path(value)


def check_output(option: str, path: Path | None, inputs: Sequence[Path] = ()) -> None:
    """Refuse to write over an input of the command or into an artifact.

    Args:
        option: The name of the option, for the message.
        path: Its value; None if the user did not pass it.
        inputs: Files and folders that the command reads.
    """
    if path is not None:
        # Imports pydantic; `--help` does not need it.
        from nmtkit.store import output_check

        output_check.check_output(option, path, inputs)


def check_unused(options: Mapping[str, object], form: str, other_form: str) -> None:
    """Refuse options that belong to the other form of a command.

    Args:
        options: The values of the options of the other form, by name. Those that the user did not
            pass are None, False or empty lists.
        form: The form that the user chose, such as "nmtkit translate RECIPE".

    Raises:
        UserError: One of the options was passed.
    """
    for name, value in options.items():
        if value is not None and value is not False and value != []:
            raise UserError(
                f"{name} cannot be used with `{form}`, only with `{other_form}`; omit {name}"
            )


# Recipes and bundles


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
        recipe: Name or path of the recipe; or 'RECIPE --set SECTION.KEY=VALUE', as `nmtkit runs`
            prints a run.
        overrides: Values of --set.
        settings: Settings of the machine, to be checked.
        force: Stages whose artifacts are deleted and rebuilt.
    """
    from nmtkit.config.loading import load_recipe
    from nmtkit.stages.pipeline import Pipeline
    from nmtkit.store.provenance import split_overrides

    settings.check()
    check_output("--tensorboard", settings.tensorboard)
    recipe, run_overrides = split_overrides(recipe)
    overrides = [*run_overrides, *(overrides or [])]
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
    """Refuse a recipe, or a run of one, where the folder of a bundle is expected."""
    from nmtkit.store.provenance import run_arguments, split_overrides

    if bundle.exists() and bundle.suffix != ".toml":
        return
    recipe, overrides = split_overrides(str(bundle))
    path = Path(recipe)
    if path.suffix == ".toml" and path.is_file():
        # The path has lost its "./", which shows that it is the user's own recipe.
        run = run_arguments(f"./{path}" if path.parent == Path() else recipe, overrides)
        raise UserError(f"{run} is a recipe; pass --recipe {shlex.quote(run)}")
    if path.suffix == ".toml" and not path.is_dir() and path.stem not in recipe_names(path.stem):
        raise UserError(
            f"{path} does not exist; correct the path, and pass it as --recipe for the model of a "
            "recipe"
        )
    name = path.stem if path.suffix == ".toml" else recipe
    if name in recipe_names(name):
        run = shlex.quote(run_arguments(name, overrides))
        raise UserError(f"{bundle} does not exist; for the model of a recipe, pass --recipe {run}")
