"""Options that several commands share, as `Annotated` aliases with their help texts."""

import functools
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from nmtkit.config.settings import (
    RUNS,
    Accelerate,
    EngineName,
    EnginePrecision,
    Precision,
    Settings,
)
from nmtkit.decoding.formats import Format
from nmtkit.reporting.show import Form, TableForm
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import visible

Command = Callable[..., None]


def recipe_names(beginning: str) -> list[str]:
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
    if path is not None and path.is_dir():
        raise UserError(f"{option} {path} is a folder; name a file")
    if path is not None and not path.parent.is_dir():
        raise UserError(
            f"{option} {path} would be in {path.parent}, which is not a folder; name a file in a "
            "folder that exists"
        )


def file_or_stream(value: str) -> Path | None:
    """Return the path of a file, or None for "-", which is standard input or output."""
    return None if value == "-" else Path(value)


def check_output(option: str, place: Path | None, inputs: Sequence[Path] = ()) -> None:
    """Refuse to write over an input of the command or into an artifact, if `place` is set."""
    if place is not None:
        from nmtkit.store import output_check

        output_check.check_output(option, place, inputs)


def argument(
    metavar: str,
    text: str,
    completed: Callable[[str], list[str]] | None = None,
    callback: Callable[..., str | None] | None = None,
) -> Any:
    return typer.Argument(metavar=metavar, help=text, autocompletion=completed, callback=callback)


def option(
    metavar: str,
    text: str,
    *names: str,
    least: float | None = None,
    most: float | None = None,
    callback: Callable[..., Path | None] | None = None,
) -> Any:
    """Return an option with a value, called as its parameter unless there are `names`."""
    return typer.Option(*names, metavar=metavar, help=text, min=least, max=most, callback=callback)


def flag(text: str, name: str) -> Any:
    """Return an option without a value; if it had no name, there would be its opposite too."""
    return typer.Option(name, help=text)


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
        help="Processes that prepare text (default: one per core).",
        min=1,
        max=1_024,
    ),
]
Processes = Annotated[
    int,
    typer.Option(
        metavar="N",
        help="Processes that train, each on its own GPU or part of the CPU.",
        min=1,
    ),
]
Dtype = Annotated[
    Precision,
    typer.Option(
        metavar="TYPE",
        help="Training precision: float32, bfloat16, float16 or auto (bfloat16 if the GPU has it).",
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
    typer.Option("--deterministic", help="Train to the same bits every time; slower."),
]
TensorBoard = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Also write training metrics for TensorBoard here."),
]

Seconds = Annotated[
    float,
    typer.Option("--seconds", metavar="N", help="Seconds per measurement.", min=0.1, max=86_400),
]

# Output

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Table = Annotated[
    TableForm | None,
    typer.Option(metavar="FORMAT", help="Print the tables as markdown, latex or csv."),
]
Html = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Also write a page for a browser.", callback=check_page),
]
Svg = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Also write a picture, as SVG.", callback=check_page),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        parser=file_or_stream,
        help="Output file (default, and for -: standard output).",
    ),
]

# Models

