"""The command line: one thin function per command.

Slow imports are inside the functions, so that `--help` is instant.
"""

import errno
import gc as collector
import io
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmtkit import __version__
from nmtkit.decoding.formats import Format
from nmtkit.errors import AlreadyReported, Stopped, UserError, is_out_of_memory, shown
from nmtkit.machine import RUNS, EngineName, EnginePrecision, Machine, Precision
from nmtkit.training.signals import end_with_agent
from nmtkit.visible import visible

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


def _study_names(beginning: str) -> list[str]:
    from nmtkit.study import bundled_studies

    return [path.stem for path in bundled_studies() if path.stem.startswith(beginning)]


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


def _utf8(text: str | None) -> str | None:
    try:
        (text or "").encode("utf-8")
    except UnicodeEncodeError:
        raise UserError(f"{shown(text)} is not valid UTF-8; convert the text to UTF-8") from None
    return text


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


@app.command()
def inspect(
    recipe: RecipeName,
    overrides: Overrides = None,
    runs_dir: RunsDir = RUNS,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", callback=_page, help="Also write a page with charts."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show lengths, vocabulary and samples of a prepared corpus."""
    from nmtkit import progress
    from nmtkit.commands import inspect as command
    from nmtkit.reporting.page import write_page
    from nmtkit.reporting.tables import print_inspection

    inspection = command.inspect(_chain(recipe, overrides, Machine(runs_dir)))
    if html is not None:
        write_page(inspection, html)
    print_inspection(inspection, as_json=as_json)
    if html is not None:
        progress.say(f"inspect: wrote {html}")


@app.command()
def average(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="RECIPE|DIR...",
            help="A recipe, whose last checkpoints are averaged; or, with --output, bundles and "
            "checkpoints of one model.",
            autocompletion=_recipe_names,
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="A new folder for the mean of DIR..."),
    ] = None,
    overrides: Overrides = None,
    runs_dir: RunsDir = RUNS,
    remake: Remake = False,
) -> None:
    """Average the last checkpoints, or any bundles and checkpoints, into a bundle."""
    if output is not None:
        from nmtkit.commands import average as command

        _refuse({"--set": overrides, "--remake": remake}, "is for `nmtkit average RECIPE`")
        _tell(command.average([Path(name) for name in names], output))
        return
    if len(names) > 1:
        raise UserError(f"to average these {len(names)} folders, add --output DIR")
    from nmtkit.stages import average as stage

    chain = _chain(names[0], overrides, Machine(runs_dir), ["average"] if remake else [])
    _tell(stage.run(chain).path)


