"""Translation of lines of raw text, with any engine.

This module does not import torch, because not all engines need it.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from nmtkit.config.model import DecodingConfig, ModelConfig
from nmtkit.corpus.linearized import Repair, read_back
from nmtkit.corpus.long_lines import MAX_CHARACTERS, encode_in_pieces
from nmtkit.corpus.moses import Tokenization, Tokenizations
from nmtkit.corpus.special_tokens import EOS_ID
from nmtkit.corpus.subword import Subword, load_subword
from nmtkit.decoding.engine import Engine, Hypothesis, Sampling, Sentences, map_groups
from nmtkit.decoding.sentences import split_sentences
from nmtkit.store.artifacts import Artifact
from nmtkit.utils import progress
from nmtkit.utils.errors import Advance, UserError
from nmtkit.utils.language import parse_tag
from nmtkit.utils.text import is_blank, join_names

# Maximum number of subwords that are translated at a time, whatever a bundle declares: some four
# times the longest line of news.
MAX_SUBWORDS = 1_024

# ISO 15924 codes of the scripts that have no space between two sentences. Other scripts without
# spaces between words, such as Thai, have one between sentences.
_SENTENCES_UNSPACED = re.compile("Bopo|Han[ist]|Hira|Hrkt|Jpan|Kana")


@dataclass(frozen=True)
class Translation:
    """The translation of a line.

    A line is translated in pieces: its sentences, or parts of those that are too long.

    Attributes:
        text: Raw text.
        score: Log-probability divided by the length penalty, summed over the pieces.
        log_prob: Log-probability, summed over the pieces.
        src: Ids of the pieces of the source, EOS included.
        tgt: Ids of the pieces of the translation, without EOS.
        repairs: Repairs that turned the output of a parser into a tree.
        n_cut: Number of sentences that were too long to be translated in one piece.
        has_tag: Whether the line has a language tag; it begins every piece of the source.
        continues: For every piece of the source, whether it continues a word, since no space
            precedes it.
    """

    text: str
    score: float
    log_prob: float
    src: list[list[int]]
    tgt: list[list[int]]
    repairs: Sequence[str] = ()
    n_cut: int = 0
    has_tag: bool = False
    continues: Sequence[bool] = ()

    @property
    def n_tokens(self) -> int:
        """The number of tokens of the translation, without EOS."""
        return sum(len(ids) for ids in self.tgt)

    @property
    def n_pieces(self) -> int:
        """The number of pieces of the line: 0 for an empty line."""
        return len(self.src)


@dataclass(frozen=True)
class Text:
    """Subwords and tokenizations: they convert raw text to token ids, and ids to text."""

    subword: Subword
    src: Tokenization
    tgt: Tokenization

    @property
    def has_trees(self) -> bool:
        """Whether source or target are parse trees (section 6.3)."""
        return self.src.has_trees or self.tgt.has_trees

    @classmethod
    def load(cls, artifact: Artifact, n_rows: int) -> "Text":
        """Load and verify the subwords and tokenizations of a prepared corpus or a bundle.

        Args:
            artifact: The corpus or the bundle.
            n_rows: Number of rows of the model's embedding.

        Raises:
            UserError: The vocabulary is larger than the embedding.
        """
        subword = load_subword(artifact)
        tokenizations = Tokenizations.load(artifact)
        if subword.n_tokens > n_rows:
            raise UserError(
                f"the vocabulary in {artifact.path} has {subword.n_tokens:,} tokens, but the "
                f"model has {n_rows:,} rows; restore both from the same backup"
            )
        return cls(subword, tokenizations.src, tokenizations.tgt)

    def encode(self, line: str) -> list[int]:
        """Return the ids of a raw line with EOS; no ids if it is blank, or only a language tag."""
        tag, untagged = self.subword.split_tag(line)
        if tag and tag not in self.subword.tags:
            tags = join_names(self.subword.tags)
            progress.warn_once(
                f"the model has no language tag {tag} and reads it as <unk>; its tags are: {tags}"
            )
        ids = [] if is_blank(untagged) else self.subword.encode(self.src.tokenize(line))
        return [*ids, EOS_ID] if ids else []

    def encode_target(self, line: str) -> list[int]:
        """Return the ids of a raw translation without EOS; no ids if it is blank."""
        return [] if is_blank(line) else self.subword.encode_target(self.tgt.tokenize(line))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the raw text of ids; a tree stays linearized."""
        return self.tgt.detokenize(self.subword.decode(ids))

    def decode_line(self, line: str, pieces: Sentences) -> tuple[str, Sequence[Repair]]:
        """Join the translations of a line's pieces.

        Args:
            line: The raw source line.
            pieces: Ids of the translated pieces.

        Returns:
            The text, and the repairs that turned it into a tree of the line's words.
        """
        texts = [text for text in map(self.decode, pieces) if text]
        # The separator needs langcodes, and is looked up only if there is a second text.
        joined = self.sentence_separator.join(texts) if len(texts) > 1 else "".join(texts)
        if not self.tgt.has_trees or not pieces:
            return joined, ()
        return read_back(joined, self.src.tokenize(line).split(" "))

    @cached_property
    def sentence_separator(self) -> str:
        """The separator of two sentences of a translation: empty in Chinese and Japanese."""
        language = parse_tag(self.tgt.lang)
        is_unspaced = language is not None and _SENTENCES_UNSPACED.fullmatch(language.script)
        return "" if is_unspaced else " "


