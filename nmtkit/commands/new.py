"""Write a recipe for a user's own text, in a size that fits the text."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape

from nmtkit import progress
from nmtkit.corpus.cleaning import Cleaning
from nmtkit.corpus.held_out import Chosen, sample, unrepeated
from nmtkit.corpus.sentencepieces import SentencePieceSubword, learn_sentencepieces
from nmtkit.errors import UserError
from nmtkit.files import whole_file, whole_folder
from nmtkit.languages import Language
from nmtkit.recipe import ModelConfig, TrainingConfig
from nmtkit.recipe_file import load_recipe, parse_recipe
from nmtkit.schema import SET_NAME
from nmtkit.sources.catalog import RemoteFile
from nmtkit.sources.file_pair import FilePair
from nmtkit.sources.kinds import KINDS
from nmtkit.sources.parallel import find_corpus
from nmtkit.sources.source import Pair, Source

MIN_PAIRS = 100  # with fewer, a test set would be a handful of lines
SHARE_HELD_OUT = 20  # one pair in so many, for each of dev and test,
MAX_HELD_OUT = 1_000  # and at most so many
N_CANDIDATES = 4 * MAX_HELD_OUT  # for both sets; those with a repeated sentence are left

TOKENS_PER_WORD = 1.3  # subwords, roughly
WORDS_PER_CHARACTER = 0.6  # where words have no spaces between them
N_BYTES = 256  # pieces for the bytes of rare characters
PIECES_ROUND = 100  # to a multiple of this

Langs = tuple[Language, Language]
Vocabulary = Literal["sentencepiece", "bpe"]


@dataclass(frozen=True)
class Size:
    """A recipe that ships, for texts of up to so many words on the target side."""

    max_words: float
    like: str  # the recipe
    why: str
    n_epochs: int
    n_pieces: int  # merges, or sentencepieces besides characters and bytes
    min_steps: int
    other_model: Mapping[str, float] = field(default_factory=dict)  # than that recipe's
    other_training: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def model(self) -> ModelConfig:
        """Return the model."""
        return load_recipe(self.like).model.model_copy(update=self.other_model)

    @cached_property
    def training(self) -> TrainingConfig:
        """Return updates and schedule."""
        return load_recipe(self.like).training.model_copy(update=self.other_training)


SIZES = (
    Size(
        max_words=200_000,
        like="multi30k-en-de",
        why="As the recipe multi30k-en-de, with fewer subwords and smaller updates for less text.",
        n_epochs=80,
        n_pieces=2_000,
        min_steps=2_000,
        other_training={
            "src_tokens_per_update": 2_048,
            "warmup_steps": 500,
            "learning_rate_scale": 0.8,
        },
    ),
    Size(
        max_words=1_000_000,
        like="multi30k-en-de",
        why="Model, updates and passes through the text are those of the recipe multi30k-en-de.",
        n_epochs=80,
        n_pieces=10_000,
        min_steps=6_000,
    ),
    Size(
        max_words=20_000_000,
        like="wmt14-en-de-base",
        why="Between the recipes multi30k-en-de and wmt14-en-de-base: half as wide as the latter.",
        n_epochs=30,
        n_pieces=16_000,
        min_steps=10_000,
        other_model={"d_model": 256, "d_ff": 1_024, "n_heads": 4, "dropout": 0.2},
        other_training={"src_tokens_per_update": 8_192},
    ),
    Size(
        max_words=float("inf"),
        like="wmt14-en-de-base",
        why="Model and updates are those of the paper's base model (wmt14-en-de-base); it needs a "
        "GPU.",
        n_epochs=17,
        n_pieces=32_000,
        min_steps=20_000,
    ),
)
N_CHECKPOINTS = 20  # that training saves on its way
MAX_WORDS = 2 * SIZES[-1].n_pieces  # different ones that are counted: more are not needed


@dataclass
class _Survey:
    """What was seen of a text."""

    n_pairs: int = 0
    n_words: float = 0.0  # on the target side
    candidates: tuple[Chosen, ...] = ()
    words: Counter[str] = field(default_factory=Counter)  # of both sides; some, of a large text
    characters: set[str] = field(default_factory=set)

    def add(self, pair: Pair, tgt: Language) -> None:
        """Count a pair."""
        self.n_pairs += 1
        n_characters = WORDS_PER_CHARACTER * len(pair[1])
        self.n_words += len(pair[1].split()) if tgt.is_spaced else n_characters
        if len(self.words) < MAX_WORDS:
            for side in pair:
                self.words.update(side.split())
                self.characters.update(side)

    def n_tokens(self) -> int:
        """Return how many sentencepieces the text has room for."""
        wanted = self.size.n_pieces + N_BYTES + len(self.characters)
        wanted = -(-wanted // PIECES_ROUND) * PIECES_ROUND
        if len(self.words) >= wanted:  # each may become a piece
            return wanted
        return SentencePieceSubword(learn_sentencepieces(self.words, wanted)).n_tokens

    @property
    def size(self) -> Size:
        return next(size for size in SIZES if self.n_words <= size.max_words)

    @property
    def updates_per_epoch(self) -> float:
        n_tokens = TOKENS_PER_WORD * self.n_words + self.n_pairs  # and as many end symbols
        return n_tokens / self.size.training.src_tokens_per_update

    @property
    def save_every(self) -> int:
        """The steps between two checkpoints, a round number."""
        n_steps = max(self.size.n_epochs * self.updates_per_epoch, self.size.min_steps)
        return 10 * round(n_steps / N_CHECKPOINTS / 10)


def new(
    name: str,
    train: Source,
    langs: Langs,
    vocabulary: Vocabulary,
    *,
    dev: Source | None,
    test: Source | None,
) -> Path:
    """Write the recipe NAME.toml into the current folder, and the sets that are not given.

    Pairs for those are chosen at random among the training text. They are the same each time, and
    neither of their sides is anywhere else in the text.

    Args:
        name: Of the recipe.
        train: The training text.
        langs: Source and target language.
        vocabulary: Sentencepieces of plain text, for any language, or the paper's BPE on Moses
            tokens, which cannot restore the text of many.
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
    if vocabulary == "bpe" and (unspaced := [lang for lang in langs if not lang.is_spaced]):
        raise UserError(
            f"--vocabulary bpe needs spaces between words, and {unspaced[0]} is written without; "
            "leave it out"
        )
    if odd := next((name for name in names if not str(name).isprintable()), None):
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
    draft_of = _Recipe(name, langs, vocabulary, sources)
    parse_recipe(draft_of.text(_Survey(n_pairs=1), n_tokens=N_BYTES), recipe)

    survey = _survey(train, langs)
    if survey.n_pairs < MIN_PAIRS:
        raise UserError(f"the text has {survey.n_pairs:,} pairs; at least {MIN_PAIRS} are needed")
    if any(needed.values()):
        held_out = _held_out(train, langs, survey, [kind for kind in needed if needed[kind]])
        _write_sets(folder, held_out, files)
    with whole_file(recipe) as draft:
        text = draft_of.text(survey, n_tokens=survey.n_tokens())
        draft.write_text(text, encoding="utf-8", newline="\n")
    return recipe