@app.command()
def translate(
    recipe: Annotated[
        str | None, typer.Argument(metavar="[RECIPE]", help="Translate this recipe's test sets.")
    ] = None,
    bundles: Annotated[
        list[Path] | None,
        typer.Option(
            "--bundle",
            metavar="DIR",
            help="Translate a text with this bundle instead; several make an ensemble.",
        ),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option("--input", "-i", metavar="FILE", help="The text; standard input by default."),
    ] = None,
    target: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Standard output by default."),
    ] = None,
    interactive: Annotated[
        bool, typer.Option("--interactive", help="Translate what is typed, line by line.")
    ] = False,
    beam: Beam = None,
    length_penalty: LengthPenalty = None,
    n_best: Annotated[
        int | None, typer.Option("--n-best", min=1, metavar="N", help="Write N translations.")
    ] = None,
    how: Annotated[
        Format | None,
        typer.Option("--format", help="By default text, or moses with --n-best."),
    ] = None,
    align: Alignment = False,
    overrides: Overrides = None,
    runs_dir: RunsDir = RUNS,
    mirror: Mirror = None,
    device: Device = "auto",
    engine: Engine = None,
    dtype: Annotated[
        EnginePrecision | None,
        typer.Option(help="The precision of the engine; float32 by default.", show_default=False),
    ] = None,
    remake: Remake = False,
) -> None:
    """Translate the test sets, or any text with --bundle."""
    if (recipe is None) == (not bundles):
        raise UserError(
            "`nmtkit translate` takes either a RECIPE or --bundle DIR; name one of them"
        )
    of_text = {
        "--input": source,
        "--output": target,
        "--interactive": interactive,
        "--beam": beam,
        "--length-penalty": length_penalty,
        "--n-best": n_best,
        "--format": how,
        "--alignment": align,
        "--engine": engine,
        "--dtype": dtype,
    }
    if recipe is not None:
        from nmtkit.stages import translate as stage

        _refuse(of_text, "is an option of --bundle")
        machine = Machine(runs_dir, mirror=mirror, device=device)
        chain = _chain(recipe, overrides, machine, ["translate"] if remake else [])
        _tell(stage.run(chain).path)
    elif bundles:
        _refuse({"--remake": remake}, "is for `nmtkit translate RECIPE`")
        if (source or sys.stdin) is None or (target or sys.stdout) is None:
            raise UserError(
                "`nmtkit translate --bundle` reads standard input and writes standard output, and "
                "one of them is closed; give --input FILE and --output FILE"
            )
        if source and target and target.exists() and source.exists() and source.samefile(target):
            raise UserError(f"--input and --output are both {target}; name another --output")
        if interactive and (source or target):
            raise UserError("--interactive takes no --input and no --output; leave them out")
        if overrides:
            raise UserError(
                "--set overrides a recipe, and a bundle has none; with --bundle, use --beam and "
                "--length-penalty"
            )
        how = how or (Format.TEXT if n_best is None else Format.MOSES)
        if how == Format.TEXT and n_best is not None:
            raise UserError(
                "--format text has one translation per line; with --n-best, use moses, json or "
                "fairseq"
            )
        _check_alignment(how, asked=align)
        with _no_garbage():
            from nmtkit.commands import translate as command
            from nmtkit.translator import Translator

        with command.ended_by_ctrl_c():
            with _no_garbage():
                translator = Translator(
                    *bundles,
                    device=device,
                    engine=_engine(engine, align=align),
                    dtype=dtype or EnginePrecision.AUTO,
                    beam_size=beam,
                    length_penalty=length_penalty,
                )
            output = command.Output(how, n_best or 1, align)
            command.translate(translator, output, source, target, interactive=interactive)


@app.command()
def force(
    src: Annotated[Path, typer.Argument(metavar="SRC", help="The source, a file or a pipe.")],
    tgt: Annotated[
        Path, typer.Argument(metavar="TGT", help="The translation of --src, line by line.")
    ],
    bundles: Annotated[
        list[Path],
        typer.Option("--bundle", metavar="DIR", help="The bundle; several make an ensemble."),
    ],
    how: Annotated[
        Format,
        typer.Option("--format", help="text: log-probability and perplexity of each line."),
    ] = Format.TEXT,
    align: Alignment = False,
    device: Device = "auto",
    engine: Engine = None,
) -> None:
    """Rate given translations: log-probability and perplexity."""
    if how == Format.MOSES:
        raise UserError("--format moses is for translations that are found; use another")
    _check_alignment(how, asked=align)
    from nmtkit.commands.force import force as lines_of
    from nmtkit.commands.translate import ended_by_ctrl_c
    from nmtkit.translator import Translator

    with ended_by_ctrl_c():
        translator = Translator(*bundles, device=device, engine=_engine(engine, align=align))
        for line in lines_of(translator, src, tgt, how, align=align):
            typer.echo(line)


