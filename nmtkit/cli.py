"""The command line: one thin function a command.

What is slow to import is imported inside them, so that `--help` is instant.
"""

import errno
import io
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmtkit.errors import Stopped, Told, UserError
from nmtkit.training import lifeline
from nmtkit.visible import visible

if TYPE_CHECKING:
    from nmtkit.machine import Machine
    from nmtkit.stages.chain import Chain

app = typer.Typer(
    name="nmtkit",
    help='The experiments of "Attention Is All You Need", from raw text to its tables.',
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

RecipeName = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE",
        help="A recipe's name (see `nmtkit recipes`) or a path such as ./mine.toml.",
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override a value of the recipe."),
]


class Precision(StrEnum):
    """Of activations."""

    AUTO = "auto"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


RunsDir = Annotated[Path, typer.Option(help="Where artifacts and downloads lie.")]
Mirror = Annotated[
    Path | None,
    typer.Option(help="A folder with downloads as HOST/PATH, read in place of the network."),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")]
MaxTokens = Annotated[
    int | None,
    typer.Option(min=1, help="Most tokens a side of a micro-batch; lower it if memory is short."),
]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Processes that prepare text; all cores if not given.")
]
Processes = Annotated[
    int | None,
    typer.Option(min=1, help="Processes that train; all CUDA devices if not given, 1 on a CPU."),
]
DType = Annotated[
    Precision,
    typer.Option(help="Of activations in training; auto: bfloat16 where the GPU has it."),
]
Deterministic = Annotated[
    bool, typer.Option("--deterministic", help="Train to the same bits each time, if slower.")
]
TensorBoard = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Also write training's metrics for TensorBoard.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]

RUNS = Path("runs")
CTRL_C = 130  # exit code: 128 + SIGINT
STDIN, STDOUT, STDERR = 0, 1, 2
AGAIN = "run the same command again: nothing that was finished is lost"
OUT_OF_MEMORY = (
    "out of memory; give it more, or use less: fewer --workers or --processes, lower --max-tokens, "
    f"a smaller model or beam; then {AGAIN}"
)

# What torch and Python call it in a RuntimeError.
NO_MEMORY = ("DefaultCPUAllocator", "out of memory", "can't start new thread")


@app.command()
def prepare(
    recipe: RecipeName,
    overrides: Overrides = None,
    runs_dir: RunsDir = RUNS,
    mirror: Mirror = None,
    workers: Workers = None,
) -> None:
    """Download, tokenize, clean, split into subwords, and write token ids."""
    from nmtkit.stages import prepare as stage

    machine = _machine(runs_dir, mirror=mirror, workers=workers)
    _tell(stage.run(_chain(recipe, overrides, machine)).path)


@app.command()
def train(
    recipe: RecipeName,
    overrides: Overrides = None,
    runs_dir: RunsDir = RUNS,
    device: Device = "auto",
    max_tokens: MaxTokens = None,
    processes: Processes = None,
    dtype: DType = Precision.AUTO,
    deterministic: Deterministic = False,
    tensorboard: TensorBoard = None,
) -> None:
    """Train the model on the prepared corpus; a stopped run is gone on with."""
    from nmtkit.stages import train as stage
    from nmtkit.training.distributed import is_worker

    machine = _machine(
        runs_dir,
        device=device,
        max_tokens=max_tokens,
        processes=processes,
        dtype=dtype,
        deterministic=deterministic,
        tensorboard=tensorboard,
    )
    chain = _chain(recipe, overrides, machine)
    path = stage.run(chain).path
    if not is_worker():
        _tell(path)


