"""The schema of a recipe: everything that an artifact depends on, except for the machine.

Keys with a default came later. The default means "off" and is not part of a fingerprint.
"""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    model_validator,
)

from nmtkit.config.model import DecodingConfig, ModelConfig
from nmtkit.sources.file_pair import FilePair
from nmtkit.sources.kinds import AnySource, WeightedCorpus, source_name
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import TREE, Language
from nmtkit.utils.section import MAX_INT, Count, Positive, Section
from nmtkit.utils.text import quote

CountOrZero = Annotated[int, Field(ge=0, le=MAX_INT)]
Share = Annotated[float, Field(ge=0, lt=1)]
# Token ids have 32 bits; no vocabulary in use has a million.
VocabularySize = Annotated[int, Field(ge=1, le=2**24)]

# Sentencepiece writes a space as U+2581.
PROTECTED_TOKEN = re.compile(r"[^\s\u2581]{1,100}")

NAME = r"^[A-Za-z0-9._-]+$"
# An artifact has files and a folder of its own with these names.
RESERVED_NAMES = ("manifest.json", "measurements.json", "temporary")
# Former keys, with their values in the shipped recipes: fingerprints must not change.
FORMER_KEYS = {"training": {"checkpoint_every_minutes": 0.0}}
SacrebleuTokenizer = Literal[
    "13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "none", "flores101", "flores200"
]
MAX_SET_NAME = 200  # characters; the limit of paths in a manifest and of file names is 255


def _without_nul(path: str) -> str:
    """Refuse a path that no system accepts."""
    if "\0" in path:
        raise ValueError("a path cannot contain a NUL character")
    return path


PathName = Annotated[str, AfterValidator(_without_nul)]


def _language(tag: object) -> Language:
    """Parse a language tag; raise ValueError, to be reported by pydantic with its key."""
    if isinstance(tag, Language):
        return tag
    try:
        return Language.of(str(tag))
    except UserError as error:
        raise ValueError(str(error)) from None


def _language_or_tree(tag: object) -> Language:
    """Parse a language tag, or the name of the target of a parser."""
    return TREE if tag == TREE.tag else _language(tag)


# In fingerprints, all tags of a language are the same.
_CANONICAL = PlainSerializer(lambda language: language.canonical, return_type=str)
LanguageTag = Annotated[Language, PlainValidator(_language), _CANONICAL]
LanguageTagOrTree = Annotated[Language, PlainValidator(_language_or_tree), _CANONICAL]


class CorpusConfig(Section):
    """The text, its cleaning and its tokenization (section 5.1)."""

    src_lang: LanguageTag
    tgt_lang: LanguageTagOrTree
    train: Annotated[tuple[AnySource, ...], Field(min_length=1, strict=False)]
    dev: AnySource | None = None
    # Instead of dev: every n-th clean training pair is held out as the development set.
    dev_every: Annotated[int, Field(ge=2, le=MAX_INT)] | None = None
    normalize_punctuation: bool
    # true: before the tokenizer, which joins some full stops to words before a lower-case word.
    # "tokens": after it, as scripts with lowercase.perl do.
    lowercase: Literal[False, True, "tokens"]
    tokenizer: Literal["moses", "none"]
    aggressive_hyphens: bool  # tokenizer.perl -a: "well-known" becomes "well @-@ known"
    # Training pairs with a side outside this range are dropped (clean-corpus-n.perl).
    min_tokens: Count
    max_tokens: Count
    max_ratio: Positive
    drop_duplicates: bool  # keep one of equal training pairs
    # Training pairs with a side that is also a line of one of these sets are dropped.
    drop_held_out: Annotated[tuple[AnySource, ...], Field(strict=False)] = ()
    # Parsing (section 6.3): the target is trees, with the words' tags or XX (Vinyals et al. 2015).
    linearization: Literal["tags", "xx"] | None = None

    @property
    def dev_sources(self) -> tuple[AnySource, ...]:
        """The text of the development set; none if it is a part of the training text."""
        return () if self.dev is None else (self.dev,)

    @property
    def weights(self) -> list[float]:
        """The number of times that an epoch draws the training corpora; 0.5 draws half of one."""
        return [1.0 if isinstance(source, str) else source.weight for source in self.train]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.min_tokens > self.max_tokens:
            raise ValueError(
                f"min_tokens = {self.min_tokens} is more than max_tokens = {self.max_tokens}"
            )
        if (self.dev is None) == (self.dev_every is None):
            raise ValueError("set either dev or dev_every")
        if self.src_lang == self.tgt_lang:
            raise ValueError(
                f"src_lang and tgt_lang are both {self.src_lang}; set two different languages"
            )
        if (self.linearization is None) == (self.tgt_lang == TREE):
            raise ValueError(
                f'a parser has tgt_lang = "{TREE}" and a linearization, such as "tags"; a '
                "translator has neither"
            )
        changes_words = self.tokenizer != "none" or self.lowercase or self.normalize_punctuation
        if self.linearization and changes_words:
            raise ValueError(
                'a parser does not change the words of trees; set tokenizer = "none", lowercase '
                "= false and normalize_punctuation = false"
            )
        return self


