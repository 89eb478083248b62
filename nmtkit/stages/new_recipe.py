"""A new recipe for a user's own parallel text: survey, size, held-out sets and the file."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Literal

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from nmtkit.config.loading import bundled_recipes, load_recipe, parse_recipe
from nmtkit.config.recipe import PAPERS_DECODING
from nmtkit.config.settings import RUNS, Settings
from nmtkit.corpus.cleaning import Cleaning
from nmtkit.corpus.held_out import Chosen, sample
from nmtkit.decoding.bundle import Bundle
from nmtkit.sources.file_pair import FilePair
from nmtkit.sources.parallel import find_corpus
from nmtkit.sources.source import Pair, Source
from nmtkit.stages.fine_tuning import open_parent
from nmtkit.stages.first_pairs import preview
from nmtkit.stages.pipeline import fetch
from nmtkit.store.files import whole_file
from nmtkit.store.output_check import check_output
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language
from nmtkit.utils.section import SET_NAME

MIN_PAIRS = 100  # with fewer, a test set would have a handful of lines
# With fewer, a model learns little from scratch: after 100 pairs it has 0.31 BLEU, and 62.03 after
# fine-tuning (pipelines/results/fine-tuning_cpu_2026-11-22.md). Multi30k has 29,000.
FEW_PAIRS = 10_000
HELD_OUT_SHARE = 20  # one pair in 20 is held out for dev, and one for test ..
MAX_HELD_OUT = 1_000  # .. up to this number

TOKENS_PER_WORD = 1.3  # subwords, roughly
WORDS_PER_CHARACTER = 0.6  # in languages that are written without spaces between words
N_BYTE_PIECES = 256  # pieces for the bytes of rare characters
PIECES_MULTIPLE = 100  # the vocabulary is rounded up to a multiple of this
N_CHECKPOINTS = 20  # of a training, the last of which are averaged

# Bounds of training text, in words. Without spaces, a whole sentence is one word, so that no ratio
# of lengths is wrong.
MIN_TOKENS = 1
MAX_TOKENS = 250
MAX_RATIO = 9.0  # the default of clean-corpus-n.perl
MAX_RATIO_UNSPACED = 250.0

# Subwords of plain text, in any language; or of Moses tokens, as in the paper: many languages
# cannot be restored from these.
Vocabulary = Literal["sentencepiece", "bpe"]

HELD_OUT_SETS = ("dev", "test")
COMMENT_COLUMN = 34  # where the comment after a value begins


@dataclass(frozen=True)
class Size:
    """A shipped recipe that fits texts up to some size, and what to change in it.

    Attributes:
        max_words: Maximum number of words on the target side.
        base_recipe: Name of the shipped recipe.
        n_epochs: Passes through the text.
        n_pieces: BPE merges, or sentencepieces without those of characters and bytes.
        min_steps: Minimum number of updates, whatever the size of the text.
        reason: The comment in the recipe.
        overrides: Values of the shipped recipe that are replaced.
    """

    max_words: float
    base_recipe: str
    n_epochs: int
    n_pieces: int
    min_steps: int
    reason: str
    overrides: Sequence[str] = ()


SIZES = (
    Size(
        max_words=200_000,
        base_recipe="multi30k-en-de",
        n_epochs=80,
        n_pieces=2_000,
        min_steps=2_000,
        reason="As the recipe multi30k-en-de, with fewer subwords and smaller updates for less "
        "text.",
        overrides=(
            "training.src_tokens_per_update=2048",
            "training.warmup_steps=500",
            "training.learning_rate_scale=0.8",
        ),
    ),
    Size(
        max_words=1_000_000,
        base_recipe="multi30k-en-de",
        n_epochs=80,
        n_pieces=10_000,
        min_steps=6_000,
        reason="Model, updates and passes through the text are those of the recipe multi30k-en-de.",
    ),
    Size(
        max_words=20_000_000,
        base_recipe="wmt14-en-de-base",
        n_epochs=30,
        n_pieces=16_000,
        min_steps=10_000,
        reason="Between the recipes multi30k-en-de and wmt14-en-de-base: half as wide as the "
        "latter.",
        overrides=(
            "model.attention_bias=false",
            "model.vocabulary_multiple=8",
            "model.d_model=256",
            "model.d_ff=1024",
            "model.n_heads=4",
            "model.dropout=0.2",
            "training.src_tokens_per_update=8192",
        ),
    ),
    Size(
        max_words=inf,
        base_recipe="wmt14-en-de-base",
        n_epochs=17,
        n_pieces=32_000,
        min_steps=20_000,
        reason="Model and updates are those of the paper's base model (wmt14-en-de-base), for a "
        "GPU.",
        overrides=("model.attention_bias=false", "model.vocabulary_multiple=8"),
    ),
)
FINE_TUNING = Size(
    max_words=inf,
    base_recipe="multi30k-en-de",
    n_epochs=10,
    n_pieces=0,  # the vocabulary is that of the bundle
    min_steps=400,
    reason="A bundle is trained further: fewer passes, a low learning rate, early stopping.",
    overrides=(
        "training.src_tokens_per_update=2048",
        "training.warmup_steps=100",
        "training.learning_rate_scale=0.03",
    ),
)

TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=False,  # noqa: S701 - TOML, whose values are written by `toml_value`
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


@dataclass(frozen=True)
class NewRecipe:
    """A recipe to be written.

    Attributes:
        name: Name of the recipe, and of the folder of its held-out sets.
        src_lang: The source language.
        tgt_lang: The target language.
        vocabulary: Kind of subwords.
        train: The training text.
        sets: The dev and test sets of the user; those that are missing are held out.
        bundle: The bundle to fine-tune, if any.
    """

    name: str
    src_lang: Language
    tgt_lang: Language
    vocabulary: Vocabulary
    train: Sequence[Source]
    sets: Mapping[str, Source]
    bundle: Bundle | None = None

    @property
    def path(self) -> Path:
        """The file to write."""
        return Path(f"{self.name}.toml")

    @property
    def max_ratio(self) -> float:
        """The maximum ratio of the lengths of both sides, in words."""
        is_spaced = self.src_lang.is_spaced and self.tgt_lang.is_spaced
        return MAX_RATIO if is_spaced else MAX_RATIO_UNSPACED


@dataclass
class Survey:
    """What one pass through the training text found.

    Attributes:
        n_pairs: Number of sentence pairs.
        n_words: Number of words on the target side, estimated in languages without spaces.
        characters: The characters of both sides.
        candidates: Pairs that can be held out, in a random order.
    """

    n_pairs: int = 0
    n_words: float = 0.0
    characters: set[str] = field(default_factory=set)
    candidates: Sequence[Chosen] = ()

    def count(self, src: str, tgt: str, *, is_spaced: bool) -> None:
        """Count a pair; `is_spaced` if the target language has spaces between words."""
        self.n_pairs += 1
        self.n_words += len(tgt.split()) if is_spaced else WORDS_PER_CHARACTER * len(tgt)
        self.characters.update(src, tgt)


def write_recipe(new: NewRecipe, print_lines: Callable[[str], None]) -> Path:
    """Write NAME.toml to the current folder, and the sets that are held out of the text.

    Args:
        new: The recipe to be written.
        print_lines: Prints the first pairs of a text as it is read.

    Returns:
        The path of the recipe.

    Raises:
        UserError: The recipe would be invalid, a text cannot be read or is too small, or a file of
            the same name has other content.
    """
    held_out: dict[str, FilePair] = {}
    for kind in HELD_OUT_SETS:
        if kind not in new.sets:
            src, tgt = f"{new.name}/{kind}.{new.src_lang}", f"{new.name}/{kind}.{new.tgt_lang}"
            held_out[kind] = FilePair(name=kind, src=src, tgt=tgt)
    _check_name(new.name)
    _check_vocabulary(new)

    # A recipe of one pair has all values that can be invalid: they are refused before the text,
    # which may be large, is read.
    own_sets = list(new.sets.values())
    new = replace(new, sets={**new.sets, **held_out})
    recipe = parse_recipe(render_recipe(new, Survey(n_pairs=1)), new.path)
    if new.bundle is not None:
        open_parent(str(new.bundle.artifact.path), recipe)

    survey = survey_text(new, own_sets, print_lines)
    if survey.n_pairs < MIN_PAIRS:
        raise UserError(f"the text has {survey.n_pairs:,} pairs; at least {MIN_PAIRS} are needed")
    if new.bundle is None and survey.n_pairs < FEW_PAIRS:
        _warn(
            f"{survey.n_pairs:,} pairs are few to train from scratch: translations may be poor; "
            "add text, or fine-tune a model of the same languages with --from BUNDLE"
        )
    files = held_out_files(survey, held_out)
    files[new.path] = render_recipe(new, survey)

    for path, content in files.items():
        check_output("the output", path)
        if path.exists() and path.read_bytes() != content.encode():
            raise UserError(
                f"{path} exists and has other content; choose another name for the recipe, or move "
                "the file"
            )
    for path, content in files.items():
        path.parent.mkdir(exist_ok=True)
        with whole_file(path) as draft:
            draft.write_text(content, encoding="utf-8", newline="\n")
    return new.path


def _check_name(name: str) -> None:
    if not re.fullmatch(SET_NAME, name):
        raise UserError(f"{name!r} cannot name a recipe: use letters, digits, '-', '_' and '.'")
    if name in [path.stem for path in bundled_recipes()]:
        raise UserError(f"a recipe {name} comes with nmtkit; choose another name")


def _check_vocabulary(new: NewRecipe) -> None:
    for language in (new.src_lang, new.tgt_lang):
        if new.vocabulary == "bpe" and not language.is_spaced:
            raise UserError(
                f"--vocabulary bpe needs spaces between words, and {language} is written without "
                "them; omit the option"
            )


def survey_text(
    new: NewRecipe, own_sets: Sequence[Source], print_lines: Callable[[str], None]
) -> Survey:
    """Read the training text once, and the user's own sets to report their faults now.

    Args:
        new: The recipe to be written.
        own_sets: The dev and test sets that are not held out.
        print_lines: Prints the first pairs of a text as it is read.

    Returns:
        The counts of the text, and the pairs that can be held out.
    """
    survey = Survey()
    cleaning = Cleaning(MIN_TOKENS, MAX_TOKENS, new.max_ratio)

    def open_pairs(source: Source) -> Iterator[Pair]:
        corpus = find_corpus(source, new.src_lang, new.tgt_lang)
        lines, pairs = preview(corpus, partial(fetch, settings=Settings(RUNS)), _log, _warn)
        print_lines("\n".join(lines))
        return pairs

    def clean_pairs(texts: Sequence[Iterator[Pair]], task: progress.Task) -> Iterator[Pair]:
        for text in texts:
            for src, tgt in text:
                survey.count(src, tgt, is_spaced=new.tgt_lang.is_spaced)
                task.advance(1)
                if cleaning.reason_to_drop(src, tgt) is None:
                    yield src, tgt

    texts = [open_pairs(source) for source in new.train]
    with progress.task("new: read the text", unit="pairs") as task:
        n_candidates = len(HELD_OUT_SETS) * MAX_HELD_OUT
        survey.candidates = sample(clean_pairs(texts, task), n_candidates)
    # Read to the end: a fault would otherwise appear only after hours of training.
    for source in own_sets:
        for _ in open_pairs(source):
            pass
    return survey


def _log(message: str) -> None:
    progress.log(f"new: {message}")


def _warn(message: str) -> None:
    progress.warn(f"new: {message}")


def held_out_files(survey: Survey, sets: Mapping[str, FilePair]) -> dict[Path, str]:
    """Return the content of the files of held-out sets, in the order of the text.

    Args:
        survey: The survey of the training text.
        sets: The sets to be held out, by dev or test.

    Raises:
        UserError: The text repeats its sentences, so that too few pairs can be held out.
    """
    if not sets:
        return {}
    # Repeated pairs are one candidate, so that a text may have fewer of them than pairs.
    n_wanted = min(survey.n_pairs // HELD_OUT_SHARE, MAX_HELD_OUT)
    n_pairs = min(n_wanted, len(survey.candidates) // len(sets))
    if n_pairs < n_wanted < MAX_HELD_OUT:
        raise UserError(
            f"nearly all sentences of the text are repeated, so that no {next(iter(sets))} set can "
            "be held out; pass --dev and --test"
        )
    held_out = " and for ".join(sets)
    _log(f"held out {n_pairs:,} pairs of the text for {held_out}")

    files = {}
    for number, file_pair in enumerate(sets.values()):
        chosen = survey.candidates[number * n_pairs : (number + 1) * n_pairs]
        chosen = sorted(chosen, key=lambda candidate: candidate.line)
        for side, file in enumerate(file_pair.files()):
            files[file.path] = "".join(f"{candidate.pair[side]}\n" for candidate in chosen)
    return files


def choose_size(new: NewRecipe, survey: Survey) -> Size:
    """Return the size of the smallest recipe that fits the text, or that of fine-tuning."""
    if new.bundle is not None:
        return FINE_TUNING
    return next(size for size in SIZES if survey.n_words <= size.max_words)


def render_recipe(new: NewRecipe, survey: Survey) -> str:
    """Return the TOML of the recipe for a text of the surveyed size."""
    size = choose_size(new, survey)
    base = load_recipe(size.base_recipe, size.overrides)
    bundle = new.bundle

    # Each target sentence also has an end symbol.
    n_tgt_tokens = TOKENS_PER_WORD * survey.n_words + survey.n_pairs
    updates_per_epoch = n_tgt_tokens / base.training.src_tokens_per_update
    n_steps = max(size.n_epochs * updates_per_epoch, size.min_steps)
    checkpoint_every = 10 * round(n_steps / N_CHECKPOINTS / 10)
    max_steps = N_CHECKPOINTS * checkpoint_every

    # The pieces of all characters and bytes come on top of those that fit the size of the text.
    n_pieces = size.n_pieces + N_BYTE_PIECES + len(survey.characters)
    n_multiples = -(-n_pieces // PIECES_MULTIPLE)

    text = TEMPLATES.get_template("new.toml.j2").render(
        toml=toml_value,
        name=new.name,
        src_lang=new.src_lang,
        tgt_lang=new.tgt_lang,
        n_pairs=survey.n_pairs,
        reason=size.reason,
        train=new.train,
        sets=new.sets,
        min_tokens=MIN_TOKENS,
        max_tokens=MAX_TOKENS,
        max_ratio=new.max_ratio,
        vocabulary=new.vocabulary,
        n_merges=size.n_pieces,
        n_tokens=n_multiples * PIECES_MULTIPLE,
        bundle=bundle,
        model=bundle.description.config if bundle else base.model,
        decoding=bundle.decoding if bundle else PAPERS_DECODING,
        training=base.training,
        checkpoint_every=checkpoint_every,
        max_steps=max_steps,
        n_epochs=round(max_steps / updates_per_epoch),
    )
    for line in text.split("\n"):
        if not line.isprintable():
            raise UserError(
                f"{line!r} cannot be written to a recipe, which is plain text; rename the file"
            )
    return _align_comments(text)


def _align_comments(text: str) -> str:
    """Move the comments behind values to one column."""

    def align(found: re.Match[str]) -> str:
        return f"{found[1]:<{COMMENT_COLUMN}} # "

    return re.sub(r"^(\w+ = \S*) # ", align, text, flags=re.MULTILINE)


def toml_value(value: object) -> str:
    """Return a value of TOML on one line; a source becomes an inline table."""
    if isinstance(value, Source):
        # The paths first, as documents write them.
        table = dict.fromkeys(value.path_keys) | value.model_dump(exclude_defaults=True)
        items = [f"{key} = {toml_value(item)}" for key, item in table.items()]
        return f"{{ {', '.join(items)} }}"
    if type(value) is int:
        return f"{value:_}"
    return json.dumps(value, ensure_ascii=False)
