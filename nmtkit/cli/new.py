"""nmtkit new."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from nmtkit.benchmark.estimates import estimate_run, training_parts
from nmtkit.cli import options as opt
from nmtkit.cli.hints import hub_hint
from nmtkit.cli.inputs import load_pipeline
from nmtkit.config.loading import NoFileError
from nmtkit.config.settings import RUNS, Settings
from nmtkit.decoding.bundle import open_bundle
from nmtkit.new.corpus_names import corpus_languages, opus_hints, public_corpus
from nmtkit.new.input_texts import (
    InputText,
    Languages,
    UnclearTextError,
    check_formats,
    find_languages,
    parse_texts,
    propose,
)
from nmtkit.new.new_recipe import NewRecipe, Vocabulary, write_recipe
from nmtkit.rendering.show import Form, show
from nmtkit.sources.download import MissingDownloadError
from nmtkit.sources.file_pair import FilePair
from nmtkit.sources.opus import OPUS_API
from nmtkit.sources.parallel import check_test_set
from nmtkit.sources.source import Source
from nmtkit.sources.table import Delimiter
from nmtkit.utils.errors import UserError

TRIAL_SECONDS = 4.0  # of training, for an estimate of its duration


def new(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="Name of the new recipe.", show_default=False),
    ],
    # Training text
    src: Annotated[
        list[str] | None,
        typer.Option("--src", metavar="FILE", help="Source text, one sentence per line."),
    ] = None,
    tgt: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="Target text: the translation of --src, line by line."),
    ] = None,
    tsv: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE", help="TSV file; append :-,en,de to name its columns, with - for others."
        ),
    ] = None,
    csv: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="CSV file; name its columns as for --tsv."),
    ] = None,
    jsonl: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="JSON Lines file; append :SRC,TGT to name its keys."),
    ] = None,
    tmx: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="Translation memory in TMX format."),
    ] = None,
    opus_zip: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="OPUS archive in Moses format."),
    ] = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH",
            help="Parquet file or folder, or a folder that `save_to_disk` of Hugging Face "
            "`datasets` wrote.",
        ),
    ] = None,
    corpora: Annotated[
        list[str] | None,
        typer.Option(
            "--corpus",
            metavar="NAME",
            help="Public corpus, such as multi30k-train (`nmtkit corpora`), opus:TED2020/v1 or "
            "hub:OWNER/NAME:SUBSET of the Hugging Face Hub.",
        ),
    ] = None,
    # How files are read
    delimiter: Annotated[
        Delimiter | None,
        typer.Option(metavar="CHAR", help="Delimiter of --csv, if it cannot be detected."),
    ] = None,
    quoted: Annotated[
        bool | None,
        typer.Option(
            "--quoted/--unquoted",
            help="Read the cells of --tsv as quoted, or as they are (default: detected).",
            show_default=False,
        ),
    ] = None,
    plain: opt.Plain = False,
    # Languages
    src_lang: Annotated[
        str | None,
        typer.Option(metavar="LANG", help="Source language, if it cannot be detected."),
    ] = None,
    tgt_lang: Annotated[
        str | None,
        typer.Option(metavar="LANG", help="Target language, if it cannot be detected."),
    ] = None,
    reverse: Annotated[
        bool, typer.Option("--reverse", help="Translate in the other direction.")
    ] = False,
    # Development and test sets
    dev: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="SRC TGT", help="Development set (default: held out of the text)."),
    ] = None,
    test: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="SRC TGT", help="Test set (default: held out of the text)."),
    ] = None,
    dev_set: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Public development set, such as wmt20."),
    ] = None,
    test_set: opt.TestSet = None,
    # The model
    vocabulary: Annotated[
        Vocabulary | None,
        typer.Option(
            metavar="KIND",
            help="sentencepiece (of plain text; default) or bpe (of Moses tokens).",
        ),
    ] = None,
    parent: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="BUNDLE",
            help="Fine-tune this bundle, or this recipe's averaged model.",
        ),
    ] = None,
    # Downloads
    mirror: opt.Mirror = None,
    # The estimate of the training time
    no_trial: Annotated[
        bool,
        typer.Option("--no-trial", help="Do not train for a few seconds to estimate the time."),
    ] = False,
) -> None:
    """Create a recipe for your own parallel text.

    Example: nmtkit new mine --src train.en --tgt train.de --tmx memory.tmx
    """
    files = {
        "tsv": tsv or [],
        "csv": csv or [],
        "jsonl": jsonl or [],
        "tmx": tmx or [],
        "opus_zip": opus_zip or [],
        "dataset": dataset or [],
    }
    dialects: dict[str, dict[str, object]] = {}
    if delimiter is not None:
        dialects["csv"] = {"delimiter": delimiter}
    if quoted is not None:
        dialects["tsv"] = {"quoted": quoted}
    corpora = corpora or []
    texts = parse_texts(src or [], tgt or [], files, dialects, has_corpora=bool(corpora))
    sets = {}
    for kind, paths, set_name in (("dev", dev, dev_set), ("test", test, test_set)):
        if paths is not None and set_name is not None:
            raise UserError(f"--{kind} and --{kind}-set both name a {kind} set; omit one of them")
        if paths is not None:
            sets[kind] = InputText(FilePair, paths, name=kind)
    all_texts = texts + list(sets.values())
    check_formats(all_texts, plain=plain)

    # A bundle fixes the vocabulary and the direction.
    bundle = open_bundle(_parent_folder(parent)) if parent else None
    if bundle and vocabulary:
        raise UserError(
            f"--vocabulary cannot be used with --from: the vocabulary is that of {parent}; omit "
            "--vocabulary"
        )
    if bundle and reverse:
        raise UserError(
            f"--reverse cannot be used with --from: the bundle {parent} fixes the direction; omit "
            "--reverse"
        )

    # Texts are compared with each other, to read none in the wrong direction.
    try:
        if all_texts or bundle is not None:
            langs = find_languages(all_texts, src_lang, tgt_lang, bundle)
        else:
            langs = corpus_languages(corpora, src_lang, tgt_lang)
        train: list[Source | str] = []
        for text in texts:
            train.append(text.source(langs, reverse=reverse, plain=plain))
    except UnclearTextError as error:
        proposal = propose(error.text, error.langs)
        if proposal is None:
            raise
        command = _proposed_command(context, error.text, *proposal)
        raise UserError(f"{error}; for example: {command}") from None
    own_sets: dict[str, Source | str] = {}
    for kind, text in sets.items():
        own_sets[kind] = text.source(langs, reverse=reverse, plain=plain)
    src_language, tgt_language = langs
    if reverse:
        tgt_language, src_language = langs
    # Public corpora have names for their sides, whatever the direction.
    opus_api = OPUS_API if mirror is None else None
    for corpus in corpora:
        train.append(public_corpus(corpus, src_language, tgt_language, opus_api))
    for kind, set_name in (("dev", dev_set), ("test", test_set)):
        if set_name is not None:
            check_test_set(set_name, src_language, tgt_language)
            own_sets[kind] = set_name

    recipe = NewRecipe(
        name=name.removesuffix(".toml"),
        src_lang=src_language,
        tgt_lang=tgt_language,
        vocabulary=vocabulary or "sentencepiece",
        train=train,
        sets=own_sets,
        bundle=bundle,
    )
    downloads = Settings(RUNS, mirror=mirror).downloads()
    try:
        path = write_recipe(recipe, downloads, typer.echo)  # reads the whole text
    except MissingDownloadError as error:
        for opus_name in [*corpora, dev_set or "", test_set or ""]:
            # The address has the name of the corpus.
            if opus_name.startswith("opus:") and opus_name.removeprefix("opus:") in str(error):
                similar, available = opus_hints(opus_name, src_language, tgt_language, opus_api)
                raise UserError(
                    f"OPUS has no archive of {opus_name} for {src_language}-{tgt_language}"
                    f"{similar}; {available}"
                ) from None
        raise
    typer.echo(f"Wrote {path}, which translates from {src_language} to {tgt_language}.")
    if not no_trial:
        show_training_time(path)
    typer.echo(
        f"Next:\n"
        f"  nmtkit plan ./{path}   estimate time and disk space\n"
        f"  nmtkit run ./{path}    train, translate the test set and score it"
    )


def _proposed_command(
    context: typer.Context, text: InputText, proposal: str, langs: Languages
) -> str:
    """Return the command of the user with a proposal, to be copied.

    Args:
        context: The command as it was parsed.
        text: The text whose columns or languages are unclear.
        proposal: The value of its option.
        langs: The languages of source and target.
    """
    src, tgt = langs
    values = {**context.params, "src_lang": str(src), "tgt_lang": str(tgt)}
    words = ["nmtkit", "new", values.pop("name")]
    for option in context.command.params:
        value = values.get(option.name or "")
        if value is None or (value is False and not option.secondary_opts):
            continue
        if isinstance(value, bool):
            words.append((option.opts if value else option.secondary_opts)[0])
            continue
        for item in value if option.multiple else [value]:
            words += [option.opts[0], *([item] if isinstance(item, str) else item)]
            if option.name == text.kind.key and text == text.parse(text.kind, item, text.dialect):
                words[-1] = proposal
    return shlex.join(words)


def _parent_folder(parent: str) -> Path:
    """Return the folder of the value of --from: a bundle, or the averaged model of a recipe."""
    if Path(parent).is_dir():
        return Path(parent)
    try:
        pipeline = load_pipeline(parent, [], Settings(RUNS))
    except NoFileError:
        download = hub_hint(parent)
        if download:
            download += ", then `nmtkit import` it"
        raise UserError(
            f"--from {parent} is neither a bundle nor a recipe; pass the folder of a bundle or "
            f"the name of a recipe{download}"
        ) from None
    return pipeline.need("average").path


def show_training_time(path: Path) -> None:
    """Print the estimated training time, here and on other machines, after a short trial."""
    # Imports torch; writing a recipe does not need it.
    from nmtkit.training.distributed import join

    # Compiling would take longer than the trial.
    settings = Settings(RUNS, accelerate="none")
    try:
        with join(settings.torch_device()) as group:
            pipeline = load_pipeline(f"./{path}", [], settings)
            estimate = estimate_run(pipeline, group, TRIAL_SECONDS)
        show(Form(), estimate, training_parts(estimate))
    except UserError as error:  # such as a GPU that is too old, or busy; the recipe is written
        typer.echo(f"Could not estimate the training time: {error}.")