class BpeConfig(Section):
    """Byte-pair encoding, learned on both sides together (section 5.1)."""

    method: Literal["bpe"]
    n_merges: VocabularySize
    # Of subword-nmt. In 0.1 the end of a word is a symbol of its own; in 0.2 it belongs to the last
    # character.
    bpe_version: Annotated[Literal["0.1", "0.2"], BeforeValidator(str)] = "0.2"  # or a number


class SentencePieceConfig(Section):
    """A sentencepiece vocabulary instead of the paper's word-pieces (section 5.1)."""

    method: Literal["sentencepiece"]
    n_tokens: Annotated[int, Field(ge=8, le=2**24)]
    # Strings that are always one piece each, such as "<b>" and "{0}": translation can keep them.
    protected: Annotated[tuple[str, ...], Field(strict=False)] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        for token in self.protected:
            if not PROTECTED_TOKEN.fullmatch(token):
                raise ValueError(
                    f"protected has {quote(token)}; use strings of 1 to 100 characters without "
                    "spaces and without U+2581"
                )
            if self.protected.count(token) > 1:
                raise ValueError(f"protected has {token!r} several times; list it once")
        return self


class BundleConfig(Section):
    """The vocabulary of a bundle, whose languages and tokenization [corpus] must have."""

    method: Literal["bundle"]
    path: PathName


