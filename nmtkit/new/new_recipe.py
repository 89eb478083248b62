"""A new recipe for a user's own parallel text: its values fit the size of the text."""

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Literal
from unicodedata import category

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from nmtkit.config.loading import bundled_recipes, load_recipe, parse_recipe
from nmtkit.config.model import PAPERS_DECODING
from nmtkit.corpus.bpe_subword import BpeSubword
from nmtkit.corpus.cleaning import Cleaning
from nmtkit.decoding.bundle import Bundle
from nmtkit.new.survey import HELD_OUT_SETS, Survey, held_out_files, survey_text
from nmtkit.sources.catalog import RemoteFile
from nmtkit.sources.download import Downloads
from nmtkit.sources.file_pair import FilePair
from nmtkit.sources.kinds import source_name
from nmtkit.sources.parallel import find_corpus
from nmtkit.sources.source import Source
from nmtkit.stages.fine_tuning import open_parent
from nmtkit.store.files import delete, whole_file
from nmtkit.store.output_check import check_output
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language
from nmtkit.utils.section import SET_NAME
from nmtkit.utils.text import counted, join_names

MIN_PAIRS = 100  # with fewer, a test set would have a handful of lines
# With fewer, a model learns little from scratch: after 100 pairs it has 0.31 BLEU, and 62.03 after
# fine-tuning (pipelines/results/fine-tuning_cpu_2026-11-22.md). Multi30k has 29,000.
FEW_PAIRS = 10_000

TOKENS_PER_WORD = 1.3  # subwords, roughly
N_BYTE_PIECES = 256  # pieces for the bytes of rare characters
PIECES_MULTIPLE = 100  # the vocabulary is rounded up to a multiple of this
VOCABULARY_MULTIPLE = "model.vocabulary_multiple=64"  # whole tiles of a GPU's matrix products
N_CHECKPOINTS = 20  # of a training; the last ones are averaged

# Bounds of training text, in words. Without spaces, a whole sentence is one word, so that no ratio
# of lengths is wrong.
MIN_TOKENS = 1
MAX_TOKENS = 250
MAX_RATIO = 9.0  # the default of clean-corpus-n.perl
MAX_RATIO_UNSPACED = 250.0

# Subwords of plain text, in any language; or of Moses tokens, as in the paper: many languages
# cannot be restored from these.
Vocabulary = Literal["sentencepiece", "bpe"]