@app.command()
def attention(
    sentence: Annotated[
        str | None,
        typer.Argument(
            metavar="[SENTENCE]", callback=_utf8, help="A sentence, or --input and --line."
        ),
    ] = None,
    bundle: Annotated[
        Path, typer.Option("--bundle", metavar="DIR", help="The bundle.", show_default=False)
    ] = ...,  # type: ignore[assignment]
    target: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", callback=_utf8, help="Its translation; by default, the bundle's own."
        ),
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--input", "-i", metavar="FILE", help="Take a line of a text,")
    ] = None,
    reference: Annotated[
        Path | None, typer.Option("--ref", metavar="FILE", help="and of its translation:")
    ] = None,
    line: Annotated[int, typer.Option(min=1, max=MOST, help="the number of the line.")] = 1,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            callback=_page,
            help="Write a page to choose layers, heads and words on.",
        ),
    ] = None,
    svg: Annotated[
        Path | None,
        typer.Option(metavar="FILE", callback=_page, help="Write a picture of what --show names."),
    ] = None,
    show: Annotated[
        str | None,
        typer.Option(
            metavar="KIND.LAYER[.HEAD[.WORD]]",
            help="encoder, decoder or cross; by default the first that is found.",
        ),
    ] = None,
    heat: Annotated[bool, typer.Option("--heat", help="Draw heat maps instead of lines.")] = False,
    runs_dir: RunsDir = RUNS,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Draw what a bundle attends to, as the paper's Figures 3 to 5."""
    from nmtkit import progress
    from nmtkit.commands import attention as command
    from nmtkit.reporting.attention import attention_exhibit, write_page, write_svg
    from nmtkit.reporting.exhibit import write_exhibit
    from nmtkit.reporting.tables import print_attention
    from nmtkit.translator import Translator

    if (sentence is None) == (source is None):
        raise UserError("`nmtkit attention` takes either a SENTENCE or --input FILE; give one")
    if source is None:
        _refuse({"--ref": reference}, "is an option of --input")
    else:
        sentence = command.line_of(source, line)
    if reference is not None:
        _refuse({"--target": target}, "and --ref are both a translation")
        target = command.line_of(reference, line)
    if svg is None:
        _refuse({"--show": show, "--heat": heat}, "is an option of --svg")
    assert sentence is not None
    translator = Translator(bundle, device=device, engine=EngineName.TORCH)
    picture = command.picture_of(translator, bundle, sentence, target)
    if svg is not None:
        view = command.view_of(picture, show) if show else picture.findings[0].view
        write_svg(picture, view, svg, heat=heat)
        progress.say(f"attention: drew {view.title} in {svg}")
    if html is not None:
        write_page(picture, html)
        progress.say(f"attention: wrote {html}")
    print_attention(picture, as_json=as_json)
    write_exhibit(runs_dir, "figures-3-5", attention_exhibit(picture))


@app.command()
def export(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A bundle.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder.")],
    how: Annotated[str, typer.Option("--format", help="ctranslate2 or huggingface.")],
) -> None:
    """Write a model for CTranslate2 or Hugging Face."""
    from nmtkit.commands import export as command

    if how not in list(command.ExportFormat):
        raise UserError(f"--format {how} is not known; use ctranslate2 or huggingface")
    _tell(command.export(bundle, folder, command.ExportFormat(how)))


@app.command("import")
def import_model(
    checkpoint: Annotated[
        Path, typer.Argument(metavar="CHECKPOINT", help="A checkpoint of fairseq.")
    ],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder.")],
    codes: Annotated[
        Path, typer.Option(metavar="FILE", help="The BPE codes of subword-nmt or fastBPE.")
    ],
    langpair: Annotated[str, typer.Option(metavar="SRC-TGT", help="The languages, such as en-de.")],
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="The folder of dict.SRC.txt and dict.TGT.txt, if not CHECKPOINT's."
        ),
    ] = None,
    tokenizer: Annotated[
        str, typer.Option(help="How text was tokenized: moses or none.")
    ] = "moses",
    hyphens: Annotated[
        bool | None,
        typer.Option(
            "--aggressive-hyphens/--no-aggressive-hyphens",
            help="Whether it was with tokenizer.perl -a; by default, as the dictionary shows.",
            show_default=False,
        ),
    ] = None,
    normalize: Annotated[
        bool, typer.Option("--normalize-punctuation", help="Punctuation was normalized before.")
    ] = False,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Text was lower-cased.")] = False,
) -> None:
    """Make a bundle of a model that fairseq trained."""
    from nmtkit.commands import import_model as command
    from nmtkit.languages import Language

    if tokenizer not in ("moses", "none"):
        raise UserError(f"--tokenizer {tokenizer} is not known; use moses or none")
    text = command.TextOptions(
        Language.pair_of(langpair),
        tokenizer="moses" if tokenizer == "moses" else "none",
        aggressive_hyphens=hyphens,
        normalize_punctuation=normalize,
        lowercase=lowercase,
    )
    _tell(command.import_fairseq(checkpoint, folder, data, codes, text))


def _check_alignment(how: Format, *, asked: bool) -> None:
    if asked and not how.needs_details:
        raise UserError(f"--format {how} has no alignment; use --format json or fairseq")