class TrainingConfig(Section):
    """Batches, schedule, optimizer and regularization (section 5)."""

    seed: Annotated[int, Field(ge=0, lt=2**63)]
    # Fine-tuning: the bundle to start from, with this vocabulary and, but for dropout, [model].
    start_from: PathName | None = None
    max_steps: Count
    src_tokens_per_update: Count  # maximum, including the EOS and without padding
    tgt_tokens_per_update: Count
    batches: Literal["random", "like-length"] = "random"  # pairs of the same update
    warmup_steps: Count
    learning_rate_scale: Positive  # 1.0 is equation 3
    adam_beta1: Share
    adam_beta2: Share
    adam_epsilon: Positive
    # Decoupled from the gradient: a step multiplies each weight by 1 - learning rate * weight_decay
    # (Loshchilov and Hutter 2019).
    weight_decay: Share = 0.0
    label_smoothing: Share  # epsilon_ls
    checkpoint_every_steps: Count  # checkpoints for averaging
    keep_checkpoints: Count
    dev_every_steps: CountOrZero  # evaluation on dev; 0: only at the end
    # Early stopping: the number of evaluations without a new best one. Averaging then ends with the
    # best checkpoint.
    patience: Count | None = None
    # The metric of the best checkpoint: perplexity on dev (the default), or a score of all
    # of dev translated by greedy search, since [decoding] may change after training. If it is set,
    # the best checkpoints are kept too, for [averaging] which = "best".
    patience_metric: Literal["perplexity", "sacrebleu", "chrf"] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not (self.patience or self.patience_metric):
            return self
        has_checkpoints = self.dev_every_steps % self.checkpoint_every_steps == 0
        if self.dev_every_steps == 0 or not has_checkpoints:
            key = "patience" if self.patience else "patience_metric"
            raise ValueError(
                f"{key} = {getattr(self, key)!r} needs a checkpoint at every evaluation, but "
                f"dev_every_steps = {self.dev_every_steps} is not a multiple of "
                f"checkpoint_every_steps = {self.checkpoint_every_steps}"
            )
        return self

    def is_evaluated(self, step: int) -> bool:
        """Return whether the model is evaluated on dev after `step`."""
        if step == self.max_steps:
            return True
        return self.dev_every_steps > 0 and step % self.dev_every_steps == 0

    def is_judged(self, step: int) -> bool:
        """Return whether the evaluation after `step` may be the best one."""
        judges = self.patience is not None or self.patience_metric is not None
        return judges and step % self.dev_every_steps == 0

    def is_scheduled(self, step: int) -> bool:
        """Return whether averaging or early stopping may need the checkpoint of `step`."""
        n_steps_left = self.max_steps - step
        if n_steps_left > 0 and step % self.checkpoint_every_steps != 0:
            return False
        may_be_best = self.patience is not None or self.is_judged(step)
        n_later = -(-n_steps_left // self.checkpoint_every_steps)
        return may_be_best or n_later < self.keep_checkpoints


class AveragingConfig(Section):
    """Averaging of checkpoints (section 6.1)."""

    n_checkpoints: Count
    # "last": those before the end or, with patience, up to the best one. "best": the best ones by
    # [training] patience_metric, at any steps.
    which: Literal["last", "best"] = "last"
    # Number of target tokens that CTranslate2 may produce for a source token, besides frequent ones
    # (`corpus/vocabulary_map.py`). 0: all tokens.
    n_target_candidates: CountOrZero = 0


class TestConfig(Section):
    """The sets to translate and score: any sets, at any time after training."""

    sets: Annotated[tuple[AnySource, ...], Field(min_length=1, strict=False)]

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = [source_name(source) for source in self.sets]
        for name in names:
            if name.lower() in RESERVED_NAMES:
                raise ValueError(f'a set cannot be called {name}; set another "name"')
            if len(name) > MAX_SET_NAME:
                raise ValueError(
                    f"the name of a set, {name[:20]}..., has {len(name):,} characters, more than "
                    f'{MAX_SET_NAME}; set a shorter "name"'
                )
            if names.count(name) > 1:
                raise ValueError(f'{names.count(name)} sets are called {name}; set another "name"')
            # Each set has a folder of its name, and not all disks distinguish case.
            same = [other for other in names if other.lower() == name.lower()]
            if len(same) > 1:
                raise ValueError(
                    f"the sets {' and '.join(same)} would have the same folder on a disk that "
                    'ignores case; set another "name"'
                )
        return self


class ScoringConfig(Section):
    """Preprocessing of hypotheses and references."""

    lowercase: bool
    # Apply normalize-punctuation.perl to both sides, for tokenized BLEU only.
    normalize_punctuation: bool
    metric: Literal["bleu", "bracket_f1"] = "bleu"
    # Print the paper's kinds of BLEU, too. It changes no score, and no fingerprint depends on it.
    paper_bleu: bool = Field(False, exclude=True)
    # By default, sacreBLEU's own for the target language.
    sacrebleu_tokenizer: SacrebleuTokenizer | None = None


class Recipe(Section):
    """One experiment, from its corpora to its BLEU."""

    name: Annotated[str, Field(pattern=NAME)]
    description: str
    corpus: CorpusConfig
    subword: Annotated[
        BpeConfig | SentencePieceConfig | BundleConfig, Field(discriminator="method")
    ]
    model: ModelConfig
    training: TrainingConfig
    averaging: AveragingConfig
    decoding: DecodingConfig
    test: TestConfig
    scoring: ScoringConfig

    @model_validator(mode="after")
    def _check(self) -> Self:
        self._check_sources()
        is_parser = self.corpus.linearization is not None
        metric = self.training.patience_metric
        if (self.scoring.metric == "bracket_f1") != is_parser:
            raise ValueError(
                f'[scoring] metric = "{self.scoring.metric}" does not fit the target; use '
                '"bracket_f1" for trees and "bleu" for translations'
            )
        if is_parser and metric in ("sacrebleu", "chrf"):
            raise ValueError(
                f'training.patience_metric = "{metric}" scores translations; use "perplexity" for '
                "a parser"
            )
        dev_every_steps = self.training.dev_every_steps
        max_steps = self.training.max_steps
        if self.averaging.which == "best" and (not metric or dev_every_steps > max_steps):
            raise ValueError(
                'averaging.which = "best" needs training.patience_metric, such as "perplexity", '
                f"and an evaluation: dev_every_steps = {dev_every_steps}, max_steps = {max_steps}"
            )
        if self.averaging.n_checkpoints > self.training.keep_checkpoints:
            raise ValueError(
                f"averaging.n_checkpoints = {self.averaging.n_checkpoints} is more than "
                f"training.keep_checkpoints = {self.training.keep_checkpoints}"
            )
        return self

    def _check_sources(self) -> None:
        """Check that the sources fit the languages and the keys that list them."""
        corpus = self.corpus
        is_parser = corpus.linearization is not None
        training = (*corpus.train, *corpus.dev_sources, *corpus.drop_held_out)
        for source in (*training, *self.test.sets):
            if isinstance(source, str):
                continue
            if source.weight != 1 and source not in corpus.train:
                raise ValueError(
                    f"{source_name(source)} has weight = {source.weight}, but only [corpus] "
                    "train takes weights; remove it"
                )
            if isinstance(source, WeightedCorpus):
                continue
            source.check(corpus.src_lang, corpus.tgt_lang)
            if is_parser not in source.trees:
                raise ValueError(
                    f"{source_name(source)} is {source.title}; a parser needs trees (a file or "
                    f'folder as treebank), and trees need tgt_lang = "{TREE}" and '
                    'linearization = "tags" or "xx"'
                )
            if source in training and isinstance(source, FilePair) and not source.tgt:
                raise ValueError(
                    f"{source_name(source)} has no tgt; set it (only a test set can omit it)"
                )

    def section(self, name: str) -> dict[str, Any]:
        """Return the values of a section for fingerprints and manifests."""
        values: dict[str, Any] = getattr(self, name).model_dump(mode="json", exclude_defaults=True)
        return {**values, **FORMER_KEYS.get(name, {})}