REFUSED = ("Cc", "Cs")  # categories of Unicode: control characters, bytes that are not UTF-8
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
            VOCABULARY_MULTIPLE,
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
        overrides=(VOCABULARY_MULTIPLE,),
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
            VOCABULARY_MULTIPLE,
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
        overrides=("model.attention_bias=false", VOCABULARY_MULTIPLE),
    ),
)
FINE_TUNING = Size(
    max_words=inf,
    base_recipe="multi30k-en-de",
    n_epochs=10,
    n_pieces=0,  # the vocabulary is that of the bundle
    min_steps=400,
    reason="Fine-tuning of a bundle: fewer passes, a low learning rate, early stopping.",
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
        train: The training text: sources, and names of public corpora.
        sets: The dev and test sets of the user, or the names of public ones; those that are missing
            are held out.
        bundle: The bundle to fine-tune, if any.
    """

    name: str
    src_lang: Language
    tgt_lang: Language
    vocabulary: Vocabulary
    train: Sequence[Source | str]
    sets: Mapping[str, Source | str]
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


def write_recipe(new: NewRecipe, downloads: Downloads, print_lines: Callable[[str], None]) -> Path:
    """Write NAME.toml to the current folder, and the sets that are held out of the text.

    Args:
        downloads: The folder of downloads, and the mirror.
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
            # Sentences of any source may look like another format, such as a table.
            held_out[kind] = FilePair(name=kind, src=src, tgt=tgt, plain=True)
    if not re.fullmatch(SET_NAME, new.name):
        raise UserError(f"{new.name!r} cannot name a recipe: use letters, digits, '-', '_' and '.'")
    if new.name in [path.stem for path in bundled_recipes()]:
        raise UserError(f"a recipe {new.name} comes with nmtkit; choose another name")
    for language in (new.src_lang, new.tgt_lang):
        if new.vocabulary == "bpe" and not language.is_spaced:
            raise UserError(
                f"--vocabulary bpe needs spaces between words, but {language} is written without "
                "them; omit --vocabulary"
            )

    _check_texts(new)

    # A recipe of one pair has all values that can be invalid: they are refused before the text,
    # which may be large, is read.
    own_sets = list(new.sets.values())
    new = replace(new, sets={**new.sets, **held_out})
    recipe = parse_recipe(render_recipe(new, Survey(n_pairs=1)), new.path)
    if new.bundle is not None:
        open_parent(str(new.bundle.artifact.path), recipe)

    # Sentencepiece reads plain text without a tokenizer, too.
    has_tokens = (
        new.bundle is not None
        and new.bundle.text.src.tokenizer == "none"
        and isinstance(new.bundle.text.subword, BpeSubword)
    )
    # If a file is missing, all that are missing are listed.
    remote: list[RemoteFile] = []
    for source in [*new.train, *own_sets]:
        remote += find_corpus(source, new.src_lang, new.tgt_lang).downloads
    downloads = replace(downloads, needed=lambda: remote)
    survey = survey_text(
        new.train,
        own_sets,
        (new.src_lang, new.tgt_lang),
        Cleaning(MIN_TOKENS, MAX_TOKENS, new.max_ratio),
        downloads,
        print_lines,
        has_tokens=has_tokens,
    )
    if survey.n_pairs < MIN_PAIRS:
        raise UserError(
            f"the text has {counted(survey.n_pairs, 'pair')}; pass at least {MIN_PAIRS}"
        )
    if new.bundle is None and survey.n_pairs < FEW_PAIRS:
        progress.warn(
            f"new: the text has only {survey.n_pairs:,} pairs, so translations may be poor; add "
            "text, or fine-tune a model of the same languages with --from BUNDLE"
        )
    files = held_out_files(survey, held_out)
    files[new.path] = render_recipe(new, survey)

    # No file is written if another one is in the way.
    others = []
    for path, content in files.items():
        check_output("the output", path)
        if path.exists() and path.read_bytes() != content.encode():
            others.append(str(path))
    if others:
        exist = "exists and has" if len(others) == 1 else "exist and have"
        raise UserError(
            f"{join_names(others)} {exist} other content; choose another name for the recipe, or "
            f"delete the old files: rm {shlex.join(others)}"
        )
    _write_files(files)
    return new.path


def _check_texts(new: NewRecipe) -> None:
    """Refuse a text that is passed twice, or as training text and as a set.

    Raises:
        UserError: The text and the options that name it.
    """
    texts: list[Source | str] = []
    for source in new.train:
        if source in texts:
            name = source if isinstance(source, str) else source_name(source)
            raise UserError(
                f"{name} is passed twice as training text; pass it once (in the "
                "recipe, `weight` can be set to draw its pairs more often)"
            )
        texts.append(source)
    for kind, source in new.sets.items():
        # A set has another name than the same text for training.
        text = source
        if isinstance(source, Source):
            text = source.model_copy(update={"name": None})
        if text in texts:
            name = text if isinstance(text, str) else source_name(text)
            raise UserError(
                f"the {kind} set {name} is also training text; pass another text, or "
                f"omit it to hold out pairs for {kind}"
            )


def _write_files(files: Mapping[Path, str]) -> None:
    """Write new files in their order: all of them, or after an error none.

    Args:
        files: The content of each file. Files that exist have it already.
    """
    created: list[Path] = []
    try:
        for path, content in files.items():
            for new_path in (path.parent, path):
                if not new_path.exists():
                    created.append(new_path)
            path.parent.mkdir(exist_ok=True)
            with whole_file(path) as draft:
                draft.write_text(content, encoding="utf-8", newline="\n")
    except BaseException:
        for path in reversed(created):
            delete(path)
        raise


def render_recipe(new: NewRecipe, survey: Survey) -> str:
    """Return the TOML of the recipe for a text of the surveyed size."""
    size = next(size for size in SIZES if survey.n_words <= size.max_words)
    if new.bundle is not None:
        size = FINE_TUNING
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
    text = json.dumps(value, ensure_ascii=False)
    # A name may have spaces or joiners that are invisible. Control characters are refused later.
    characters = []
    for character in text:
        is_invisible = not character.isprintable() and category(character) not in REFUSED
        characters.append(f"\\U{ord(character):08X}" if is_invisible else character)
    return "".join(characters)