@app.command()
def score(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="RECIPE|HYP",
            help="A recipe; or translations and their reference; or, with --ref or --test-set, "
            "translations of several systems. - is standard input.",
        ),
    ],
    references: Annotated[
        list[Path] | None,
        typer.Option("--ref", metavar="FILE", help="A reference of HYP...; there may be several."),
    ] = None,
    lang: Annotated[str | None, typer.Option(help="The language of the files, such as de.")] = None,
    test_set: Annotated[
        str | None,
        typer.Option(metavar="CORPUS", help="The reference: this corpus of the catalog."),
    ] = None,
    langpair: Annotated[
        str | None, typer.Option(metavar="SRC-TGT", help="The languages of CORPUS, such as en-de.")
    ] = None,
    lowercase: Annotated[
        bool, typer.Option("--lowercase", help="Lower-case the files before comparing.")
    ] = False,
    chrf: Annotated[bool, typer.Option("--chrf", help="Compute chrF of the files too.")] = False,
    ter: Annotated[bool, typer.Option("--ter", help="Compute TER of the files too.")] = False,
    metric: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Of files: bleu, the default, or bracket-f1 of trees."),
    ] = None,
    overrides: Overrides = None,
    runs_dir: RunsDir = RUNS,
    mirror: Mirror = None,
    remake: Remake = False,
    as_json: Json = False,
) -> None:
    """Score a recipe's translations, or files of plain text."""
    from nmtkit.reporting.tables import print_scores

    of_own = {"--ref": references, "--lang": lang}
    of_catalog = {"--test-set": test_set, "--langpair": langpair, "--mirror": mirror}
    of_text = {"--lang": lang, "--lowercase": lowercase, "--chrf": chrf, "--ter": ter}
    of_files = {**of_text, "--metric": metric}
    if test_set is None and not references and len(names) == 1:
        from nmtkit.evaluation.scores import read_scores
        from nmtkit.stages import score as stage
        from nmtkit.stages.code import other_code

        _refuse({**of_own, **of_catalog, **of_files}, "is for files: `nmtkit score HYP REF`")
        chain = _chain(names[0], overrides, Machine(runs_dir), ["score"] if remake else [])
        scored = stage.run(chain)
        other = other_code(scored.manifest)
        print_scores(read_scores(scored), as_json=as_json, other=other)
        return
    from nmtkit.commands import score as command
    from nmtkit.languages import TREE

    _refuse({"--set": overrides, "--remake": remake}, "is for `nmtkit score RECIPE`")
    if metric not in (None, "bleu", "bracket-f1"):
        raise UserError(f"--metric {metric} is not known; use bleu or bracket-f1")
    if metric == "bracket-f1":
        _refuse({**of_text, **of_catalog}, "is for translations, and --metric bracket-f1 for trees")
        lang = TREE.tag
    if test_set is not None:
        _refuse(of_own, "is for a reference of your own, and --test-set for one of the catalog")
        if langpair is None:
            raise UserError("--test-set needs --langpair SRC-TGT, such as --langpair en-de")
        machine = Machine(runs_dir, mirror=mirror)
        reference = command.catalog_test_set(test_set, langpair, machine)
    else:
        _refuse({**of_catalog, "--runs-dir": runs_dir != RUNS}, "is for --test-set CORPUS")
        if not references and len(names) == 2:
            references = [Path(names.pop())]
        if not references:
            raise UserError(f"name the reference of these {len(names)} files: add --ref FILE")
        if lang is None:
            raise UserError(
                "to score files, nmtkit must know their language: add --lang, such as --lang de"
            )
        reference = command.own_test_set(references, lang)
    scores = command.score_files(
        names, reference, lowercase=lowercase, with_chrf=chrf, with_ter=ter
    )
    print_scores(scores, as_json=as_json)


