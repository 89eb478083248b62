"""nmtkit new: a recipe for a user's own text, in a size that fits the text."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from jinja2 import FileSystemLoader

from nmtkit.benchmark.estimates import parts_of, work_out
from nmtkit.cli.options import (
    SRC,
    Plain,
    argument,
    check_output,
    command,
    flag,
    load_pipeline,
    option,
)
from nmtkit.config.loading import bundled_recipes, load_recipe, parse_recipe
from nmtkit.config.recipe import PAPERS_DECODING
from nmtkit.config.settings import RUNS, Settings
from nmtkit.corpus.cleaning import Cleaning
from nmtkit.corpus.held_out import Chosen, sample
from nmtkit.decoding.bundle import Bundle, open_bundle
from nmtkit.reporting import document
from nmtkit.reporting.show import Form, show
from nmtkit.sources.file_pair import FilePair
from nmtkit.sources.parallel import find_corpus
from nmtkit.sources.source import Pair, Source
from nmtkit.sources.table import Delimiter
from nmtkit.stages.fine_tuning import open_parent
from nmtkit.stages.first_pairs import show_first_pairs
from nmtkit.stages.input_texts import (
    Files,
    InputText,
    check_formats,
    find_languages,
    input_texts,
    source_kinds,
)
from nmtkit.stages.pipeline import fetch
from nmtkit.tables import read_tables
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language
from nmtkit.utils.section import SET_NAME

MIN_PAIRS = 100  # with fewer, a test set would be a handful of lines
SHARE_HELD_OUT = 20  # one pair in so many, for each of dev and test,
MAX_HELD_OUT = 1_000  # and at most so many

TOKENS_PER_WORD = 1.3  # subwords, roughly
WORDS_PER_CHARACTER = 0.6  # where words have no spaces between them
N_BYTES = 256  # pieces for the bytes of rare characters
PIECES_ROUND = 100  # to a multiple of this
N_CHECKPOINTS = 20  # of a training, the last of which are averaged

TRIAL_SECONDS = 2.0  # of training, to tell what all of it takes

# Of plain text, in this folder.
TEMPLATES = document.TEMPLATES.overlay(
    loader=FileSystemLoader(Path(__file__).parent), autoescape=False, finalize=None
)

# Subwords of plain text, of any language; or of Moses tokens, as in the paper: the text of many
# languages can't be restored from these.
Vocabulary = Literal["sentencepiece", "bpe"]
Sides = tuple[str, str] | None


@dataclass(frozen=True)
class Size:
    """A recipe that ships, for texts of up to so many words on the target side."""

    max_words: float
    like: str  # the recipe
    n_epochs: int
    n_pieces: int  # merges, or sentencepieces besides characters and bytes
    min_steps: int
    why: str
    overrides: Sequence[str] = ()  # of that recipe


SIZES: dict[str, Any] = read_tables(__file__, "sizes.toml")


@command("nmtkit new mine --src train.en --tgt train.de --tmx memory.tmx")
def new(
    name: Annotated[str, argument("NAME", "What the recipe is called.")],
    src: Annotated[Files, SRC] = None,
    tgt: Annotated[Files, option("FILE", "Target side of --src, line by line.")] = None,
    tsv: Annotated[Files, option("FILE", "TSV file; append :id,en,de to name its columns.")] = None,
    csv: Annotated[Files, option("FILE", "CSV file; columns as for --tsv.")] = None,
    jsonl: Annotated[Files, option("FILE", "JSON Lines; append :KEY,KEY (source, target).")] = None,
    tmx: Annotated[Files, option("FILE", "A translation memory.")] = None,
    opus_zip: Annotated[Files, option("FILE", "An archive of OPUS, in Moses format.")] = None,
    dataset: Annotated[
        Files, option("PATH", "Parquet file, or a folder written by `save_to_disk`.")
    ] = None,
    delimiter: Annotated[
        Delimiter | None, option("CHAR", "Delimiter of --csv, if it cannot be detected.")
    ] = None,
    quoted: Annotated[
        bool | None,
        typer.Option(
            "--quoted/--unquoted",
            help="Cells of --tsv are in quotation marks, or read as they are.",
            show_default=False,
        ),
    ] = None,
    plain: Plain = False,
    src_lang: Annotated[
        str | None, option("LANG", "Source language, if it cannot be detected.")
    ] = None,
    tgt_lang: Annotated[
        str | None, option("LANG", "Target language, if it cannot be detected.")
    ] = None,
    reverse: Annotated[bool, flag("Translate the other way.", "--reverse")] = False,
    dev: Annotated[Sides, option("SRC TGT", "Development set; by default held out.")] = None,
    test: Annotated[Sides, option("SRC TGT", "Test set; by default held out of the text.")] = None,
    vocabulary: Annotated[
        Vocabulary | None,
        option("KIND", "sentencepiece of plain text, the default, or bpe of Moses tokens."),
    ] = None,
    parent: Annotated[Path | None, option("DIR", "Fine-tune this bundle.", "--from")] = None,
) -> None:
    files = {"tsv": tsv, "csv": csv, "jsonl": jsonl, "tmx": tmx}
    files |= {"opus_zip": opus_zip, "dataset": dataset}
    kinds = source_kinds(delimiter, quoted=quoted)
    texts = input_texts(src or [], tgt or [], files, kinds)
    pairs = {"dev": dev, "test": test}
    sets = {kind: InputText(FilePair, paths, name=kind) for kind, paths in pairs.items() if paths}
    check_formats([*texts, *sets.values()], plain=plain)
    bundle = open_bundle(parent) if parent else None
    if bundle and (vocabulary or reverse):
        extra = "--vocabulary" if vocabulary else "--reverse"
        raise UserError(f"the bundle {parent} has a vocabulary and a direction; leave out {extra}")
    langs = find_languages([*texts, *sets.values()], src_lang, tgt_lang, bundle)
    train = [text.source(langs, reverse=reverse, plain=plain) for text in texts]
    others = {}
    for kind, text in sets.items():
        others[kind] = text.source(langs, reverse=reverse, plain=plain)
    langs = langs[::-1] if reverse else langs
    name, vocabulary = name.removesuffix(".toml"), vocabulary or "sentencepiece"
    path = write_recipe(Wanted(name, *langs, vocabulary, train, others, bundle))
    typer.echo(f"Wrote {path}, which translates from {langs[0]} to {langs[1]}.")
    show_cost(path)
    typer.echo(
        f"After this short trial, `nmtkit plan ./{path}` knows better. Next:\n"
        f"  nmtkit run ./{path}    train, translate the test set and score it"
    )


def show_cost(path: Path) -> None:
    """Show what `plan` would say that a recipe takes here, after a trial that compiles nothing."""
    from nmtkit.training.distributed import join

    settings = Settings(RUNS, accelerate="none")
    try:
        with join(settings.torch_device()) as group:
            planned = work_out(load_pipeline(f"./{path}", [], settings), group, TRIAL_SECONDS)
        show(Form(), planned, parts_of(planned)[-2:])
    except UserError as error:  # of a GPU that is too old, or busy; the recipe is written
        typer.echo(f"What it takes here is not known: {error}.")


@dataclass(frozen=True)
class Wanted:
    name: str  # of the recipe
    src_lang: Language
    tgt_lang: Language
    vocabulary: Vocabulary
    train: Sequence[Source]
    sets: Mapping[str, Source]  # dev and test, or those of them that are not to be held out
    bundle: Bundle | None  # to be fine-tuned

    @property
    def max_ratio(self) -> float:
        """The default of clean-corpus-n.perl, or no bound where a side is a single "word"."""
        return 9.0 if self.src_lang.is_spaced and self.tgt_lang.is_spaced else 250.0


@dataclass
class Survey:
    n_pairs: int = 0
    n_words: float = 0.0  # on the target side
    characters: set[str] = field(default_factory=set)  # of both sides
    candidates: Sequence[Chosen] = ()  # to be held out


def write_recipe(wanted: Wanted) -> Path:
    """Write NAME.toml here, and the sets that are missing; files that are there must be equal."""
    name, src, tgt, bundle = wanted.name, wanted.src_lang, wanted.tgt_lang, wanted.bundle
    path = Path(f"{name}.toml")
    missing = {
        kind: FilePair(name=kind, src=f"{name}/{kind}.{src}", tgt=f"{name}/{kind}.{tgt}")
        for kind in ("dev", "test")
        if kind not in wanted.sets
    }
    if not re.fullmatch(SET_NAME, name):
        raise UserError(f"{name!r} cannot name a recipe: use letters, digits, '-', '_' and '.'")
    if name in (recipe.stem for recipe in bundled_recipes()):
        raise UserError(f"a recipe {name} comes with nmtkit; choose another name")
    odd = [lang for lang in (src, tgt) if not lang.is_spaced]
    if wanted.vocabulary == "bpe" and odd:
        raise UserError(
            f"--vocabulary bpe needs spaces between words, and {odd[0]} is written without; leave "
            "it out"
        )
    wanted = replace(wanted, sets={**wanted.sets, **missing})
    recipe = parse_recipe(_toml_of(wanted, Survey(n_pairs=1)), path)  # to refuse it at once
    if bundle:
        open_parent(str(bundle.artifact.path), recipe)
    survey = _surveyed(wanted, [each for kind, each in wanted.sets.items() if kind not in missing])
    if survey.n_pairs < MIN_PAIRS:
        raise UserError(f"the text has {survey.n_pairs:,} pairs; at least {MIN_PAIRS} are needed")
    files = {**(_held_out(survey, missing) if missing else {}), path: _toml_of(wanted, survey)}
    for file, content in files.items():
        check_output("the output", file)
        if file.exists() and file.read_bytes() != content.encode():
            raise UserError(
                f"{file} exists already, and this text gives another; choose another name, or move "
                "it away"
            )
    for file, content in files.items():
        file.parent.mkdir(exist_ok=True)
        document.replace_page(file, content)
    return path


def _surveyed(wanted: Wanted, sets: Sequence[Source]) -> Survey:
    """Read the training text, and also the given sets, so that their faults are told now."""
    survey, langs = Survey(), (wanted.src_lang, wanted.tgt_lang)
    cleaning, spaced = Cleaning(1, 250, wanted.max_ratio), wanted.tgt_lang.is_spaced

    def usable(pairs: Iterator[Pair]) -> Iterator[Pair]:
        for src, tgt in pairs:
            survey.n_pairs += 1
            survey.n_words += len(tgt.split()) if spaced else WORDS_PER_CHARACTER * len(tgt)
            survey.characters.update(src, tgt)
            task.advance(1)
            if cleaning.reason_to_drop(src, tgt) is None:
                yield src, tgt

    read = partial(fetch, settings=Settings(RUNS))
    train = [
        show_first_pairs(find_corpus(source, *langs), read, _tell, _warn) for source in wanted.train
    ]
    with progress.task("new: read the text", unit="pairs") as task:
        survey.candidates = sample(usable(chain.from_iterable(train)), 2 * MAX_HELD_OUT)
    for source in sets:
        for _ in show_first_pairs(find_corpus(source, *langs), read, _tell, _warn):
            pass
    return survey


def _tell(note: str) -> None:
    progress.log(f"new: {note}")


def _warn(warning: str) -> None:
    progress.warn(f"new: {warning}")


def _held_out(survey: Survey, sets: Mapping[str, FilePair]) -> dict[Path, str]:
    chosen, kinds = survey.candidates, [*sets]
    n_each = min(survey.n_pairs // SHARE_HELD_OUT, MAX_HELD_OUT, len(chosen) // len(kinds))
    if n_each < survey.n_pairs // SHARE_HELD_OUT < MAX_HELD_OUT:
        raise UserError(
            f"nearly all sentences of the text occur more than once, so that no {kinds[0]} set can "
            "be held out of it; give one with --dev and --test"
        )
    _tell(f"held {n_each:,} pairs out of the text for each of {' and '.join(kinds)}")
    files = {}
    for i, pair in enumerate(sets.values()):
        some = sorted(chosen[i * n_each : (i + 1) * n_each], key=lambda one: one.line)
        for side, file in enumerate(pair.files()):
            files[file.path] = "".join(f"{one.pair[side]}\n" for one in some)
    return files


def _toml_of(wanted: Wanted, survey: Survey) -> str:
    bundle = wanted.bundle
    fitting = next(each for each in SIZES["texts"] if survey.n_words <= each["max_words"])
    size = Size(**(SIZES["fine_tuning"] if bundle else fitting))
    like = load_recipe(size.like, size.overrides)
    n_tgt_tokens = TOKENS_PER_WORD * survey.n_words + survey.n_pairs  # and as many end symbols
    updates_per_epoch = n_tgt_tokens / like.training.src_tokens_per_update
    n_steps = max(size.n_epochs * updates_per_epoch, size.min_steps)
    every = 10 * round(n_steps / N_CHECKPOINTS / 10)
    n_pieces = size.n_pieces + N_BYTES + len(survey.characters)  # a small text has fewer
    text = TEMPLATES.get_template("new.toml.j2").render(
        vars(wanted),
        toml=_toml,
        n_tokens=-(-n_pieces // PIECES_ROUND) * PIECES_ROUND,
        max_ratio=wanted.max_ratio,
        n_pairs=survey.n_pairs,
        size=size,
        model=bundle.description.config if bundle else like.model,
        training=like.training,
        decoding=bundle.decoding if bundle else PAPERS_DECODING,
        every=every,
        max_steps=N_CHECKPOINTS * every,
        n_epochs=round(N_CHECKPOINTS * every / updates_per_epoch),
    )
    if odd := next((line for line in text.split("\n") if not line.isprintable()), None):
        raise UserError(f"{odd!r} cannot stand in a recipe, which is plain text; rename it")
    return re.sub(r"^(\w+ = \S*) # ", lambda line: f"{line[1]:<34} # ", text, flags=re.MULTILINE)


def _toml(value: object) -> str:
    if isinstance(value, Source):
        inside = dict.fromkeys(value.path_keys) | value.model_dump(exclude_defaults=True)
        return f"{{ {', '.join(f'{key} = {_toml(each)}' for key, each in inside.items())} }}"
    return f"{value:_}" if type(value) is int else json.dumps(value, ensure_ascii=False)
