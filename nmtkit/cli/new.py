"""nmtkit new: a recipe for a user's own text, in a size that fits the text."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from jinja2 import FileSystemLoader

from nmtkit import progress
from nmtkit.cli.options import Src, Tgt, command
from nmtkit.corpus.cleaning import Cleaning
from nmtkit.corpus.held_out import Chosen, sample
from nmtkit.errors import UserError
from nmtkit.files import whole_file, whole_folder, write_lines
from nmtkit.languages import Language
from nmtkit.recipe_file import bundled_recipes, load_recipe, parse_recipe
from nmtkit.reporting import page
from nmtkit.schema import SET_NAME
from nmtkit.sources.catalog import RemoteFile
from nmtkit.sources.file_pair import FilePair
from nmtkit.sources.kinds import KINDS
from nmtkit.sources.parallel import find_corpus
from nmtkit.sources.source import Pair, Source

MIN_PAIRS = 100  # with fewer, a test set would be a handful of lines
SHARE_HELD_OUT = 20  # one pair in so many, for each of dev and test,
MAX_HELD_OUT = 1_000  # and at most so many

TOKENS_PER_WORD = 1.3  # subwords, roughly
WORDS_PER_CHARACTER = 0.6  # where words have no spaces between them
N_BYTES = 256  # pieces for the bytes of rare characters
PIECES_ROUND = 100  # to a multiple of this
N_CHECKPOINTS = 20  # of a training, the last of which are averaged

# Of plain text, in this folder.
TEMPLATES = page.TEMPLATES.overlay(
    loader=FileSystemLoader(Path(__file__).parent), autoescape=False, finalize=None
)

Langs = tuple[Language, Language]
# Subwords of plain text, of any language; or of Moses tokens, as in the paper: the text of many
# languages can't be restored from these.
Vocabulary = Literal["sentencepiece", "bpe"]


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


SIZES = (
    Size(
        *(200_000, "multi30k-en-de", 80, 2_000, 2_000),
        "As the recipe multi30k-en-de, with fewer subwords and smaller updates for less text.",
        [
            *("training.src_tokens_per_update=2048", "training.warmup_steps=500"),
            "training.learning_rate_scale=0.8",
        ],
    ),
    Size(
        *(1_000_000, "multi30k-en-de", 80, 10_000, 6_000),
        "Model, updates and passes through the text are those of the recipe multi30k-en-de.",
    ),
    Size(
        *(20_000_000, "wmt14-en-de-base", 30, 16_000, 10_000),
        "Between the recipes multi30k-en-de and wmt14-en-de-base: half as wide as the latter.",
        [
            *("model.d_model=256", "model.d_ff=1024", "model.n_heads=4", "model.dropout=0.2"),
            "training.src_tokens_per_update=8192",
        ],
    ),
    Size(
        *(float("inf"), "wmt14-en-de-base", 17, 32_000, 20_000),
        "Model and updates are those of the paper's base model (wmt14-en-de-base), for a GPU.",
    ),
)


def _file(text: str) -> Any:
    return typer.Option(metavar="FILE", help=text)


@command("nmtkit new mine --src train.en --tgt train.de")
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the recipe is called.")],
    src: Src = None,
    tgt: Tgt = None,
    tsv: Annotated[Path | None, _file("Text and translation in tab-separated columns.")] = None,
    csv: Annotated[Path | None, _file("Text and translation in columns of CSV.")] = None,
    jsonl: Annotated[Path | None, _file("Text and translation in an object a line.")] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Names of all columns of TSV and CSV, as in id,en,de; of the two to read of JSON "
            "and datasets.",
        ),
    ] = None,
    tmx: Annotated[Path | None, _file("A translation memory.")] = None,
    opus_zip: Annotated[Path | None, _file("An archive of OPUS, in Moses format.")] = None,
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
            metavar="LANG", help="Language of its translation; by default the suffix of --tgt."
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
        Vocabulary,
        typer.Option(
            metavar="KIND", help="sentencepiece of plain text, or bpe of Moses tokens, the paper's."
        ),
    ] = "sentencepiece",
) -> None:
    files = {"tsv": tsv, "csv": csv, "jsonl": jsonl, "tmx": tmx}
    files |= {"opus_zip": opus_zip, "dataset": dataset}
    train, langs = training_text(src, tgt, files, columns, src_lang, tgt_lang)
    sets = {
        kind: FilePair(name=kind, src=given[0], tgt=given[1])
        for kind, given in {"dev": dev, "test": test}.items()
        if given
    }
    path = write_recipe(name.removesuffix(".toml"), train, langs, vocabulary, sets)
    typer.echo(
        f"Wrote {path}. Next:\n"
        f"  nmtkit plan ./{path}    how long it takes on this machine\n"
        f"  nmtkit run ./{path}     train, translate the test set and score it"
    )


def training_text(
    src: Path | None,
    tgt: Path | None,
    files: Mapping[str, Path | None],
    columns: str | None,
    src_lang: str | None,
    tgt_lang: str | None,
) -> tuple[Source, Langs]:
    """Return the text that the options name, `files` by the keys of kinds, and its languages."""
    given = {key: path for key, path in files.items() if path}
    if bool(src) != bool(tgt) or len(given) + bool(src) != 1:
        options = ", ".join(f"--{key.replace('_', '-')}" for key in files)
        raise UserError(f"name one text: by --src and --tgt together, or by one of {options}")
    by_name = (FilePair.languages(src, tgt) if src and tgt else None) or (None, None)
    src_lang, tgt_lang = src_lang or by_name[0], tgt_lang or by_name[1]
    if src_lang is None or tgt_lang is None:
        raise UserError(
            "the names of the files do not tell the languages; add --src-lang and --tgt-lang, "
            "such as --src-lang en --tgt-lang de"
        )
    langs = Language.of(src_lang), Language.of(tgt_lang)
    if src and tgt:
        if columns is not None:
            raise UserError("--columns is for a file of columns; leave it out, or use --tsv")
        return FilePair(src=str(src), tgt=str(tgt)), langs
    [(key, path)] = given.items()
    [kind] = (kind for kind in KINDS if kind.key == key)
    return kind.of_file(str(path), *langs, columns.split(",") if columns is not None else []), langs


@dataclass
class Survey:
    n_pairs: int = 0
    n_words: float = 0.0  # on the target side
    characters: set[str] = field(default_factory=set)  # of both sides
    candidates: Sequence[Chosen] = ()  # to be held out


def write_recipe(
    name: str, train: Source, langs: Langs, vocabulary: Vocabulary, sets: Mapping[str, Source]
) -> Path:
    """Write NAME.toml here, and those of dev and test not in `sets`, held out of the text."""
    path, folder = Path(f"{name}.toml"), Path(name)
    missing = {
        kind: FilePair(name=kind, src=f"{name}/{kind}.{langs[0]}", tgt=f"{name}/{kind}.{langs[1]}")
        for kind in ("dev", "test")
        if kind not in sets
    }
    if not re.fullmatch(SET_NAME, name):
        raise UserError(f"{name!r} cannot name a recipe: use letters, digits, '-', '_' and '.'")
    if name in (recipe.stem for recipe in bundled_recipes()):
        raise UserError(f"a recipe {name} comes with nmtkit; choose another name")
    if vocabulary == "bpe" and (odd := [lang for lang in langs if not lang.is_spaced]):
        raise UserError(
            f"--vocabulary bpe needs spaces between words, and {odd[0]} is written without; leave "
            "it out"
        )
    for place in (path, *([folder] if missing else [])):
        if place.exists():
            raise UserError(f"{place} exists already; choose another name, or move it away")
    text = partial(_toml_of, name, langs, vocabulary, {"train": train, **sets, **missing})
    parse_recipe(text(Survey(n_pairs=1)), path)  # what is refused is refused at once
    survey = _surveyed(train, langs)
    if survey.n_pairs < MIN_PAIRS:
        raise UserError(f"the text has {survey.n_pairs:,} pairs; at least {MIN_PAIRS} are needed")
    if missing:
        _hold_out(survey, missing, folder)
    with whole_file(path) as draft:
        draft.write_text(text(survey), encoding="utf-8", newline="\n")
    return path


def _surveyed(train: Source, langs: Langs) -> Survey:
    survey = Survey()
    cleaning = Cleaning(1, 250, _max_ratio(langs))

    def usable(pairs: Iterator[Pair]) -> Iterator[Pair]:
        for src, tgt in pairs:
            survey.n_pairs += 1
            spaced = langs[1].is_spaced
            survey.n_words += len(tgt.split()) if spaced else WORDS_PER_CHARACTER * len(tgt)
            survey.characters.update(src, tgt)
            task.advance(1)
            if cleaning.reason_to_drop(src, tgt) is None:
                yield src, tgt

    with progress.task("new: read the text", unit="pairs") as task:
        pairs = find_corpus(train, *langs).pairs(
            _no_download, lambda note: progress.say(f"new: {note}")
        )
        survey.candidates = sample(usable(pairs), 2 * MAX_HELD_OUT)
    return survey


def _no_download(file: RemoteFile) -> Path:
    raise AssertionError(file)


def _hold_out(survey: Survey, sets: Mapping[str, FilePair], folder: Path) -> None:
    chosen, kinds = survey.candidates, [*sets]
    n_each = min(survey.n_pairs // SHARE_HELD_OUT, MAX_HELD_OUT, len(chosen) // len(kinds))
    if n_each < survey.n_pairs // SHARE_HELD_OUT < MAX_HELD_OUT:
        raise UserError(
            f"nearly all sentences of the text occur more than once, so that no {kinds[0]} set can "
            "be held out of it; give one with --dev and --test"
        )
    progress.say(f"new: held {n_each:,} pairs out of the text for each of {' and '.join(kinds)}")
    with whole_folder(folder) as draft:
        for i, pair in enumerate(sets.values()):
            some = sorted(chosen[i * n_each : (i + 1) * n_each], key=lambda one: one.line)
            for side, file in enumerate(pair.files()):
                write_lines(draft / file.path.name, (one.pair[side] for one in some))


def _max_ratio(langs: Langs) -> float:
    """The default of clean-corpus-n.perl, or no bound where a side is a single "word"."""
    return 9.0 if all(lang.is_spaced for lang in langs) else 250.0


def _toml_of(
    name: str, langs: Langs, vocabulary: Vocabulary, sources: Mapping[str, Source], survey: Survey
) -> str:
    size = next(size for size in SIZES if survey.n_words <= size.max_words)
    like = load_recipe(size.like, size.overrides)
    n_tgt_tokens = TOKENS_PER_WORD * survey.n_words + survey.n_pairs  # and as many end symbols
    updates_per_epoch = n_tgt_tokens / like.training.src_tokens_per_update
    n_steps = max(size.n_epochs * updates_per_epoch, size.min_steps)
    every = 10 * round(n_steps / N_CHECKPOINTS / 10)
    n_pieces = size.n_pieces + N_BYTES + len(survey.characters)  # a small text has fewer
    text = TEMPLATES.get_template("new.toml.j2").render(
        sources,
        toml=_toml,
        name=name,
        src_lang=str(langs[0]),
        tgt_lang=str(langs[1]),
        vocabulary=vocabulary,
        n_tokens=-(-n_pieces // PIECES_ROUND) * PIECES_ROUND,
        max_ratio=_max_ratio(langs),
        n_pairs=survey.n_pairs,
        size=size,
        model=like.model,
        training=like.training,
        every=every,
        max_steps=N_CHECKPOINTS * every,
        n_epochs=round(N_CHECKPOINTS * every / updates_per_epoch),
    )
    return re.sub(r"^(\w+ = \S*) # ", lambda line: f"{line[1]:<34} # ", text, flags=re.MULTILINE)


def _toml(value: str | int | Source) -> str:
    if isinstance(value, int):
        return f"{value:_}"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    inside = value.model_dump(exclude_defaults=True)
    for each in inside.values():
        for part in each if isinstance(each, tuple) else [each]:
            if not str(part).isprintable():
                raise UserError(
                    f"{part!r} cannot stand in a recipe, which is plain text; rename it"
                )
    return f"{{ {', '.join(f'{key} = {json.dumps(each)}' for key, each in inside.items())} }}"
