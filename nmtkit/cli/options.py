"""What several commands take, declared once, and the decorators that give it to them."""

import functools
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from nmtkit.config.settings import RUNS, EngineName, Settings
from nmtkit.decoding.formats import Format
from nmtkit.reporting.show import Form, TableForm
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import visible

Command = Callable[..., None]


def recipe_names(beginning: str) -> list[str]:
    from nmtkit.config.loading import bundled_recipes

    return [path.stem for path in bundled_recipes() if path.stem.startswith(beginning)]


def _folder(option: typer.CallbackParam, path: Path | None) -> Path | None:
    must_exist = option.name == "mirror"
    if path is not None and not path.is_dir() and (must_exist or path.exists()):
        raise UserError(f"{option.opts[0]} {path} is not a folder; name another one")
    return path


def _page(option: typer.CallbackParam, path: Path | None) -> Path | None:
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
        from nmtkit.store import artifacts as store  # help does not need it

        store.check_output(option, place, inputs)


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


# Of recipes

RecipeName = Annotated[
    str,
    argument(
        "RECIPE",
        "The name of a recipe (see `nmtkit recipes`), or a path such as ./mine.toml.",
        completed=recipe_names,
    ),
]
Overrides = Annotated[
    list[str] | None, option("SECTION.KEY=VALUE", "Override a value of the recipe.", "--set")
]
Force = Annotated[bool, flag("Delete the existing artifact and rebuild it.", "--force")]

# Of the machine

DEVICE = option("DEVICE", "auto, cpu, cuda, cuda:1, ...")
Device = Annotated[str, DEVICE]
# Of the fields of `Machine`, which has their types and defaults.
SETTINGS_OPTIONS = {
    "runs_dir": option("DIR", "Folder of artifacts and downloads.", callback=_folder),
    "mirror": option(
        "DIR", "Folder of downloads as HOST/PATH, read instead of the network.", callback=_folder
    ),
    "device": DEVICE,
    "max_tokens": option(
        "N", "Most tokens per side of a micro-batch; lower it to save memory.", least=1
    ),
    "workers": option(
        "N", "Processes that prepare text; by default one per core.", least=1, most=1_024
    ),
    "processes": option(
        "N", "Processes that train, each on its own GPU or part of the CPU.", least=1
    ),
    "dtype": option(
        "TYPE",
        "Precision of training: float32, bfloat16, float16, or auto: bfloat16 if the GPU has it.",
    ),
    "accelerate": option(
        "HOW", "What makes training fast on a GPU: auto, compile (no CUDA graph) or none."
    ),
    "deterministic": flag("Train to the same bits every time; slower.", "--deterministic"),
    "tensorboard": option("DIR", "Also write training metrics for TensorBoard here."),
}
TRAINING_OPTIONS = [
    name for name in SETTINGS_OPTIONS if name not in ("runs_dir", "mirror", "workers")
]

Seconds = Annotated[
    float, option("N", "How long to measure each.", "--seconds", least=0.1, most=86_400)
]

# Of what is shown

Json = Annotated[bool, flag("Print JSON.", "--json")]
Table = Annotated[TableForm | None, option("FORM", "Print the tables as markdown, latex or csv.")]
Html = Annotated[Path | None, option("FILE", "Also write a page for a browser.", callback=_page)]
Svg = Annotated[Path | None, option("FILE", "Also write a picture, as SVG.", callback=_page)]

# Of text and models

Bundle = Annotated[Path, option("DIR", "A bundle, the folder that average prints.", "--bundle")]
Bundles = Annotated[
    list[Path], option("DIR", "A bundle; name several for an ensemble.", "--bundle")
]
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
Plain = Annotated[
    bool,
    flag("Read text files line by line, even if they look like another format.", "--plain"),
]
References = Annotated[
    list[Path] | None, option("FILE", "A reference; there may be several.", "--ref")
]
SRC = option("FILE", "Source text, one sentence a line.", "--src")
Src = Annotated[Path | None, SRC]
LANG = option("LANG", "Language of the files, such as de; of a --test-set both, such as en-de.")
Lang = Annotated[str | None, LANG]
Lowercase = Annotated[bool, flag("The text is, or shall be, lower-cased.", "--lowercase")]
TestSet = Annotated[str | None, option("NAME", "A test set, such as wmt22.")]
ENGINE = option(
    "ENGINE",
    "torch (a line's translation does not depend on the lines beside it), ctranslate2 "
    "(faster on a CPU), or auto, the default: ctranslate2 on a CPU that can, else torch.",
)
Engine = Annotated[EngineName | None, ENGINE]
BEAM = option("N", "Number of beams, in place of the bundle's.", "--beam", least=1, most=1_024)
Beam = Annotated[int | None, BEAM]
LengthPenalty = Annotated[
    float | None,
    option(
        "ALPHA",
        "Alpha of the length penalty, in place of the bundle's; 0 is for none.",
        least=0.0,
        most=10.0,
    ),
]
Alignment = Annotated[
    bool, flag("With json and fairseq: add the source words of each word.", "--alignment")
]
FORMAT = option("FORMAT", "What to write: text, moses, json, fairseq or pharaoh.", "--format")
LineFormat = Annotated[Format | None, FORMAT]


def command(
    example: str, *settings: str, force: Sequence[str] = ()
) -> Callable[[Command], Command]:
    """Make a command of a function that takes a `chain`, a `machine` or a `form`.

    It has options in their place: of a `Chain`, RECIPE, `--set`, and `--force` of the stages
    `force`; of a `Machine`, and of a chain, `--runs-dir` and the fields `machine`; of a `Form`,
    `--json` and `--table`. Its help ends with `example`, of at most 70 characters.
    """
    types = get_type_hints(Settings)
    options: dict[str, tuple[Any, Any]] = {
        "recipe": (RecipeName, inspect.Parameter.empty),
        "overrides": (Overrides, None),
        **{
            name: (Annotated[types[name], option], getattr(Settings, name, RUNS))
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
    from nmtkit.config.loading import load_recipe
    from nmtkit.stages.pipeline import Pipeline

    overrides = overrides or []
    return Pipeline(load_recipe(recipe, overrides), settings, recipe, overrides, force=force)


def chain_inputs(pipeline: Any) -> list[Path]:
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


def tell(path: Path) -> None:
    """Print a path as a result: for scripts byte by byte, as it may not be UTF-8.

    A terminal would obey its control characters, so there they are shown by name.
    """
    if sys.stdout.isatty():
        typer.echo(visible(str(path)))
    else:
        typer.echo(os.fsencode(path))