def training_text(
    src: Path | None,
    tgt: Path | None,
    files: dict[str, Path | None],
    columns: str | None,
    src_lang: str | None,
    tgt_lang: str | None,
) -> tuple[Source, Langs]:
    """Return the text that the options of the command line name, and its languages.

    Args:
        src: The sentences, a line each.
        tgt: Their translations.
        files: A file that has both, by the key of its kind of source.
        columns: The names of its columns, with commas between them.
        src_lang: The language of the sentences; None: as the names of the files say.
        tgt_lang: That of their translations.

    Raises:
        UserError: They name no text, or more than one; the languages or the columns are not known.
    """
    given = {key: path for key, path in files.items() if path}
    if bool(src) != bool(tgt) or len(given) + bool(src) != 1:
        options = ", ".join(f"--{key.replace('_', '-')}" for key in files)
        raise UserError(f"name one text: by --src and --tgt together, or by one of {options}")
    by_name = FilePair.languages(src, tgt) if src and tgt else None
    src_lang = src_lang or (by_name[0] if by_name else None)
    tgt_lang = tgt_lang or (by_name[1] if by_name else None)
    if src_lang is None or tgt_lang is None:
        raise UserError(
            "the names of the files do not tell the languages; add --src-lang and --tgt-lang, "
            "such as --src-lang en --tgt-lang de"
        )
    langs = Language.of(src_lang), Language.of(tgt_lang)
    named = [] if columns is None else columns.split(",")
    if src and tgt and not named:
        return FilePair(src=str(src), tgt=str(tgt)), langs
    if src:
        raise UserError("--columns is for a file of columns; leave it out, or use --tsv")
    [(key, path)] = given.items()
    [kind] = (kind for kind in KINDS if kind.key == key)
    return kind.of_file(str(path), *langs, named), langs


