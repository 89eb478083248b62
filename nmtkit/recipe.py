"""Recipes: one experiment, complete, in one TOML file of `pipelines/`.

A recipe is typed, frozen and strict. What a result depends on stands in the file, with the paper's
section beside it. The keys that have a default came after the first recipes: left out, they are
off, and off they are no part of a fingerprint, so that a new key retrains nobody. `--set
section.key=value` overrides a value; facts of the machine are no part of it.
"""

import difflib
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    model_validator,
)

from nmtkit.errors import UserError

MAX_BYTES = 2**16  # of a recipe's file; those that come with nmtkit have 3,000
MAX_INT = 2**63 - 1  # as in TOML

Count = Annotated[int, Field(ge=1, le=MAX_INT)]
CountOrZero = Annotated[int, Field(ge=0, le=MAX_INT)]
Share = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]

NAME = r"^[A-Za-z0-9._-]+$"
REPOSITORY = r"^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$"
COMMIT = r"^[0-9a-f]{40}$"
LANGUAGE = r"^[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8})*$"  # names files


class Section(BaseModel):
    """One table of a recipe."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class FilePair(Section):
    """A user's own parallel text: two files, line by line translations of each other."""

    src: str
    tgt: str


class TsvFile(Section):
    """A user's own parallel text in one file: two columns, a tab between."""

    tsv: str
    columns: Annotated[
        tuple[str, str], Field(strict=False)
    ]  # their languages, such as ["en", "de"]


class TmxFile(Section):
    """A user's translation memory; segments of other languages are passed over."""

    tmx: str


class HubSource(Section):
    """A dataset of translations on the Hugging Face hub, as it was at one commit."""

    huggingface: Annotated[str, Field(pattern=REPOSITORY)]  # such as "wmt/wmt14"
    subset: str  # such as "de-en"
    split: str  # such as "train"
    revision: Annotated[str, Field(pattern=COMMIT)]


# The kinds of a source that is no name of the catalog, by the key that only they have.
_SOURCES: dict[str, type[Section]] = {
    "src": FilePair,
    "tsv": TsvFile,
    "tmx": TmxFile,
    "huggingface": HubSource,
}


def _source_tag(source: object) -> str:
    if isinstance(source, Section):
        return type(source).__name__
    if not isinstance(source, dict):
        return "str"
    return next((kind.__name__ for key, kind in _SOURCES.items() if key in source), "FilePair")


# A name of the catalog, or text from elsewhere.
Source = Annotated[
    Annotated[str, Tag("str")]
    | Annotated[FilePair, Tag("FilePair")]
    | Annotated[TsvFile, Tag("TsvFile")]
    | Annotated[TmxFile, Tag("TmxFile")]
    | Annotated[HubSource, Tag("HubSource")],
    Discriminator(_source_tag),
]


class CorpusConfig(Section):
    """What text is read, and how raw text becomes tokens (section 5.1)."""

    src_lang: Annotated[str, Field(pattern=LANGUAGE)]
    tgt_lang: Annotated[str, Field(pattern=LANGUAGE)]
    train: Annotated[tuple[Source, ...], Field(min_length=1, strict=False)]
    dev: Source
    test: Source
    normalize_punctuation: bool
    lowercase: bool
    tokenizer: Literal["moses", "none"]
    aggressive_hyphens: bool  # tokenizer.perl -a: "well-known" becomes "well @-@ known"
    min_tokens: (
        Count  # a training pair with a side outside min..max is dropped (clean-corpus-n.perl)
    )
    max_tokens: Count
    max_ratio: Positive
    drop_duplicates: bool  # of a training pair that occurs again, both sides alike, one is kept
    drop_held_out: bool  # a training pair is dropped if a side is also a line of dev or test

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.min_tokens > self.max_tokens:
            raise ValueError(
                f"min_tokens = {self.min_tokens} is more than max_tokens = {self.max_tokens}"
            )
        if self.src_lang == self.tgt_lang:
            raise ValueError(f"src_lang and tgt_lang are both {self.src_lang!r}")
        for source in (*self.train, self.dev, self.test):
            if isinstance(source, TsvFile) and set(source.columns) != {
                self.src_lang,
                self.tgt_lang,
            }:
                raise ValueError(
                    f"columns = {json.dumps(source.columns)} of {source.tsv} are not the languages "
                    f"{self.src_lang} and {self.tgt_lang}"
                )
        return self


