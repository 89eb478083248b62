"""What several commands take, declared once, and the decorators that give it to them."""

import functools
import inspect
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from nmtkit.decoding.formats import Format
from nmtkit.errors import UserError
from nmtkit.machine import RUNS, EngineName, Machine, Precision
from nmtkit.reporting.show import Form, TableForm

Command = Callable[..., None]


def recipe_names(beginning: str) -> list[str]:
    """Return the names of recipes that begin so, for a shell to complete."""
    from nmtkit.recipe_file import bundled_recipes

    return [path.stem for path in bundled_recipes() if path.stem.startswith(beginning)]


def _folder(option: typer.CallbackParam, path: Path | None) -> Path | None:
    if path is not None and path.exists() and not path.is_dir():
        raise UserError(f"{option.opts[0]} {path} is not a folder; name another one")
    return path


def _page(option: typer.CallbackParam, path: Path | None) -> Path | None:
    if path is not None and path.is_dir():
        raise UserError(f"{option.opts[0]} {path} is a folder; name a file")
    if path is not None and not path.parent.is_dir():
        raise UserError(
            f"{option.opts[0]} {path} would be in {path.parent}, which is not a folder; "
            "name a file in a folder that exists"
        )
    return path


# Of recipes

RecipeName = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE",
        autocompletion=recipe_names,
        help="The name of a recipe (see `nmtkit recipes`), or a path such as ./mine.toml.",
        show_default=False,
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override a value of the recipe."),
]
Remake = Annotated[
    bool,
    typer.Option("--remake", help="Make again what other code of nmtkit made, beside it."),
]

# Of the machine: the fields of `Machine`, and their defaults

OF_MACHINE: dict[str, tuple[Any, Any]] = {
    "runs_dir": (
        Annotated[
            Path,
            typer.Option(
                metavar="DIR", callback=_folder, help="Folder of artifacts and downloads."
            ),
        ],
        RUNS,
    ),
    "mirror": (
        Annotated[
            Path | None,
            typer.Option(
                metavar="DIR",
                callback=_folder,
                help="Folder of downloads as HOST/PATH, read instead of the network.",
            ),
        ],
        None,
    ),
    "device": (
        Annotated[str, typer.Option(metavar="DEVICE", help="auto, cpu, cuda, cuda:1, ...")],
        "auto",
    ),
    "max_tokens": (
        Annotated[
            int | None,
            typer.Option(
                metavar="N",
                min=1,
                help="Most tokens per side of a micro-batch; lower it to save memory.",
            ),
        ],
        None,
    ),
    "workers": (
        Annotated[
            int | None,
            typer.Option(
                metavar="N",
                min=1,
                max=1_024,
                help="Processes that prepare text; by default one per core.",
            ),
        ],
        None,
    ),
    "processes": (
        Annotated[
            int | None,
            typer.Option(
                metavar="N",
                min=1,
                help="Processes that train; by default one per CUDA device, or 1 on a CPU.",
            ),
        ],
        None,
    ),
    "dtype": (
        Annotated[
            Precision,
            typer.Option(
                metavar="TYPE",
                help="Precision of training: float32, bfloat16, or auto: bfloat16 on GPUs that "
                "support it.",
            ),
        ],
        Precision.AUTO,
    ),
    "deterministic": (
        Annotated[
            bool,
            typer.Option("--deterministic", help="Train to the same bits every time; slower."),
        ],
        False,
    ),
    "tensorboard": (
        Annotated[
            Path | None,
            typer.Option(metavar="DIR", help="Also write training metrics for TensorBoard here."),
        ],
        None,
    ),
}
OF_TRAINING = ("device", "max_tokens", "processes", "dtype", "deterministic", "tensorboard")

# Of what is shown

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Table = Annotated[
    TableForm | None,
    typer.Option(metavar="FORM", help="Print the tables as markdown, latex or csv."),
]
Html = Annotated[
    Path | None,
    typer.Option(metavar="FILE", callback=_page, help="Also write a page for a browser."),
]
Svg = Annotated[
    Path | None, typer.Option(metavar="FILE", callback=_page, help="Also write a picture, as SVG.")
]

# Of text and models

Bundle = Annotated[Path, typer.Option("--bundle", metavar="DIR", help="A bundle.")]
Bundles = Annotated[
    list[Path], typer.Option("--bundle", metavar="DIR", help="A bundle; several make an ensemble.")
]
Input = Annotated[
    Path | None,
    typer.Option("--input", "-i", metavar="FILE", help="The text; by default standard input."),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="PLACE", help="Where to write."),
]
References = Annotated[
    list[Path] | None,
    typer.Option("--ref", metavar="FILE", help="A reference; there may be several."),
]
Src = Annotated[
    Path | None, typer.Option("--src", metavar="FILE", help="Source text, one sentence a line.")
]
Tgt = Annotated[
    Path | None, typer.Option("--tgt", metavar="FILE", help="Its translation, line by line.")
]
Lang = Annotated[
    str | None, typer.Option(metavar="LANG", help="The language of the files, such as de.")
]
Langpair = Annotated[
    str | None, typer.Option(metavar="SRC-TGT", help="The languages, such as en-de.")
]
Lowercase = Annotated[
    bool, typer.Option("--lowercase", help="The text is, or shall be, lower-cased.")
]
TestSet = Annotated[str | None, typer.Option(metavar="NAME", help="A test set, by name.")]
Engine = Annotated[
    EngineName | None,
    typer.Option(
        metavar="ENGINE",
        help="torch (a line's translation does not depend on the lines beside it), ctranslate2 "
        "(faster on a CPU), or auto, the default: ctranslate2 on a CPU that can, else torch.",
    ),
]
Alignment = Annotated[
    bool,
    typer.Option("--alignment", help="With json and fairseq: add the source words of each word."),
]
LineFormat = Annotated[
    Format | None,
    typer.Option(
        "--format",
        metavar="FORMAT",
        help="What to write of each line: text, moses, json or fairseq.",
    ),
]