def _pairs(source: Source, langs: Langs) -> Iterator[Pair]:
    return find_corpus(source, *langs).pairs(_no_download)


def _no_download(file: RemoteFile) -> Path:
    raise AssertionError(file)


def _survey(train: Source, langs: Langs) -> _Survey:
    """Read the text once."""
    survey = _Survey()
    cleaning = Cleaning(1, 250, _max_ratio(langs))

    def usable(pairs: Iterator[Pair]) -> Iterator[Pair]:
        for pair in pairs:
            survey.add(pair, langs[1])
            task.advance(1)
            if cleaning.reason_to_drop(*pair) is None:
                yield pair

    with progress.task("new: read the text", unit="pairs") as task:
        pairs = find_corpus(train, *langs).pairs(
            _no_download, lambda note: progress.say(f"new: {note}")
        )
        survey.candidates = tuple(sample(usable(pairs), N_CANDIDATES))
    return survey


def _held_out(
    train: Source, langs: Langs, survey: _Survey, kinds: list[str]
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
    with whole_folder(folder) as draft:
        for kind, some in held_out.items():
            for side, file in enumerate(files[kind].files()):
                text = "".join(f"{one.pair[side]}\n" for one in some)
                (draft / file.path.name).write_text(text, encoding="utf-8", newline="\n")


@dataclass(frozen=True)
class _Recipe:
    """What a recipe says besides what follows from its text."""

    name: str
    langs: Langs
    vocabulary: Vocabulary
    sources: dict[str, Source]

    def text(self, survey: _Survey, n_tokens: int) -> str:
        size, every = survey.size, survey.save_every
        text = TEMPLATES.get_template("new.toml.j2").render(
            self.sources,
            name=self.name,
            src_lang=str(self.langs[0]),
            tgt_lang=str(self.langs[1]),
            vocabulary=self.vocabulary,
            n_tokens=n_tokens,
            max_ratio=_max_ratio(self.langs),
            n_pairs=survey.n_pairs,
            size=size,
            every=every,
            max_steps=N_CHECKPOINTS * every,
            n_epochs=round(N_CHECKPOINTS * every / survey.updates_per_epoch),
        )
        return re.sub(
            r"^(\w+ = \S*) # ", lambda line: f"{line[1]:<34} # ", text, flags=re.MULTILINE
        )


def _max_ratio(langs: Langs) -> float:
    """The default of clean-corpus-n.perl, or no bound where a side is a single "word"."""
    return 9.0 if all(lang.is_spaced for lang in langs) else 250.0


def _toml(value: str | int | Source) -> str:
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
