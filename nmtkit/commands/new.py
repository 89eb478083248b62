"""Write a recipe for a user's own text, in a size that fits the text."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from nmtkit import artifacts, progress
from nmtkit.corpus.cleaning import Cleaning
from nmtkit.corpus.held_out import Chosen, Pair, sample, unrepeated
from nmtkit.errors import UserError, shown
from nmtkit.recipe import SET_NAME, FilePair, OwnText, TmxFile, TsvFile
from nmtkit.recipe_file import parse_recipe
from nmtkit.sources.catalog import RemoteFile
from nmtkit.sources.parallel import find_corpus
from nmtkit.sources.text import TextFile, read_lines
from nmtkit.sources.tmx import primary_subtag

MIN_PAIRS = 100  # with fewer, a test set would be a handful of lines
SHARE_HELD_OUT = 20  # one pair in so many, for each of dev and test,
MAX_HELD_OUT = 1_000  # and at most so many
N_CANDIDATES = 4 * MAX_HELD_OUT  # for both sets; those with a repeated sentence are left

TOKENS_PER_WORD = 1.3  # subwords, roughly
WORDS_PER_CHARACTER = 0.6  # where words have no spaces between them
UNSPACED = ("bo", "dz", "ja", "km", "lo", "my", "th", "yue", "zh")

NOT_LANGUAGES = ("ref", "src", "tgt", "trg", "txt")  # common suffixes that look like one
LANGUAGE_SUFFIX = r"[A-Za-z]{2,3}([-_][A-Za-z0-9]{2,8})?"


@dataclass(frozen=True)
class Size:
    """A model and its training, for texts of up to so many words on the target side."""

    max_words: float
    n_epochs: int
    why: str
    n_merges: int
    n_layers: int
    d_model: int
    d_ff: int
    n_heads: int
    dropout: float
    tokens_per_update: int
    warmup_steps: int
    learning_rate_scale: float
    min_steps: int


MULTI30K = Size(
    max_words=1_000_000,
    n_epochs=80,
    why="Model, updates and passes through the text are those of the recipe multi30k-en-de.",
    n_merges=10_000,
    n_layers=4,
    d_model=128,
    d_ff=256,
    n_heads=4,
    dropout=0.3,
    tokens_per_update=4_096,
    warmup_steps=2_000,
    learning_rate_scale=2.53,
    min_steps=6_000,
)
BASE = Size(
    max_words=float("inf"),
    n_epochs=17,
    why="Model and updates are those of the paper's base model (wmt14-en-de-base); it needs a GPU.",
    n_merges=32_000,
    n_layers=6,
    d_model=512,
    d_ff=2_048,
    n_heads=8,
    dropout=0.1,
    tokens_per_update=25_000,
    warmup_steps=4_000,
    learning_rate_scale=1.0,
    min_steps=20_000,
)
SIZES = (
    replace(
        MULTI30K,
        max_words=200_000,
        why="As the recipe multi30k-en-de, with fewer subwords and smaller updates for less text.",
        n_merges=2_000,
        tokens_per_update=2_048,
        warmup_steps=500,
        learning_rate_scale=0.8,
        min_steps=2_000,
    ),
    MULTI30K,
    replace(
        BASE,
        max_words=20_000_000,
        n_epochs=30,
        why="Between the recipes multi30k-en-de and wmt14-en-de-base: half as wide as the latter.",
        n_merges=16_000,
        d_model=256,
        d_ff=1_024,
        n_heads=4,
        dropout=0.2,
        tokens_per_update=8_192,
        min_steps=10_000,
    ),
    BASE,
)
N_CHECKPOINTS = 20  # that training saves on its way


@dataclass
class _Survey:
    """What was seen of a text."""

    n_pairs: int = 0
    n_words: float = 0.0  # on the target side
    candidates: tuple[Chosen, ...] = ()

    @property
    def size(self) -> Size:
        return next(size for size in SIZES if self.n_words <= size.max_words)

    @property
    def updates_per_epoch(self) -> float:
        n_tokens = TOKENS_PER_WORD * self.n_words + self.n_pairs  # and as many end symbols
        return n_tokens / self.size.tokens_per_update

    @property
    def save_every(self) -> int:
        """The steps between two checkpoints, a round number."""
        n_steps = max(self.size.n_epochs * self.updates_per_epoch, self.size.min_steps)
        return 10 * round(n_steps / N_CHECKPOINTS / 10)


def new(
    name: str,
    train: OwnText,
    langs: tuple[str, str],
    *,
    dev: OwnText | None,
    test: OwnText | None,
) -> Path:
    """Write the recipe NAME.toml into the current folder, and the sets that are not given.

    Pairs for those are chosen at random among the training text. They are the same each time, and
    neither of their sides is anywhere else in the text.

    Args:
        name: Of the recipe.
        train: The training text.
        langs: Source and target language.
        dev: The development set, or None to hold one out of the training text.
        test: The same for the test set.

    Raises:
        UserError: A file exists, the text cannot be read, or is too small.
    """
    recipe, folder = Path(f"{name}.toml"), Path(name)
    if not re.fullmatch(SET_NAME, name):
        raise UserError(f"{name!r} cannot name a recipe: use letters, digits, '-', '_' and '.'")
    needed = {"dev": dev is None, "test": test is None}
    given = [each for source in (train, dev, test) if source for each in dict(source).values()]
    names = [name for each in given for name in (each if isinstance(each, tuple) else [each])]
    if odd := next((name for name in (*langs, *names) if not str(name).isprintable()), None):
        raise UserError(f"{odd!r} cannot stand in a recipe, which is plain text; rename it")
    for place in (recipe, *([folder] if any(needed.values()) else ())):
        if place.exists():
            raise UserError(f"{place} exists already; choose another name, or move it away")
    files = {
        kind: FilePair(name=kind, src=f"{name}/{kind}.{langs[0]}", tgt=f"{name}/{kind}.{langs[1]}")
        for kind in needed
    }
    sources = {"train": train, "dev": dev or files["dev"], "test": test or files["test"]}
    # What the schema refuses is refused before the text is read.
    parse_recipe(_recipe(name, langs, sources, _Survey(n_pairs=1)), recipe)

    survey = _survey(train, langs)
    if survey.n_pairs < MIN_PAIRS:
        raise UserError(f"the text has {survey.n_pairs:,} pairs; at least {MIN_PAIRS} are needed")
    if any(needed.values()):
        held_out = _held_out(train, langs, survey, [kind for kind in needed if needed[kind]])
        _write_sets(folder, held_out, files)
    with artifacts.draft_of_file(recipe) as draft:
        draft.write_text(_recipe(name, langs, sources, survey), encoding="utf-8", newline="\n")
    return recipe


def training_text(
    src: Path | None,
    tgt: Path | None,
    tsv: Path | None,
    columns: str | None,
    tmx: Path | None,
    src_lang: str | None,
    tgt_lang: str | None,
) -> tuple[OwnText, tuple[str, str]]:
    """Return the text that the options of the command line name, and its languages.

    Raises:
        UserError: They name no text, or more than one; the languages or the columns are not known.
    """
    kinds = (bool(src and tgt and not columns), bool(tsv), bool(tmx and not columns))
    if sum(kinds) != 1 or bool(src) != bool(tgt):
        raise UserError("name the text by --src and --tgt, by --tsv (with --columns), or by --tmx")
    by_name = languages(src, tgt) if src and tgt else None
    src_lang = src_lang or (by_name[0] if by_name else None)
    tgt_lang = tgt_lang or (by_name[1] if by_name else None)
    if src_lang is None or tgt_lang is None:
        raise UserError(
            "the names of the files do not tell the languages; add --src-lang and --tgt-lang, "
            "such as --src-lang en --tgt-lang de"
        )
    langs = src_lang, tgt_lang
    if src and tgt:
        return FilePair(src=str(src), tgt=str(tgt)), langs
    return (_tsv_of(tsv, columns, langs) if tsv else TmxFile(tmx=str(tmx))), langs


def languages(src: Path, tgt: Path) -> tuple[str, str] | None:
    """Return what differs in the names of two files: en and de of train.en.gz and train.de.gz."""
    names = src.name.split("."), tgt.name.split(".")
    if len(names[0]) != len(names[1]):
        return None
    differing = [both for both in zip(*names, strict=True) if both[0] != both[1]]
    are_languages = len(differing) == 1 and all(
        re.fullmatch(LANGUAGE_SUFFIX, part) and part not in NOT_LANGUAGES for part in differing[0]
    )
    return differing[0] if are_languages else None


def _tsv_of(path: Path, columns: str | None, langs: tuple[str, str]) -> TsvFile:
    """Return the source for a TSV file.

    Args:
        path: The file.
        columns: The names of its columns, with commas between them. None: they are those of its
            first line if the languages are among them, or else the two languages.
        langs: Source and target language.

    Raises:
        UserError: The file cannot be read, fewer than two columns are named, or the file has more
            than two columns without names.
    """
    first = next(read_lines(TextFile(path)), "").split("\t")
    if columns is not None:
        named = tuple(columns.split(","))
        if len(named) < 2:
            raise UserError(
                f"--columns {shown(columns)} names fewer than two columns; name all of them, such "
                f"as --columns id,{langs[0]},{langs[1]}"
            )
        return TsvFile(tsv=str(path), columns=named, header=first == list(named))
    if set(langs) <= set(first):
        return TsvFile(tsv=str(path), columns=tuple(first), header=True)
    if len(first) != 2:
        raise UserError(
            f"{path} has {len(first):,} columns; name all of them, such as --columns "
            f"id,{langs[0]},{langs[1]}"
        )
    return TsvFile(tsv=str(path), columns=langs)


def _pairs(source: OwnText, langs: tuple[str, str]) -> Iterator[Pair]:
    assert isinstance(source, FilePair | TsvFile | TmxFile)
    return find_corpus(source, *langs).pairs(_no_download)


def _no_download(file: RemoteFile) -> Path:
    raise AssertionError(file)


def _survey(train: OwnText, langs: tuple[str, str]) -> _Survey:
    """Read the text once."""
    survey = _Survey()
    is_spaced = _is_spaced(langs[1:])
    cleaning = Cleaning(1, 250, _max_ratio(langs))

    def usable(pairs: Iterator[Pair]) -> Iterator[Pair]:
        for src, tgt in pairs:
            survey.n_pairs += 1
            survey.n_words += len(tgt.split()) if is_spaced else WORDS_PER_CHARACTER * len(tgt)
            task.advance(1)
            if cleaning.reason_to_drop(src, tgt) is None:
                yield src, tgt

    with progress.task("new: read the text", unit="pairs") as task:
        survey.candidates = tuple(sample(usable(_pairs(train, langs)), N_CANDIDATES))
    return survey


def _held_out(
    train: OwnText, langs: tuple[str, str], survey: _Survey, kinds: list[str]
) -> dict[str, list[Chosen]]:
    """Return pairs for each set, in the order of the text."""
    chosen = unrepeated(survey.candidates, _pairs(train, langs))
    n_each = min(survey.n_pairs // SHARE_HELD_OUT, MAX_HELD_OUT, len(chosen) // len(kinds))
    if not n_each:
        raise UserError(
            f"nearly all sentences of the text occur more than once, so that no {kinds[0]} set can "
            "be held out of it; give one with --dev and --test"
        )
    progress.say(f"new: held {n_each:,} pairs out of the text for each of {' and '.join(kinds)}")
    by_line = {kind: chosen[i * n_each : (i + 1) * n_each] for i, kind in enumerate(kinds)}
    return {kind: sorted(some, key=lambda one: one.line) for kind, some in by_line.items()}


def _write_sets(
    folder: Path, held_out: dict[str, list[Chosen]], files: dict[str, FilePair]
) -> None:
    """Write a folder with the sets, whole or not at all."""
    with artifacts.draft_of_folder(folder) as draft:
        for kind, some in held_out.items():
            for side, file in enumerate((files[kind].src, files[kind].tgt)):
                text = "".join(f"{one.pair[side]}\n" for one in some)
                (draft / Path(file).name).write_text(text, encoding="utf-8", newline="\n")
        artifacts.move_folder(draft, folder)


def _recipe(name: str, langs: tuple[str, str], sources: dict[str, OwnText], survey: _Survey) -> str:
    size, every = survey.size, survey.save_every
    text = TEMPLATES.get_template("new.toml.j2").render(
        sources,
        name=name,
        src_lang=langs[0],
        tgt_lang=langs[1],
        is_spaced=_is_spaced(langs),
        max_ratio=_max_ratio(langs),
        n_pairs=survey.n_pairs,
        size=size,
        every=every,
        max_steps=N_CHECKPOINTS * every,
        n_epochs=round(N_CHECKPOINTS * every / survey.updates_per_epoch),
    )
    return re.sub(r"^(\w+ = \S*) # ", lambda line: f"{line[1]:<34} # ", text, flags=re.MULTILINE)


def _is_spaced(langs: tuple[str, ...]) -> bool:
    return not {primary_subtag(lang) for lang in langs} & set(UNSPACED)


def _max_ratio(langs: tuple[str, str]) -> float:
    """The default of clean-corpus-n.perl, or no bound where a side is a single "word"."""
    return 9.0 if _is_spaced(langs) else 250.0


def _toml(value: str | int | OwnText) -> str:
    """A value as TOML writes it."""
    if isinstance(value, int):
        return f"{value:_}"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    inside = value.model_dump(mode="json", exclude_defaults=True).items()
    return f"{{ {', '.join(f'{key} = {json.dumps(each)}' for key, each in inside)} }}"


TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=select_autoescape(),  # of HTML
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
TEMPLATES.filters["toml"] = _toml