_is_kept = False  # whether the command that runs can be resumed


def keep_finished_work(*, kept: bool = True) -> None:
    """Let messages say that the command can be resumed, or that it can't."""
    global _is_kept  # noqa: PLW0603
    _is_kept = kept


def kept(before: str) -> str:
    """Return, after `before`, how to go on with a command that was stopped; "" if it can't."""
    return f"{before}run the same command again: finished work is kept" if _is_kept else ""


def command(
    example: str, *machine: str, remake: Sequence[str] = ()
) -> Callable[[Command], Command]:
    """Make a command of a function that takes a `chain`, a `machine` or a `form`.

    In their place, the command has options:

    - `chain: Chain`: a RECIPE, `--set`, and `--remake` if stages can be made again;
    - `machine: Machine`, or a chain: `--runs-dir` and the fields of `Machine` that are named;
    - `form: Form`: `--json` and `--table`.

    Args:
        example: A command line to show below the help, of at most 70 characters.
        machine: Fields of `Machine`.
        remake: The stages that `--remake` makes again.
    """
    options = {
        name: inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default
        )
        for name, (annotation, default) in {
            "recipe": (RecipeName, inspect.Parameter.empty),
            "overrides": (Overrides, None),
            **OF_MACHINE,
            "remake": (Remake, False),
            "as_json": (Json, False),
            "table": (Table, None),
        }.items()
    }

    def decorate(function: Command) -> Command:
        own = inspect.signature(function).parameters
        of_recipe = ["recipe", "overrides"] if "chain" in own else []
        of_machine = ["runs_dir", *machine] if {"chain", "machine"} & {*own} else []
        last = (["remake"] if remake else []) + (["as_json", "table"] if "form" in own else [])

        @functools.wraps(function)
        def run(**given: Any) -> None:
            taken = {name: given.pop(name) for name in (*of_recipe, *of_machine, *last)}
            keep_finished_work(kept=bool(remake))
            if of_machine:
                on = Machine(**{name: taken[name] for name in of_machine})
                on.check()
                if "machine" in own:
                    given["machine"] = on
                if "chain" in own:
                    again = remake if taken.get("remake") else ()
                    given["chain"] = chain_of(taken["recipe"], taken["overrides"], on, again)
            if "form" in own:
                given["form"] = Form(taken["as_json"], taken["table"])
            function(**given)

        parameters = [
            each for name, each in own.items() if name not in ("chain", "machine", "form")
        ]
        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                *(options[name] for name in of_recipe[:1]),
                *(each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters),
                *(options[name] for name in (*of_recipe[1:], *of_machine, *last)),
            ]
        )
        run.example = example  # type: ignore[attr-defined]
        return run

    return decorate


def either(first: Command, second: Command, is_first: Callable[[dict[str, Any]], bool]) -> Command:
    """Return a command of two forms, which takes the options of both.

    Args:
        first: A command.
        second: Another one; where both have an option, it is the same.
        is_first: Whether arguments as they were given mean the first form.

    Raises:
        UserError: An option was given that only the other form has.
    """
    forms = [inspect.signature(each).parameters for each in (first, second)]
    together = {**forms[0], **{k: v for k, v in forms[1].items() if k not in forms[0]}}

    def run(**given: Any) -> None:
        chosen = 0 if is_first(given) else 1
        for name, value in given.items():
            if name not in forms[chosen] and value != together[name].default:
                raise UserError(
                    f"{_typed(together[name])} is not an option of the form "
                    f"`{getattr((first, second)[chosen], 'example', '')}`; leave it out"
                )
        (first, second)[chosen](**{name: given[name] for name in forms[chosen]})

    run.__signature__ = inspect.Signature([*together.values()])  # type: ignore[attr-defined]
    return run


def _typed(parameter: inspect.Parameter) -> str:
    """Return an option as it is typed."""
    (info,) = parameter.annotation.__metadata__
    return next(iter(info.param_decls or ()), f"--{parameter.name.replace('_', '-')}")


def chain_of(
    recipe: str, overrides: list[str] | None, machine: Machine, remake: Sequence[str] = ()
) -> Any:
    """Return the chain of a recipe."""
    from nmtkit.recipe_file import load_recipe
    from nmtkit.stages.chain import Chain

    overrides = overrides or []
    return Chain(load_recipe(recipe, overrides), machine, recipe, overrides, remake=remake)


def tell(path: Path) -> None:
    """Print a path, which may not be UTF-8."""
    typer.echo(os.fsencode(path))