Bundle = Annotated[
    Path,
    typer.Option("--bundle", metavar="DIR", help="Bundle, the folder that `average` prints."),
]
Bundles = Annotated[
    list[Path],
    typer.Option("--bundle", metavar="DIR", help="Bundle; repeat the option for an ensemble."),
]
Engine = Annotated[
    EngineName | None,
    typer.Option(
        metavar="ENGINE",
        help="torch (exact: output does not depend on batching), ctranslate2 (faster on a CPU), "
        "or auto (default: ctranslate2 on a CPU if it can run the model, else torch).",
    ),
]
EngineDtype = Annotated[
    EnginePrecision | None,
    typer.Option(
        "--dtype",
        metavar="TYPE",
        help="Precision of the engine: float32 (default), bfloat16, float16 or int8.",
    ),
]
Beam = Annotated[
    int | None,
    typer.Option(
        "--beam", metavar="N", help="Beam size (default: the bundle's).", min=1, max=1_024
    ),
]
LengthPenalty = Annotated[
    float | None,
    typer.Option(
        metavar="ALPHA",
        help="Length penalty alpha (default: the bundle's); 0 for none.",
        min=0.0,
        max=10.0,
    ),
]
Alignment = Annotated[
    bool,
    typer.Option("--alignment", help="Add word alignments (formats json and fairseq)."),
]
LineFormat = Annotated[
    Format | None,
    typer.Option(
        "--format",
        metavar="FORMAT",
        help="Output format: text, moses, json, fairseq or pharaoh.",
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
        help="Input text (default, and for -: standard input).",
    ),
]
Plain = Annotated[
    bool,
    typer.Option(
        "--plain", help="Read text files line by line, even if they look like another format."
    ),
]
Src = Annotated[
    Path | None, typer.Option("--src", metavar="FILE", help="Source text, one sentence per line.")
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
Lowercase = Annotated[bool, typer.Option("--lowercase", help="Lowercase before scoring.")]
TestSet = Annotated[str | None, typer.Option(metavar="NAME", help="Test set, such as wmt22.")]


# To be removed with the decorators below, once no command uses them.

SETTINGS_OPTIONS = {
    "runs_dir": RunsDir,
    "mirror": Mirror,
    "device": Device,
    "max_tokens": MaxTokens,
    "workers": Workers,
    "processes": Processes,
    "dtype": Dtype,
    "accelerate": AccelerateOption,
    "deterministic": Deterministic,
    "tensorboard": TensorBoard,
}
TRAINING_OPTIONS = [
    name for name in SETTINGS_OPTIONS if name not in ("runs_dir", "mirror", "workers")
]
_aliases: tuple[Any, ...] = (Device, Engine, Beam, LineFormat, Src, Lang)
DEVICE, ENGINE, BEAM, FORMAT, SRC, LANG = (alias.__metadata__[0] for alias in _aliases)


def command(
    example: str, *settings: str, force: Sequence[str] = ()
) -> Callable[[Command], Command]:
    """Make a command of a function that takes a `chain`, a `machine` or a `form`.

    It has options in their place: of a `Chain`, RECIPE, `--set`, and `--force` of the stages
    `force`; of a `Machine`, and of a chain, `--runs-dir` and the fields `machine`; of a `Form`,
    `--json` and `--table`. Its help ends with `example`, of at most 70 characters.
    """
    options: dict[str, tuple[Any, Any]] = {
        "recipe": (RecipeName, inspect.Parameter.empty),
        "overrides": (Overrides, None),
        **{
            name: (option, getattr(Settings, name, RUNS))
            for name, option in SETTINGS_OPTIONS.items()
        },
        "force": (Force, False),
        "as_json": (Json, False),
        "table": (Table, None),
    }

    def decorate(function: Command) -> Command:
        own = inspect.signature(function).parameters
        of_recipe = ["recipe", "overrides"] if "pipeline" in own else []
        of_machine = ["runs_dir", *settings] if {"pipeline", "settings"} & {*own} else []
        last = (["force"] if force else []) + (["as_json", "table"] if "form" in own else [])

        @functools.wraps(function)
        def run(**given: Any) -> None:
            taken = {name: given.pop(name) for name in (*of_recipe, *of_machine, *last)}
            if of_machine:
                on = Settings(**{name: taken[name] for name in of_machine})
                on.check()
                if on.tensorboard is not None:
                    check_output("--tensorboard", on.tensorboard)
                if "settings" in own:
                    given["settings"] = on
                if "pipeline" in own:
                    rebuilt = force if taken.get("force") else ()
                    given["pipeline"] = load_pipeline(
                        taken["recipe"], taken["overrides"], on, rebuilt
                    )
            if "form" in own:
                given["form"] = Form(taken["as_json"], taken["table"])
            function(**given)

        parameters = [
            each for name, each in own.items() if name not in ("pipeline", "settings", "form")
        ]
        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                *(_keyword(name, *options[name]) for name in of_recipe[:1]),
                *(_keyword(each.name, each.annotation, each.default) for each in parameters),
                *(_keyword(name, *options[name]) for name in (*of_recipe[1:], *of_machine, *last)),
            ]
        )
        run.example = example  # type: ignore[attr-defined]
        return run

    return decorate


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, annotation=annotation, default=default)


def either(
    of_recipe: Command,
    of_files: Command,
    metavar: str,
    text: str,
    is_recipe: Callable[[list[str], dict[str, Any]], bool],
) -> Command:
    """Return a command of two forms; `is_recipe` tells the first by what was given."""
    forms = [inspect.signature(each).parameters for each in (of_recipe, of_files)]
    examples: list[str] = [each.example for each in (of_recipe, of_files)]  # type: ignore[attr-defined]
    together = {**forms[1], **forms[0]}
    options = {name: each for name, each in together.items() if name not in ("recipe", "names")}

    def run(*, names: list[str] | None, **given: Any) -> None:
        names = names or []
        chosen = 0 if is_recipe(names, given) else 1
        form, example, other = forms[chosen], examples[chosen], examples[1 - chosen]
        for name, value in given.items():
            if name not in form and value != options[name].default:
                (info,) = options[name].annotation.__metadata__
                names = [info.default, *(info.param_decls or ())]  # typer takes one for a default
                long = (each for each in names if str(each).startswith("--"))
                typed = next(long, f"--{name.replace('_', '-')}")
                raise UserError(f"{typed} is for `{other}`, not for `{example}`; leave it out")
        if "recipe" in form and len(names) != 1:
            seen = f"{len(names)} names were given" if names else "no name was given"
            raise UserError(f"{seen}; name one recipe, as in `{example}`, or type `{other}`")
        everything = {**given, "recipe": "".join(names[:1]), "names": names}
        taken = {name: value for name, value in everything.items() if name in form}
        (of_recipe, of_files)[chosen](**taken)

    named = Annotated[list[str] | None, argument(metavar, text, completed=recipe_names)]
    of_names = _keyword("names", named, None)
    run.__signature__ = inspect.Signature([of_names, *options.values()])  # type: ignore[attr-defined]
    run.example = examples[1]  # type: ignore[attr-defined]
    return run


def load_pipeline(
    recipe: str, overrides: Sequence[str] | None, settings: Settings, force: Sequence[str] = ()
) -> Any:
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


def pipeline_inputs(pipeline: Any) -> list[Path]:
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
            # A variable of the environment may be missing, of a text that this command needs not.
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