def _refuse(options: Mapping[str, object], why: str) -> None:
    """Refuse options, by name, that were given for another form of a command."""
    for name, value in options.items():
        if not (value is None or value is False or value == []):  # 0 was given
            raise UserError(f"{name} {why}; leave it out")


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
    remake: Remake = False,
    as_json: Json = False,
) -> None:
    """Run all stages that are not done yet, and report the results."""
    from nmtkit.commands.run import run_all
    from nmtkit.stages.chain import STAGES

    machine = Machine(
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
    run_all(_chain(recipe, overrides, machine, list(STAGES) if remake else []), as_json=as_json)


@app.command()
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the recipe is called.")],
    src: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Training text, one sentence a line.")
    ] = None,
    tgt: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The translation of --src, line by line.")
    ] = None,
    tsv: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Text and translation in tab-separated columns."),
    ] = None,
    csv: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Text and translation in columns of CSV.")
    ] = None,
    jsonl: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Text and translation in an object a line.")
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,..",
            help="Names of all columns of TSV and CSV, as in id,en,de; of the two to read of JSON "
            "and datasets.",
        ),
    ] = None,
    tmx: Annotated[Path | None, typer.Option(metavar="FILE", help="A translation memory.")] = None,
    xml: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Text and translation in the XML of WMT.")
    ] = None,
    opus_zip: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A zip archive of OPUS, in Moses format.")
    ] = None,
    dataset: Annotated[
        Path | None,
        typer.Option(metavar="PLACE", help="A folder that `datasets` saved, or Parquet."),
    ] = None,
    src_lang: Annotated[
        str | None,
        typer.Option(metavar="LANG", help="Language of the text; by default the suffix of --src."),
    ] = None,
    tgt_lang: Annotated[
        str | None,
        typer.Option(
            metavar="LANG", help="Language of the translation; by default the suffix of --tgt."
        ),
    ] = None,
    dev: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="SRC TGT", help="Development set; by default held out of the text."),
    ] = None,
    test: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="SRC TGT", help="Test set; by default held out of the text."),
    ] = None,
    vocabulary: Annotated[
        str,
        typer.Option(help="sentencepiece of plain text, or bpe of Moses tokens as in the paper."),
    ] = "sentencepiece",
) -> None:
    """Write a recipe for a text of your own, NAME.toml."""
    from nmtkit.commands import new as command
    from nmtkit.sources.file_pair import FilePair

    if vocabulary not in ("sentencepiece", "bpe"):
        raise UserError(f"--vocabulary {vocabulary} is not known; use sentencepiece or bpe")
    files = {"tsv": tsv, "csv": csv, "jsonl": jsonl, "tmx": tmx, "xml": xml}
    files |= {"opus_zip": opus_zip, "dataset": dataset}
    text, langs = command.training_text(src, tgt, files, columns, src_lang, tgt_lang)
    recipe = command.new(
        name.removesuffix(".toml"),
        text,
        langs,
        "bpe" if vocabulary == "bpe" else "sentencepiece",
        dev=FilePair(name="dev", src=dev[0], tgt=dev[1]) if dev else None,
        test=FilePair(name="test", src=test[0], tgt=test[1]) if test else None,
    )
    typer.echo(
        f"Wrote {recipe}. Next:\n"
        f"  nmtkit plan ./{recipe}    how long it takes on this machine\n"
        f"  nmtkit run ./{recipe}     train, translate the test set and score it\n"
        f'  nmtkit translate --bundle "$(nmtkit average ./{recipe})" -i FILE -o FILE'
    )


@app.command()
def compare(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN|HYP...",
            help="The baseline, then other systems: recipes, 'RECIPE --set SECTION.KEY=VALUE', or "
            "files of plain text.",
        ),
    ],
    test_set: Annotated[
        str | None, typer.Option(metavar="NAME", help="The test set of the runs; else the first.")
    ] = None,
    references: Annotated[
        list[Path] | None,
        typer.Option("--ref", metavar="FILE", help="A reference of HYP...; there may be several."),
    ] = None,
    lang: Annotated[str | None, typer.Option(help="The language of the files, such as de.")] = None,
    source: Annotated[
        Path | None, typer.Option("--src", metavar="FILE", help="The source of HYP..., to show.")
    ] = None,
    runs_dir: RunsDir = RUNS,
    as_json: Json = False,
) -> None:
    """Compare systems: BLEU, significance, largest differences."""
    from nmtkit.commands import compare as command
    from nmtkit.reporting.tables import print_comparison

    machine = Machine(runs_dir)
    comparison = command.compare(
        names,
        machine,
        test_set=test_set,
        references=references or [],
        lang=lang,
        source=source,
    )
    print_comparison(comparison, as_json=as_json)


