"""Options that several commands share, as `Annotated` aliases with their help texts."""

from pathlib import Path
from typing import Annotated

import typer

from nmtkit.cli.inputs import check_folder, check_mirror, check_page, file_or_stream, recipe_names
from nmtkit.config.settings import Accelerate, EngineName, EnginePrecision, Precision
from nmtkit.rendering.show import TableForm

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
        callback=check_mirror,
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

AllKinds = Annotated[
    bool, typer.Option("--all", help="Show all kinds of BLEU, and how each score was computed.")
]
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
# For commands that load one model; a list, to detect a second --bundle (`find_bundle`).
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
EngineDtype = Annotated[
    EnginePrecision | None,
    typer.Option(
        metavar="TYPE",
        help="Precision of the engine: float32 (default), bfloat16, float16 or int8.",
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