class BpeConfig(Section):
    """Byte-pair encoding, learned on both sides together (section 5.1)."""

    method: Literal["bpe"]
    n_merges: Count


class SentencePieceConfig(Section):
    """A vocabulary of sentencepiece, in the place of the paper's word-pieces (section 5.1)."""

    method: Literal["sentencepiece"]
    n_tokens: Annotated[int, Field(ge=8, le=MAX_INT)]


class ModelConfig(Section):
    """The Transformer (section 3), with every freedom of Table 3."""

    n_layers: Count  # N, in the encoder and again in the decoder
    d_model: Count
    d_ff: Count
    n_heads: Count  # h
    d_k: Count
    d_v: Count
    attention_bias: bool = False  # on the projections of attention
    dropout: Share  # P_drop, on each sub-layer's output and on the embeddings
    positions: Literal["sinusoid", "learned"]
    max_positions: Count  # rows of the learned positions, and the longest sentence of training
    norm: Literal["post", "pre"]
    tie_embeddings: bool  # source, target and pre-softmax matrix are one (section 3.4)
    vocabulary_multiple: Count  # its rows: the vocabulary, rounded up to a multiple of this

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.positions == "sinusoid" and self.d_model % 2:
            raise ValueError(
                f'd_model = {self.d_model} is odd, where positions = "sinusoid" needs an even one'
            )
        return self

    def rows_for(self, n_tokens: int) -> int:
        """Rows of the embedding matrix for a vocabulary of `n_tokens`."""
        return -(-n_tokens // self.vocabulary_multiple) * self.vocabulary_multiple


class TrainingConfig(Section):
    """Batches, schedule, optimizer and regularization (section 5)."""

    seed: Annotated[int, Field(ge=0, lt=2**63)]
    max_steps: Count
    src_tokens_per_update: Count  # the most real tokens of one update, end symbols counted
    tgt_tokens_per_update: Count
    batches: Literal["random", "like-length"] = "random"  # the pairs of an update
    warmup_steps: Count
    learning_rate_scale: Positive  # 1.0 is equation 3
    adam_beta1: Share
    adam_beta2: Share
    adam_epsilon: Positive
    label_smoothing: Share  # epsilon_ls
    checkpoint_every_steps: CountOrZero  # 0: not by steps
    checkpoint_every_minutes: Annotated[float, Field(ge=0)]  # 0: not by the clock
    keep_checkpoints: Count
    dev_every_steps: CountOrZero  # dev perplexity; 0: only at the end

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.checkpoint_every_steps and not self.checkpoint_every_minutes:
            raise ValueError(
                "checkpoint_every_steps and checkpoint_every_minutes are both 0, "
                "so that nothing would be saved"
            )
        return self


class AveragingConfig(Section):
    """The last checkpoints whose mean is the model (section 6.1)."""

    n_checkpoints: Count


class DecodingConfig(Section):
    """Beam search (section 6.1)."""

    beam_size: Count
    # alpha of ((5 + length) / 6) ** alpha (GNMT, equation 14)
    length_penalty: Annotated[float, Field(ge=0)]
    # longest output: the source's length + this
    max_extra_tokens: Annotated[int, Field(ge=0, le=1_000)]


class ScoringConfig(Section):
    """What the hypotheses and references go through before they are compared."""

    lowercase: bool
    # Of tokenized BLEU alone: both sides go through normalize-punctuation.perl.
    normalize_punctuation: bool


class Recipe(Section):
    """One experiment, from the names of its corpora to the way its BLEU is counted."""

    name: Annotated[str, Field(pattern=NAME)]
    description: str
    corpus: CorpusConfig
    subword: Annotated[BpeConfig | SentencePieceConfig, Field(discriminator="method")]
    model: ModelConfig
    training: TrainingConfig
    averaging: AveragingConfig
    decoding: DecodingConfig
    scoring: ScoringConfig

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.averaging.n_checkpoints > self.training.keep_checkpoints:
            raise ValueError(
                f"averaging.n_checkpoints = {self.averaging.n_checkpoints} is more than "
                f"training.keep_checkpoints = {self.training.keep_checkpoints}"
            )
        return self

    def expected_vocabulary(self) -> int:
        """A guess before the text is read: 32,000 merges of news leave about 37,000 tokens."""
        if isinstance(self.subword, BpeConfig):
            return round(self.subword.n_merges * 37 / 32)
        return self.subword.n_tokens

    def section(self, name: str) -> dict[str, Any]:
        """The values of one table, as they go into a fingerprint and a manifest."""
        values: dict[str, Any] = getattr(self, name).model_dump(mode="json", exclude_defaults=True)
        return values


def recipes_dir() -> Path:
    """Where nmtkit's own recipes lie: the repository's `pipelines/`, or the wheel's copy."""
    package = Path(__file__).resolve().parent
    inside = package / "pipelines"
    return inside if inside.is_dir() else package.parent / "pipelines"


def bundled_recipes() -> list[Path]:
    """The recipes that come with nmtkit, by name."""
    return sorted(recipes_dir().glob("*.toml"))


def load_recipe(name_or_path: str, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe by bare name or by path, with `section.key=value` overrides.

    Raises:
        UserError: no such recipe, bad TOML, an unknown key, a wrong type, an impossible value.
    """
    path = _find(name_or_path)
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise UserError(f"{path} has more than {MAX_BYTES:,} bytes, so it is no recipe")
    try:
        document = _parse(content.decode("utf-8").removeprefix("\ufeff"))
    except UnicodeDecodeError as error:
        byte = f"byte 0x{error.object[error.start]:02x} at offset {error.start:,}"
        raise UserError(f"{path} is not UTF-8 text: {byte}; save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path} is not valid TOML: {error}; fix the file") from None
    document = _with_absolute_files(document, path.resolve().parent)
    for override in overrides:
        _override(document, override)
    try:
        return Recipe.model_validate(document)
    except ValidationError as error:
        origin = " --set ".join([str(path), *(_short(override, 200) for override in overrides)])
        raise UserError(f"{origin}: {_explain(error, Recipe, document)}") from None


def load_decoding(overrides: Sequence[str]) -> DecodingConfig:
    """How to decode without a recipe: as the paper does (section 6.1), but for `overrides`.

    Raises:
        UserError: an unknown key, a wrong type, an impossible value.
    """
    document: dict[str, Any] = {
        "decoding": {"beam_size": 4, "length_penalty": 0.6, "max_extra_tokens": 50}
    }
    for override in overrides:
        _override(document, override)
    try:
        return _DecodingAlone.model_validate(document).decoding
    except ValidationError as error:
        origin = " ".join(f"--set {_short(override, 200)}" for override in overrides)
        raise UserError(f"{origin}: {_explain(error, _DecodingAlone, document)}") from None


class _DecodingAlone(Section):
    decoding: DecodingConfig


def _parse(text: str) -> dict[str, Any]:
    """Parse TOML.

    Raises:
        TOMLDecodeError: whatever the parser stumbles over.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:  # Python reads no number of more than 4,300 digits
        raise tomllib.TOMLDecodeError("a number of too many digits") from None
    except RecursionError:
        raise tomllib.TOMLDecodeError("too many brackets within one another") from None


def _find(name_or_path: str) -> Path:
    path = Path(name_or_path)
    if path.suffix == ".toml" or len(path.parts) > 1:
        if not path.is_file():
            raise UserError(
                f"there is no recipe file {name_or_path!r}; give a path that exists or a bare name"
            )
        return path
    known = {recipe.stem: recipe for recipe in bundled_recipes()}
    if name_or_path not in known:
        hint = _nearest(name_or_path, known)
        raise UserError(
            f"there is no recipe {name_or_path!r}{hint}; `nmtkit recipes` lists those there are, "
            "and a file of your own is named by its path, such as ./mine.toml"
        )
    return known[name_or_path]


def _with_absolute_files(document: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A user's own files are named relative to the recipe that names them."""

    def absolute(source: Any) -> Any:
        if not isinstance(source, dict):
            return source
        files = {
            key: str(folder / value)
            for key, value in source.items()
            if key in ("src", "tgt", "tsv", "tmx") and isinstance(value, str)
        }
        return {**source, **files}

    corpus = document.get("corpus")
    if isinstance(corpus, dict):
        if isinstance(corpus.get("train"), list):
            corpus["train"] = [absolute(source) for source in corpus["train"]]
        held_out = [split for split in ("dev", "test") if split in corpus]
        corpus.update({split: absolute(corpus[split]) for split in held_out})
    return document


def _override(document: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise UserError(f"--set takes section.key=value, not {_short(override)!r}")
    try:
        parsed = _parse(f"value = {text}")
    except tomllib.TOMLDecodeError:
        parsed = {"value": text.strip()}  # a bare word is a string: --set model.norm=pre
    if len(parsed) > 1:
        raise UserError(f"--set takes one value, not several as in {_short(override)!r}")
    table = document
    for part in parts[:-1]:
        inner = table.setdefault(part, {})
        if not isinstance(inner, dict):
            raise UserError(f"--set {_short(override)!r}: {part!r} is a value, not a section")
        table = inner
    table[parts[-1]] = parsed["value"]


def _nearest(word: str, known: Mapping[str, object] | Sequence[str]) -> str:
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" (did you mean {near[0]!r}?)" if near else ""


# What a value must be, by pydantic's name of the error.
_MUST_BE = {
    "bool_type": "true or false",
    "finite_number": "a finite number",
    "float_type": "a number",
    "greater_than": "more than {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "int_type": "a whole number",
    "less_than": "less than {lt:g}",
    "less_than_equal": "at most {le:,}",
    "literal_error": "{expected}",
    "model_attributes_type": "a section",
    "model_type": "a section",
    "string_type": "text in quotes",
    "string_unicode": "valid Unicode",
    "too_short": "a list of at least one",
    "tuple_type": "a list",
    "union_tag_invalid": "one of {expected_tags}",
}
_MUST_MATCH = {
    NAME: "made of letters, digits, '.', '_' and '-' alone",
    LANGUAGE: "a language's code, such as en or pt-BR",
    REPOSITORY: "a repository of the Hugging Face hub, owner/name",
    COMMIT: "a commit in full, 40 hexadecimal digits",
}


def _explain(error: ValidationError, root: type[Section], document: Mapping[str, Any]) -> str:
    """The first thing wrong, in one sentence: key, value and the nearest right key."""
    # An unknown key explains a missing one: a misspelling makes both.
    first = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
    kind, context = first["type"], first.get("ctx", {})
    where = [part for part in first["loc"] if part not in _UNION_TAGS]
    if kind.startswith("union_tag"):
        where.append("method")
    name = _name(where, is_section=isinstance(first["input"], dict))
    if kind == "extra_forbidden":
        inside = next((_SOURCE_TAGS[tag] for tag in first["loc"] if tag in _SOURCE_TAGS), None)
        keys = list(inside.model_fields) if inside else _keys_of(root, where[:-1], document)
        hint = _nearest(str(where[-1]), keys)
        seen = name if isinstance(first["input"], dict) else f"{name} = {_shown(first['input'])}"
        return f"{seen} is unknown{hint}; remove it or correct its name"
    if kind in ("missing", "union_tag_not_found"):
        return f"{name} is missing; a recipe is complete, so add it"
    if kind == "value_error":
        return f"{name} {context['error']}; change one of them".lstrip()
    value = first["input"]["method"] if kind == "union_tag_invalid" else first["input"]
    must_be = _MUST_BE.get(kind) or _MUST_MATCH[context["pattern"]]
    return f"{name} = {_shown(value)} must be {must_be.format(**context)}"


_SOURCE_TAGS = {kind.__name__: kind for kind in _SOURCES.values()}
_UNION_TAGS = ("bpe", "sentencepiece", "str", *_SOURCE_TAGS)  # pydantic puts them between the keys


def _name(where: Sequence[int | str], *, is_section: bool) -> str:
    """A key as messages name it: `name`, `[model]`, `[model] n_layers`, `[corpus] train[0].src`."""
    if not where:
        return ""
    section, *keys = [key if isinstance(key, int) else _key(key) for key in where]
    if not keys and (section in ("name", "description") or not is_section):
        return str(section)
    path = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)
    return f"[{section}] {path.removeprefix('.')}".rstrip()


def _key(key: str) -> str:
    """A key as TOML writes it: bare, or in quotes."""
    return _short(key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key))


def _shown(value: object) -> str:
    try:
        return _short(json.dumps(value, ensure_ascii=False, default=str))
    except (ValueError, RecursionError):  # a number or a list beyond all bounds
        return "..."


def _short(text: str, n_most: int = 60) -> str:
    return text if len(text) <= n_most else text[: n_most - 3] + "..."


def _keys_of(
    root: type[Section], where: Sequence[int | str], document: Mapping[str, Any]
) -> list[str]:
    """The keys that the table at `where` of `root` may have."""
    if not where:
        return list(root.model_fields)
    section = root.model_fields[str(where[0])].annotation
    if where[0] == "subword":
        section = BpeConfig if document["subword"]["method"] == "bpe" else SentencePieceConfig
    assert isinstance(section, type)
    assert issubclass(section, Section)
    return list(section.model_fields)
