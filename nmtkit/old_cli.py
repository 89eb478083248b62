"""The command line: one thin function per command.

Slow imports are inside the functions, so that `--help` is instant.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmtkit import __version__
from nmtkit.errors import UserError
from nmtkit.machine import RUNS, EngineName, EnginePrecision, Machine, Precision

if TYPE_CHECKING:
    from nmtkit.stages.chain import Chain

app = typer.Typer(
    name="nmtkit",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _recipe_names(beginning: str) -> list[str]:
    from nmtkit.recipe_file import bundled_recipes

    return [path.stem for path in bundled_recipes() if path.stem.startswith(beginning)]


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"nmtkit {__version__}")
        raise typer.Exit


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


RecipeName = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE",
        autocompletion=_recipe_names,
        help="The name of a recipe (see `nmtkit recipes`), or a path such as ./mine.toml.",
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override a value of the recipe."),
]
RunsDir = Annotated[
    Path, typer.Option(callback=_folder, help="The folder of artifacts and downloads.")
]
Mirror = Annotated[
    Path | None,
    typer.Option(
        callback=_folder, help="A folder of downloads as HOST/PATH, read instead of the network."
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")]
MaxTokens = Annotated[
    int | None,
    typer.Option(
        min=1, help="Maximum number of tokens per side of a micro-batch; lower it to save memory."
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1, max=1_024, help="Number of processes that prepare text; one per core by default."
    ),
]
Processes = Annotated[
    int | None,
    typer.Option(
        min=1, help="Number of processes that train; by default one per CUDA device, or 1 on a CPU."
    ),
]
DType = Annotated[
    Precision,
    typer.Option(
        help="Data type of activations in training; auto: bfloat16 if the GPU supports it."
    ),
]
Deterministic = Annotated[
    bool, typer.Option("--deterministic", help="Train to the same bits every time; slower.")
]
TensorBoard = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Also write training metrics for TensorBoard here."),
]
Beam = Annotated[
    int | None, typer.Option("--beam", help="Number of beams, in place of the bundle's.")
]
LengthPenalty = Annotated[
    float | None,
    typer.Option(help="The paper's alpha, ((5 + length) / 6) ** alpha, in place of the bundle's."),
]
Alignment = Annotated[
    bool,
    typer.Option("--alignment", help="Of json and fairseq: add the source words of each word."),
]
Engine = Annotated[
    EngineName | None,
    typer.Option(
        help="What runs a bundle's model. auto, the default: ctranslate2 on a CPU that can, else "
        "torch. With torch, a line's translation does not depend on the lines beside it; with "
        "ctranslate2 it may, by rounding.",
        show_default=False,
    ),
]
Remake = Annotated[
    bool,
    typer.Option("--remake", help="Make again what other code of nmtkit made, beside it."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


MOST = sys.maxsize  # lines that can be counted
DAY_S = 86_400
CTRL_C = 130  # exit code: 128 + SIGINT
CLOSED_PIPE = 141  # exit code: 128 + SIGPIPE
STDIN, STDOUT, STDERR = 0, 1, 2
AGAIN = "run the same command again; finished work is kept"
OUT_OF_MEMORY = (
    "out of memory; use fewer --workers or --processes, a lower --max-tokens, a smaller model or "
    f"beam, or more memory; then {AGAIN}"
)


@app.callback()
def nmtkit(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print errors and results only, no progress.")
    ] = False,
) -> None:
    """The experiments of "Attention Is All You Need", from raw text to its tables."""
    from nmtkit import progress

    progress.console.quiet = quiet


def _refuse(options: Mapping[str, object], why: str) -> None:
    """Refuse options, by name, that were given for another form of a command."""
    for name, value in options.items():
        if not (value is None or value is False or value == []):  # 0 was given
            raise UserError(f"{name} {why}; leave it out")


@app.command()
    overrides: Overrides = None,
    runs_dir: RunsDir = RUNS,
    mirror: Mirror = None,
    device: Device = "auto",
    max_tokens: MaxTokens = None,
    workers: Workers = None,
    processes: Processes = None,
    dtype: DType = Precision.AUTO,
    deterministic: Deterministic = False,

    machine = Machine(
        runs_dir,
        mirror=mirror,
        device=device,
        max_tokens=max_tokens,
        workers=workers,
        processes=processes,
        dtype=dtype,
        deterministic=deterministic,


@app.command()
def runs(runs_dir: RunsDir = RUNS, as_json: Json = False) -> None:
    """List all artifacts: run, stage, size, age, score."""
    from nmtkit.commands.known_runs import made
    from nmtkit.reporting.tables import print_made

    print_made(list(made(runs_dir)), as_json=as_json)


@app.command()
def verify(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="A recipe, or the folder of an artifact.")
    ],
    overrides: Overrides = None,
    runs_dir: RunsDir = RUNS,
    mirror: Mirror = None,
    as_json: Json = False,
) -> None:
    """Check that a result and all it rests on are as published."""
    from nmtkit.commands import verify as command
    from nmtkit.reporting.tables import print_verified

    if Path(run).is_dir():
        if overrides:
            raise UserError("--set is an option for recipes; a folder has its values already")
        found = command.verify_path(Path(run))
    else:
        found = command.verify_recipe(_chain(run, overrides, Machine(runs_dir, mirror=mirror)))
    print_verified(found, as_json=as_json)
    if n_differences := sum(len(each.differences) for each in found):
        raise UserError(f"{run} is not as it was published: {n_differences:,} differences")


@app.command()
def gc(
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="RUN", help="Keep this run too: a recipe, or a folder."),
    ] = None,
    drafts: Annotated[
        bool, typer.Option("--drafts", help="Also free what stopped runs left.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    runs_dir: RunsDir = RUNS,
) -> None:
    """Free the artifacts that no recipe needs, after asking."""
    from rich.filesize import decimal

    from nmtkit.commands import gc as command
    from nmtkit.reporting.tables import print_garbage

    machine = Machine(runs_dir)
    garbage = command.find_garbage(machine, keep or [], drafts=drafts)
    print_garbage(garbage)
    if not garbage.freed:
        typer.echo("nothing to free")
        return
    size = decimal(garbage.n_bytes)
    if not yes:
        if not sys.stdin.isatty():
            raise UserError(f"nothing was freed; add --yes to free these {size}")
        typer.confirm(f"Free {size}?", abort=True)
    command.free(garbage, machine, keep or [], drafts=drafts)
    typer.echo(f"freed {size}")


@app.command()
def recipes(as_json: Json = False) -> None:
    """List the recipes and studies that come with nmtkit."""
    from nmtkit.recipe_file import bundled_recipes, load_recipe
    from nmtkit.reporting.tables import print_recipes
    from nmtkit.study import bundled_studies, load_study

    rows = []
    for path in bundled_recipes():
        recipe = load_recipe(str(path))
        rows.append(("recipe", recipe.name, recipe.description, str(path)))
    for path in bundled_studies():
        study = load_study(str(path))
        rows.append(("study", study.name, study.description, str(path)))
    print_recipes(rows, as_json=as_json)


@app.command()
def corpora(
    runs_dir: RunsDir = RUNS,
    mirror: Mirror = None,
    as_json: Json = False,
) -> None:
    """List the public corpora that a recipe can name."""
    from nmtkit.commands import corpora as command
    from nmtkit.reporting.tables import print_corpora

    print_corpora(command.corpora(Machine(runs_dir, mirror=mirror)), as_json=as_json)


@app.command()
def plan(
    recipe: RecipeName,
    overrides: Overrides = None,
    runs_dir: RunsDir = RUNS,
    mirror: Mirror = None,
    device: Device = "auto",
    max_tokens: MaxTokens = None,
    processes: Processes = None,
    dtype: DType = Precision.AUTO,
    as_json: Json = False,
) -> None:
    """Show what would run, and what it costs on this machine."""
    from nmtkit.commands import plan as command

    machine = Machine(
        runs_dir,
        mirror=mirror,
        device=device,
        max_tokens=max_tokens,
        processes=processes,
        dtype=dtype,
    )
    command.run(_chain(recipe, overrides, machine), as_json=as_json)


@app.command()
def selftest(
    src: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Compare on this text, such as train.en, and --tgt."),
    ] = None,
    tgt: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The translation of --src, such as train.de."),
    ] = None,
    runs_dir: RunsDir = RUNS,
    as_json: Json = False,
) -> None:
    """Check machine, references and the demo's first steps."""
    from nmtkit.commands import selftest as command
    from nmtkit.reporting.tables import print_checks

    checks = print_checks(command.selftest(Machine(runs_dir), src, tgt), as_json=as_json)
    if failed := [each.what for each in checks if each.state == "failed"]:
        raise UserError(f"{', '.join(failed)} failed, as said above")


