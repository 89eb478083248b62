"""Options that several commands share, as `Annotated` aliases with their help texts."""

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmtkit.config.settings import (
    RUNS,
    Accelerate,
    EngineName,
    Precision,
    Settings,
)
from nmtkit.reporting.show import TableForm
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import visible

if TYPE_CHECKING:
    from nmtkit.stages.pipeline import Pipeline


def recipe_names(beginning: str) -> list[str]:
    """Return the names of nmtkit's own recipes that begin with some letters, for the shell."""
    # Imports pydantic, which `nmtkit --help` does not need.
    from nmtkit.config.loading import bundled_recipes

    return [path.stem for path in bundled_recipes() if path.stem.startswith(beginning)]


def check_folder(option: typer.CallbackParam, path: Path | None) -> Path | None:
    """Refuse a path that is not a folder; only --mirror must exist."""
    must_exist = option.name == "mirror"
    if path is not None and not path.is_dir() and (must_exist or path.exists()):
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
    if path is not None and path.is_dir():
        raise UserError(f"{option} {path} is a folder; pass the path of a file")
    if path is not None and not path.parent.is_dir():
        raise UserError(
            f"{option} {path}: {path.parent} is not a folder; create it, or pass another path"
        )


def file_or_stream(value: str) -> Path | None:
    """Return the path of a file, or None for "-", which is standard input or output."""
    return None if value == "-" else Path(value)


def check_output(option: str, place: Path | None, inputs: Sequence[Path] = ()) -> None:
    """Refuse to write over an input of the command or into an artifact.

    Args:
        option: The name of the option, for the message.
        place: Its value; None if the user did not pass it.
        inputs: Files and folders that the command reads.
    """
    if place is not None:
        from nmtkit.store import output_check

        output_check.check_output(option, place, inputs)


def check_unused(options: Mapping[str, object], form: str, other_form: str) -> None:
    """Refuse options that belong to the other form of a command.

    Args:
        options: The values of the options of the other form, by name. Those that the user did not
            pass are None, False or empty lists.
        form: The form that the user chose, such as "nmtkit translate RECIPE".
        other_form: The other form.

    Raises:
        UserError: One of the options was passed.
    """
    for name, value in options.items():
        if value is not None and value is not False and value != []:
            raise UserError(
                f"{name} cannot be used with `{form}`, only with `{other_form}`; omit {name}"
            )


# Recipes

RecipeName = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE",
        help="Name of a recipe (see `nmtkit recipes`), or a path such as ./mine.toml.",
        autocompletion=recipe_names,
        show_default=False,
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override a value of the recipe."),
]
Force = Annotated[
    bool, typer.Option("--force", help="Delete the existing artifact and rebuild it.")
]

# Settings of the machine, one for each field of `Settings`

RunsDir = Annotated[
    Path,
    typer.Option(metavar="DIR", help="Folder of artifacts and downloads.", callback=check_folder),
]
Mirror = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Offline mirror: read URLs from DIR/HOST/PATH instead of downloading.",
        callback=check_folder,
    ),
]
Device = Annotated[str, typer.Option(metavar="DEVICE", help="auto, cpu, cuda, cuda:1, ...")]
MaxTokens = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Maximum number of tokens per side of a micro-batch; lower it to save memory.",
        min=1,
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Number of processes that prepare text (default: one per core).",
        min=1,
        max=1_024,
    ),
]
Processes = Annotated[
    int,
    typer.Option(
        metavar="N",
        help="Number of training processes, each on its own GPU or part of the CPU.",
        min=1,
    ),
]
Dtype = Annotated[
    Precision,
    typer.Option(
        metavar="TYPE",
        help="Training precision: float32, bfloat16, float16 or auto (bfloat16 where faster).",
    ),
]
AccelerateOption = Annotated[
    Accelerate,
    typer.Option(
        metavar="LEVEL",
        help="GPU optimizations: auto, compile (without CUDA graphs) or none.",
    ),
]
Deterministic = Annotated[
    bool,
    typer.Option("--deterministic", help="Train to exactly the same weights every time (slower)."),
]
TensorBoard = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Also write training metrics for TensorBoard here."),
]

# Output

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Table = Annotated[
    TableForm | None,
    typer.Option(
        metavar="FORMAT", help="Print tables as markdown or latex, or a single table as csv."
    ),
]
Html = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Also write an HTML page.", callback=check_page),
]

# Models