@dataclass(frozen=True)
class TextTranslator:
    """An engine with the text processing around it: raw text in, raw text out.

    Attributes:
        text: Subwords and tokenizations.
        engine: Runs beam search.
        decoding: Beam size and length penalty.
        max_subwords: Maximum length of a source that is translated at a time, EOS included.
        fingerprint: Hash of everything that translations depend on. Stages leave it empty, since
            their artifacts have their own.
        split_sentences: Translate the sentences of a line one by one.
        sampling: Draw translations at random; None for beam search.
    """

    text: Text
    engine: Engine
    decoding: DecodingConfig
    max_subwords: int
    fingerprint: str = ""
    split_sentences: bool = False
    sampling: Sampling | None = None

    def translate(
        self, lines: Iterable[str], advance: Advance = lambda _: None
    ) -> list[Translation]:
        """Translate raw lines. Lines of invisible characters become empty lines.

        Args:
            lines: With `split_sentences`, the sentences of a line are translated one by one.
                Sentences longer than `max_subwords` are translated in pieces.
            advance: Called with the number of pieces that have been translated.
        """
        return [translations[0] for translations in self.n_best(lines, 1, advance)]

    def n_best(
        self, lines: Iterable[str], n: int, advance: Advance = lambda _: None
    ) -> list[list[Translation]]:
        """Find the `n` best translations per line, best first.

        Args:
            lines: Raw lines, as for `translate`.
            n: Number of translations per line, from 1 to the beam size.
            advance: Called with the number of pieces that have been translated.

        Returns:
            The translations, line by line: fewer than `n` where the search finds fewer. Those of a
            line in pieces are the best combinations of translations of its pieces.
        """
        if isinstance(lines, str):
            raise TypeError("lines is a string; pass a list of strings")
        if self.sampling is not None and n != 1:
            raise ValueError(f"sampling draws one translation of a line, got n = {n}")
        if not 1 <= n <= self.decoding.beam_size:
            raise ValueError(f"n must be from 1 to beam_size = {self.decoding.beam_size}, got {n}")
        # Translating may take minutes, so all lines are checked first.
        sources: list[_Source] = []
        for number, line in enumerate(lines, start=1):
            _check_text(line, number)
            sources.append(self._source(line))

        def search(pieces: Sentences) -> list[list[Hypothesis]]:
            if self.sampling is not None:
                drawn = self.engine.sample(pieces, self.decoding, self.sampling, advance)
                return [[hypothesis] for hypothesis in drawn]
            return self.engine.translate(pieces, self.decoding, n, advance)

        hypotheses = map_groups(search, [source.pieces for source in sources])
        translations = []
        for source, pieces in zip(sources, hypotheses, strict=True):
            best = _best_combinations(pieces, n)
            translations.append([self._translation(source, combination) for combination in best])
        return translations

    def _source(self, line: str) -> "_Source":
        """Split a line into pieces that the model can translate, and encode them."""
        # A parse tree covers all words of a line: such a line is not split.
        is_split = self.split_sentences and not self.text.has_trees
        # A tag of the target language applies to the whole line, so every piece of it has one.
        tag, untagged = self.text.subword.split_tag(line)
        sentences = [untagged]
        if is_split:
            protected = self.text.subword.protected
            sentences = split_sentences(untagged, self.text.src.lang, protected)
        source = _Source(line, has_tag=bool(tag))

        def encode(piece: str) -> list[int]:
            return self.text.encode(tag + piece)

        end = len(line) - len(untagged)  # of the text so far
        for sentence in sentences:
            pieces = list(encode_in_pieces(sentence, encode, self.max_subwords))
            for text, ids in pieces:
                # The text of a piece is a part of the line, perhaps without the spaces around it.
                words = text.strip()
                begin = line.find(words, end)
                is_spaced = begin == 0 or line[begin - 1].isspace()
                source.continues.append(not is_spaced and self.text.src.tokenizer != "moses")
                source.pieces.append(ids)
                end = begin + len(words)
            source.n_cut += len(pieces) > 1
        return source

    def _translation(self, source: "_Source", hypotheses: Sequence[Hypothesis]) -> Translation:
        """Join the hypotheses of the pieces of a line."""
        # Scores of pieces add up: they are independent translations.
        tgt = [hypothesis.tokens for hypothesis in hypotheses]
        text, repairs = self.text.decode_line(source.line, tgt)
        score = sum((hypothesis.score for hypothesis in hypotheses), start=0.0)
        log_prob = sum((hypothesis.log_prob for hypothesis in hypotheses), start=0.0)
        return Translation(
            text,
            score,
            log_prob,
            source.pieces,
            tgt,
            repairs,
            source.n_cut,
            source.has_tag,
            source.continues,
        )