bench = typer.Typer(help="Measure this machine.", no_args_is_help=True)
app.add_typer(bench, name="bench")
BENCHED = ("wmt14-en-de-base", "wmt14-en-de-big", "multi30k-en-de")  # the last is for a CPU


@bench.command("train")
def bench_train(
    recipes: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RECIPE]...", help="The recipes whose models to train."),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help=f"{', '.join(BENCHED)}, and the gain of each technique.")
    ] = False,
    seconds: Annotated[
        float, typer.Option(min=0.1, max=DAY_S, help="Seconds to train each, after warming up.")
    ] = 30.0,
    overrides: Overrides = None,
    runs_dir: RunsDir = RUNS,
    device: Device = "auto",
    max_tokens: MaxTokens = None,
    dtype: DType = Precision.AUTO,
    as_json: Json = False,
) -> None:
    """Measure training: target tokens/s, MFU, memory, and where a step's time goes."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # or torch's profiler prints messages
    from nmtkit.commands.bench import bench_training
    from nmtkit.reporting.tables import print_training_speeds

    if every == bool(recipes):
        raise UserError("`nmtkit bench train` takes either recipes or --all; use one of them")
    machine = Machine(runs_dir, device=device, max_tokens=max_tokens, dtype=dtype)
    speeds = [
        speed
        for recipe in recipes or BENCHED
        for speed in bench_training(
            _chain(recipe, overrides, machine), seconds, each_technique=every
        )
    ]
    print_training_speeds(speeds, as_json=as_json)


@bench.command("translate")
def bench_translate(
    bundle: Annotated[Path, typer.Option(metavar="DIR", help="Translate with this bundle.")],
    source: Annotated[
        Path, typer.Option("--input", "-i", metavar="FILE", help="A text to translate.")
    ],
    engines: Annotated[
        list[EngineName] | None,
        typer.Option("--engine", help="torch by default; repeat it for several."),
    ] = None,
    dtypes: Annotated[
        list[EnginePrecision] | None,
        typer.Option("--dtype", help="float32 by default; repeat it for several."),
    ] = None,
    beams: Annotated[
        list[int] | None,
        typer.Option("--beam", help="In place of the bundle's; repeat it for several."),
    ] = None,
    batches: Annotated[
        list[int] | None,
        typer.Option(
            "--batch", min=1, max=MOST, help="Lines at a time, by default all; 1 shows latency."
        ),
    ] = None,
    lines: Annotated[int, typer.Option(min=1, max=MOST, help="Lines to translate.")] = 500,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Measure translation: sentences/s, tokens/s, memory, and the share of the hardware's peak."""
    from nmtkit.commands.bench_translate import bench_translation
    from nmtkit.reporting.tables import print_translation_speeds

    speeds = bench_translation(
        bundle,
        source,
        Machine(RUNS, device=device),
        engines=engines or [EngineName.TORCH],
        dtypes=dtypes or [EnginePrecision.FLOAT32],
        beams=beams or [],
        batches=batches or [],
        n_lines=lines,
    )
    print_translation_speeds(speeds, as_json=as_json)