@app.command()
def inspect(
    recipe: RecipeName,
    overrides: Overrides = None,
    runs_dir: RunsDir = RUNS,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write it as a page, with charts.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what a prepared corpus holds: lengths, vocabulary, unknown tokens, samples."""
    from nmtkit import progress
    from nmtkit.commands import inspect as command
    from nmtkit.reporting.page import write_page
    from nmtkit.reporting.tables import print_inspection

    inspection = command.inspect(_chain(recipe, overrides, _machine(runs_dir)))
    if html is not None:
        write_page(inspection, html)
    print_inspection(inspection, as_json=as_json)
    if html is not None:
        progress.say(f"inspect: wrote {html}")


@app.command()
def average(recipe: RecipeName, overrides: Overrides = None, runs_dir: RunsDir = RUNS) -> None:
    """Average the last checkpoints into a bundle that translates."""
    from nmtkit.stages import average as stage

    _tell(stage.run(_chain(recipe, overrides, _machine(runs_dir))).path)


@app.command()
def translate(
    recipe: Annotated[
        str | None, typer.Argument(metavar="[RECIPE]", help="Translate this recipe's test set.")
    ] = None,
    bundle: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Translate standard input with this bundle instead."),
    ] = None,
    overrides: Overrides = None,
    runs_dir: RunsDir = RUNS,
    device: Device = "auto",
) -> None:
    """Translate a recipe's test set, or standard input line by line with --bundle."""
    from nmtkit.stages import translate as stage

    if (recipe is None) == (bundle is None):
        raise UserError(
            "`nmtkit translate` takes either a RECIPE or --bundle DIR; name one of them"
        )
    if recipe is not None:
        _tell(stage.run(_chain(recipe, overrides, _machine(runs_dir, device=device))).path)
    elif bundle is not None:
        from nmtkit.recipe import load_decoding

        if sys.stdin is None or sys.stdout is None:
            raise UserError(
                "`nmtkit translate --bundle` reads standard input and writes standard output, and "
                "one of them is closed; redirect it to a file"
            )

        machine = _machine(runs_dir, device=device)
        stage.translate_stream(bundle, load_decoding(overrides or []), machine)


@app.command()
def score(
    recipe_or_hypotheses: Annotated[str, typer.Argument(metavar="RECIPE | HYP REF")],
    references: Annotated[Path | None, typer.Argument(hidden=True)] = None,
    lang: Annotated[
        str | None, typer.Option(help="The language of HYP and REF, such as de.")
    ] = None,
    lowercase: Annotated[
        bool, typer.Option(help="Of two files: lower-case both before comparing.")
    ] = False,
    overrides: Overrides = None,
    runs_dir: RunsDir = RUNS,
    as_json: Json = False,
) -> None:
    """Count BLEU each way: for a recipe's translation, or for two files of plain text."""
    from nmtkit.artifacts import read_json, verify
    from nmtkit.reporting.tables import print_scores
    from nmtkit.stages import score as stage

    if references is None:
        artifact = verify(stage.run(_chain(recipe_or_hypotheses, overrides, _machine(runs_dir))))
        scores = read_json(artifact.path / stage.SCORES)
    elif lang is None:
        raise UserError(
            "to score two files, nmtkit must know their language: add --lang, such as --lang de"
        )
    else:
        from nmtkit.recipe import ScoringConfig

        scoring = ScoringConfig(lowercase=lowercase, normalize_punctuation=False)
        scores = stage.score_files(Path(recipe_or_hypotheses), references, lang, scoring)
    print_scores(scores, as_json=as_json)


@app.command()
def run(
    recipe: RecipeName,
    overrides: Overrides = None,
    runs_dir: RunsDir = RUNS,
    mirror: Mirror = None,
    device: Device = "auto",
    max_tokens: MaxTokens = None,
    workers: Workers = None,
    processes: Processes = None,
    dtype: DType = Precision.AUTO,
    deterministic: Deterministic = False,
    tensorboard: TensorBoard = None,
) -> None:
    """Run all stages, skipping what is fresh, and report the results."""
    from nmtkit.commands.run import run_all

    machine = _machine(
        runs_dir,
        mirror=mirror,
        device=device,
        max_tokens=max_tokens,
        workers=workers,
        processes=processes,
        dtype=dtype,
        deterministic=deterministic,
        tensorboard=tensorboard,
    )
    run_all(_chain(recipe, overrides, machine))


@app.command()
def status(
    recipe: RecipeName, overrides: Overrides = None, runs_dir: RunsDir = RUNS, as_json: Json = False
) -> None:
    """Show which stages are done, and where their artifacts lie."""
    from nmtkit.reporting.tables import print_status
    from nmtkit.stages.chain import states

    print_status(recipe, states(_chain(recipe, overrides, _machine(runs_dir))), as_json=as_json)


@app.command()
def recipes() -> None:
    """List the recipes that come with nmtkit."""
    from nmtkit.recipe import bundled_recipes, load_recipe
    from nmtkit.reporting.tables import print_recipes

    known = {str(path): load_recipe(str(path)) for path in bundled_recipes()}
    print_recipes([(recipe.name, recipe.description, path) for path, recipe in known.items()])


@app.command()
def corpora(
    runs_dir: RunsDir = RUNS,
    mirror: Mirror = None,
    as_json: Json = False,
) -> None:
    """List the public corpora that a recipe may name: pairs, licence, files, and what is here."""
    from nmtkit.commands import corpora as command
    from nmtkit.reporting.tables import print_corpora

    print_corpora(command.corpora(_machine(runs_dir, mirror=mirror)), as_json=as_json)


@app.command()
def plan(
    recipe: RecipeName,
    overrides: Overrides = None,
    runs_dir: RunsDir = RUNS,
    mirror: Mirror = None,
    device: Device = "auto",
    max_tokens: MaxTokens = None,
    as_json: Json = False,
) -> None:
    """Say what would run, what it downloads, and what it costs on this machine; change nothing."""
    from nmtkit.commands import plan as command
    from nmtkit.reporting.tables import print_plan

    machine = _machine(runs_dir, mirror=mirror, device=device, max_tokens=max_tokens)
    chain = _chain(recipe, overrides, machine)
    print_plan(command.plan(chain), as_json=as_json)


bench = typer.Typer(help="Measure this machine.", no_args_is_help=True)
app.add_typer(bench, name="bench")
BENCHED = ("wmt14-en-de-base", "wmt14-en-de-big", "multi30k-en-de")  # the last one small, for a CPU


@bench.command("train")
def bench_train(
    recipes: Annotated[
        list[str] | None, typer.Argument(metavar="[RECIPE]...", help="Whose models to train.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help=f"{', '.join(BENCHED)}, and what each technique gains.")
    ] = False,
    seconds: Annotated[float, typer.Option(min=0.1, help="To train each, after a start.")] = 30.0,
    overrides: Overrides = None,
    runs_dir: RunsDir = RUNS,
    device: Device = "auto",
    max_tokens: MaxTokens = None,
    dtype: DType = Precision.AUTO,
    as_json: Json = False,
) -> None:
    """Measure training: target tokens/s, MFU, memory, and where a step's time goes."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # else torch's profiler speaks
    from nmtkit.commands.bench import bench_training
    from nmtkit.reporting.tables import print_training_speeds

    if every == bool(recipes):
        raise UserError("`nmtkit bench train` takes recipes or --all; give one of them")
    machine = _machine(runs_dir, device=device, max_tokens=max_tokens, dtype=dtype)
    speeds = [
        speed
        for recipe in recipes or BENCHED
        for speed in bench_training(
            _chain(recipe, overrides, machine), seconds, each_technique=every
        )
    ]
    print_training_speeds(speeds, as_json=as_json)


def _machine(
    runs_dir: Path,
    *,
    mirror: Path | None = None,
    device: str = "auto",
    max_tokens: int | None = None,
    workers: int | None = None,
    processes: int | None = None,
    dtype: Precision = Precision.AUTO,
    deterministic: bool = False,
    tensorboard: Path | None = None,
) -> "Machine":
    from nmtkit.machine import Machine, default_workers

    return Machine(
        runs_dir,
        mirror,
        device,
        max_tokens,
        workers or default_workers(),
        processes,
        deterministic,
        dtype.value,
        tensorboard,
    )


def _chain(recipe: str, overrides: list[str] | None, machine: "Machine") -> "Chain":
    from nmtkit.recipe import load_recipe
    from nmtkit.stages.chain import Chain

    return Chain(load_recipe(recipe, overrides or []), machine, recipe, overrides or [])


def _tell(path: Path) -> None:
    typer.echo(os.fsencode(path))  # a path need not be UTF-8


def main() -> None:
    """Run the command line; a user's mistake is one sentence and a non-zero exit."""
    _fill_closed_streams()
    lifeline.hold()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Whatever the locale says; what is no Unicode in a path is shown as an escape.
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")
    try:
        app()
    except UserError as error:
        sys.exit(f"nmtkit: {error}")
    except Stopped as stop:
        typer.echo(f"nmtkit: {stop}", err=True)
        sys.exit(stop.exit_code)
    except Told as told:
        sys.exit(told.exit_code)
    except SystemExit as end:
        if end.code == CTRL_C:  # typer makes this of KeyboardInterrupt, without a word
            typer.echo(
                "nmtkit: stopped; what was finished is kept, and the same command goes on from "
                "there",
                err=True,
            )
        raise
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), STDOUT)  # nobody reads on: not our mistake
        sys.exit(141)
    except OSError as error:
        sys.exit(f"nmtkit: {_explain(error)}")
    except MemoryError:
        sys.exit(f"nmtkit: {OUT_OF_MEMORY}")
    except RuntimeError as error:
        if not any(words in str(error) for words in NO_MEMORY):
            raise
        sys.exit(f"nmtkit: {OUT_OF_MEMORY}")


def _fill_closed_streams() -> None:
    """Put /dev/null where a standard stream is closed: the next file would get its descriptor.

    What a library then prints to it would be written into that file.
    """
    for descriptor in (STDIN, STDOUT, STDERR):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free descriptor, which is this one


def _explain(error: OSError) -> str:
    # The system names no file where one that is open can't be written or read.
    where = visible(
        f"({error.filename})"
        if error.filename
        else "(in --runs-dir, or where standard output goes)"
    )
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"the disk is full {where}; free some space and {AGAIN}"
    if error.errno == errno.ENOMEM:
        return OUT_OF_MEMORY
    return f"{error.strerror or error} {where}; fix this and {AGAIN}"