def warn_if_cut(translator: TextTranslator, name: str, translation: Translation) -> None:
    """Warn if a line, or sentences of it, were too long to be translated in one piece.

    Args:
        name: Name of the line, for the warning.
    """
    if not translation.n_cut:
        return
    limit = f"more than {translator.max_subwords:,} subwords or {MAX_CHARACTERS:,} characters"
    if translator.split_sentences:
        n_cut = translation.n_cut
        sentences = "a sentence" if n_cut == 1 else f"{n_cut:,} sentences"
        progress.warn(f"{name} has {sentences} of {limit}, translated in pieces")
    else:
        n_pieces = f"{translation.n_pieces:,} pieces"
        progress.warn(f"{name} has {limit} and was translated in {n_pieces}")


@dataclass
class _Source:
    """A raw line and the ids of its pieces. The attributes are those of `Translation`."""

    line: str
    has_tag: bool
    pieces: list[list[int]] = field(default_factory=list)
    continues: list[bool] = field(default_factory=list)
    n_cut: int = 0


def _check_text(line: str, number: int) -> None:
    """Check that a line is Unicode text: libraries fail on anything else in different ways."""
    if not isinstance(line, str):
        raise TypeError(f"line {number:,} is of type {type(line).__name__}; pass a list of strings")
    try:
        line.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"line {number:,} has a lone surrogate ({line[error.start]!a}, character "
            f"{error.start + 1:,}) and is not valid Unicode; decode its bytes as UTF-8"
        ) from None


def _best_combinations(
    pieces: Sequence[Sequence[Hypothesis]], n: int
) -> list[tuple[Hypothesis, ...]]:
    """Return the `n` combinations of one hypothesis per piece with the highest total scores.

    Args:
        n: Maximum number of combinations.
    """
    best: list[tuple[Hypothesis, ...]] = [()]
    for hypotheses in pieces:
        longer = []
        for combination in best:
            for hypothesis in hypotheses:
                longer.append((*combination, hypothesis))
        # A combination that is not among the n best now cannot be among them later.
        longer.sort(key=lambda chosen: sum(h.score for h in chosen), reverse=True)
        best = longer[:n]
    return best


def max_subwords(config: ModelConfig) -> int:
    """Return the maximum length of a source, EOS included: training saw no longer sentence."""
    return min(config.max_positions, MAX_SUBWORDS)