@bench.command("layers")
def bench_layers(
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", callback=_page, help="Also draw time over n and d, as SVG."),
    ] = None,
    seconds: Annotated[
        float,
        typer.Option(
            min=0.0, max=DAY_S, help="Seconds to repeat each size; its fastest time counts."
        ),
    ] = 0.5,
    runs_dir: RunsDir = RUNS,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Measure Table 1: self-attention, recurrence and convolution over n, d, k and r."""
    from nmtkit import progress
    from nmtkit.commands import bench_layers as command
    from nmtkit.reporting.exhibit import write_exhibit
    from nmtkit.reporting.layers import layers_exhibit, write_plot
    from nmtkit.reporting.tables import print_layers

    table = command.bench_layers(Machine(runs_dir, device=device), seconds)
    print_layers(table, as_json=as_json)
    write_exhibit(runs_dir, "table-1", layers_exhibit(table))
    if plot is not None:
        write_plot(table, plot)
        progress.say(f"bench: wrote {plot}")


def _chain(
    recipe: str, overrides: list[str] | None, machine: Machine, remake: Sequence[str] = ()
) -> "Chain":
    from nmtkit.recipe_file import load_recipe
    from nmtkit.stages.chain import Chain

    machine.check()
    overrides = overrides or []
    return Chain(load_recipe(recipe, overrides), machine, recipe, overrides, remake=remake)


def _tell(path: Path) -> None:
    typer.echo(os.fsencode(path))  # a path may not be UTF-8