Bundles = Annotated[
    list[Path],
    typer.Option("--bundle", metavar="DIR", help="Bundle; repeat the option for an ensemble."),
]
# For commands that load one model; a list, so that a second --bundle is an error (`find_bundle`).
SingleBundle = Annotated[
    list[Path], typer.Option("--bundle", metavar="DIR", help="Bundle of the model.")
]
BundleRecipe = Annotated[
    str | None,
    typer.Option(
        "--recipe",
        metavar="RECIPE",
        help="Use this recipe's averaged model.",
        autocompletion=recipe_names,
    ),
]
Engine = Annotated[
    EngineName | None,
    typer.Option(
        metavar="ENGINE",
        help="torch (exact: output does not depend on batching), ctranslate2 (faster on a CPU), "
        "or auto (default: ctranslate2 on a CPU if it can run the model, else torch).",
    ),
]
Alignment = Annotated[
    bool,
    typer.Option(
        "--alignment", help="Add alignments: of words in format json, of subwords in fairseq."
    ),
]

# Texts

Input = Annotated[
    Path | None,
    typer.Option(
        "--input",
        "-i",
        metavar="FILE",
        parser=file_or_stream,
        help="Input file, or - for standard input (default).",
    ),
]
Plain = Annotated[
    bool,
    typer.Option(
        "--plain", help="Read text files line by line, even if they look like another format."
    ),
]
References = Annotated[
    list[Path] | None,
    typer.Option("--ref", metavar="FILE", help="Reference translation; may be repeated."),
]
Lang = Annotated[
    str | None,
    typer.Option(
        metavar="LANG",
        help="Target language (de), or with --test-set the language pair (en-de).",
    ),
]
TestSet = Annotated[str | None, typer.Option(metavar="NAME", help="Test set, such as wmt22.")]


def load_pipeline(
    recipe: str, overrides: Sequence[str] | None, settings: Settings, force: Sequence[str] = ()
) -> "Pipeline":
    """Load a recipe, and return the pipeline of its stages on this machine.

    Args:
        recipe: Name or path of the recipe.
        overrides: Values of --set.
        settings: Settings of the machine, which are checked.
        force: Stages whose artifacts are deleted and rebuilt.
    """
    from nmtkit.config.loading import load_recipe
    from nmtkit.stages.pipeline import Pipeline

    settings.check()
    if settings.tensorboard is not None:
        check_output("--tensorboard", settings.tensorboard)
    overrides = overrides or []
    return Pipeline(load_recipe(recipe, overrides), settings, recipe, overrides, force=force)


def find_bundles(
    bundles: Sequence[Path],
    recipe: str | None,
    overrides: Sequence[str] | None,
    settings: Settings,
) -> list[Path]:
    """Return the folders of the bundles that a command loads.

    Args:
        bundles: The values of --bundle.
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
        check_is_bundle(bundle)
    return list(bundles)


def find_bundle(
    bundles: Sequence[Path],
    recipe: str | None,
    overrides: Sequence[str] | None,
    settings: Settings,
) -> Path:
    """Return the folder of the only bundle that a command loads; see `find_bundles`.

    Args:
        bundles: The values of --bundle.
        recipe: The value of --recipe.
        overrides: The values of --set.
        settings: The folder of artifacts.
    """
    folders = find_bundles(bundles, recipe, overrides, settings)
    if len(folders) > 1:
        raise UserError(
            f"expected one model, got {len(folders):,}; pass --recipe or --bundle only once"
        )
    return folders[0]


def check_is_bundle(bundle: Path) -> None:
    """Refuse the name of a recipe where the folder of a bundle is expected."""
    is_own = not bundle.exists() and str(bundle) in recipe_names(str(bundle))
    if is_own or (bundle.suffix == ".toml" and not bundle.is_dir()):
        raise UserError(
            f"{bundle} does not exist; for the model of a recipe, pass --recipe {bundle}"
        )


def pipeline_inputs(pipeline: "Pipeline") -> list[Path]:
    """Return the files and folders that a command on a recipe may read."""
    from nmtkit.config.loading import recipe_path
    from nmtkit.sources.source import Source

    settings = pipeline.settings
    inputs = [recipe_path(pipeline.command), settings.downloads_dir]
    if settings.mirror is not None:
        inputs.append(settings.mirror)
    corpus, test = pipeline.recipe.corpus, pipeline.recipe.test
    for source in (*corpus.train, corpus.dev, *corpus.drop_held_out, *test.sets):
        if isinstance(source, Source):
            # This command may not need the text, and its environment variable may be missing.
            with suppress(UserError):
                inputs += [file.path for file in source.files()]
    return inputs


def print_path(path: Path) -> None:
    """Print a path as a result: for scripts byte by byte, as it may not be UTF-8.

    A terminal would obey its control characters, so there they are shown by name.
    """
    if sys.stdout.isatty():
        typer.echo(visible(str(path)))
    else:
        typer.echo(os.fsencode(path))