@app.command()
def study(
    name: Annotated[
        str,
        typer.Argument(
            metavar="STUDY",
            autocompletion=_study_names,
            help="The name of a study, such as table-3, or a path such as ./mine.toml.",
        ),
    ],
    rows: Annotated[
        str | None,
        typer.Option(metavar="A,B,..", help="Run these rows: names, or patterns such as 'A-*'."),
    ] = None,
    show: Annotated[
        bool, typer.Option("--show", help="Run nothing; print the table of what is finished.")
    ] = False,
    overrides: Overrides = None,
    runs_dir: RunsDir = RUNS,
    mirror: Mirror = None,
    device: Device = "auto",
    max_tokens: MaxTokens = None,
    workers: Workers = None,
    processes: Processes = None,
    dtype: DType = Precision.AUTO,
    deterministic: Deterministic = False,
    as_json: Json = False,
) -> None:
    """Run variants of a recipe, such as Table 3, and print their table."""
    from nmtkit.commands import study as command
    from nmtkit.reporting.tables import print_study
    from nmtkit.study import load_study

    machine = Machine(
        runs_dir,
        mirror=mirror,
        device=device,
        max_tokens=max_tokens,
        workers=workers,
        processes=processes,
        dtype=dtype,
        deterministic=deterministic,
    )
    machine.check()
    loaded = load_study(name)
    chains = command.chains_of(loaded, machine, overrides or [])
    chosen = loaded.chosen(rows)
    failed = [] if show else command.run_rows(chosen, chains)
    print_study(command.table(loaded, chains), as_json=as_json)
    if failed:
        raise UserError(f"of study {name}, {', '.join(failed)} failed, as said above; {AGAIN}")


@app.command()
def report(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN]...", help="These runs alone: recipes, or 'RECIPE --set ...'."
        ),
    ] = None,
    studies: Annotated[
        list[str] | None,
        typer.Option(
            "--study", metavar="STUDY", help="These studies alone: names, or 'STUDY --set ...'."
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="The folder to write to.")
    ] = Path("report"),
    runs_dir: RunsDir = RUNS,
) -> None:
    """Write a report of all runs: Markdown, a page, and JSON."""
    from nmtkit.commands import report as command

    for path in command.write(
        command.gather(Machine(runs_dir), names or [], studies or []), output
    ):
        _tell(path)


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


def _engine(engine: EngineName | None, *, align: bool) -> EngineName:
    """Return the engine that was named; auto is torch where words are to be linked."""
    if not align or engine not in (None, EngineName.AUTO):
        return engine or EngineName.AUTO
    from nmtkit import progress

    progress.say("engine: torch, since CTranslate2 links no words")
    return EngineName.TORCH


def _tell(path: Path) -> None:
    typer.echo(os.fsencode(path))  # a path may not be UTF-8


@contextmanager
def _no_garbage() -> Iterator[None]:
    """Import and load without the garbage collector, which takes 0.3 s then and finds nothing."""
    collector.disable()
    try:
        yield
    finally:
        collector.freeze()  # nor does it look there later
        collector.enable()


def main() -> None:
    """Run the command line; a user's mistake ends in one sentence and a non-zero exit code."""
    _fill_closed_streams()
    end_with_agent()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Whatever the locale is; bytes of a path that are not Unicode are printed as escapes.
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")
    try:
        app()
    except UserError as error:
        sys.exit(f"nmtkit: {error}")
    except Stopped as stop:
        typer.echo(f"nmtkit: {stop}", err=True)
        sys.exit(stop.exit_code)
    except AlreadyReported as end:
        sys.exit(end.exit_code)
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # typer exits with 1 on it
            sys.exit(CLOSED_PIPE)
        if end.code == CTRL_C:  # typer exits with this on KeyboardInterrupt, and prints nothing
            typer.echo(
                "nmtkit: stopped; finished work is kept, and the same command resumes", err=True
            )
        raise
    except OSError as error:
        sys.exit(f"nmtkit: {_explain(error)}")
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error) and "can't start new thread" not in str(error):
            raise
        sys.exit(f"nmtkit: {OUT_OF_MEMORY}")


def _fill_closed_streams() -> None:
    """Open /dev/null in place of each closed standard stream.

    The next file to be opened would get its descriptor, and whatever a library prints.
    """
    for descriptor in (STDIN, STDOUT, STDERR):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free descriptor: this one


def _explain(error: OSError) -> str:
    # The system does not name a file that is open already.
    where = visible(
        f"({error.filename})" if error.filename else "(in --runs-dir, or where the output goes)"
    )
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"the disk is full {where}; free some space and {AGAIN}"
    if error.errno == errno.ENOMEM:
        return OUT_OF_MEMORY
    return f"{error.strerror or error} {where}; fix this and {AGAIN}"
