"""Lines of raw text in, translations out, whatever engine runs the model. No torch here."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice

from nmtkit.config.recipe import DecodingConfig, ModelConfig
from nmtkit.corpus.linearized import Repair, read_back
from nmtkit.corpus.long_lines import encode_in_pieces
from nmtkit.corpus.moses import Tokenization, Tokenizations
from nmtkit.corpus.special_tokens import EOS_ID
from nmtkit.corpus.subword import Subword, load_subword
from nmtkit.decoding.engine import Engine, Hypothesis, Sentences
from nmtkit.decoding.sentences import split_sentences
from nmtkit.store.artifacts import Artifact
from nmtkit.utils.errors import Advance, UserError
from nmtkit.utils.language import parse_tag
from nmtkit.utils.text import is_blank

# Subwords of a source that are translated at a time, whatever a bundle claims of itself: some four
# times the longest line of news.
MAX_SUBWORDS = 1_024

# ISO 15924: scripts that have no space between two sentences. Others that have none between words,
# such as Thai, have one there.
_SENTENCES_UNSPACED = re.compile("Bopo|Han[ist]|Hira|Hrkt|Jpan|Kana")


@dataclass(frozen=True)
class Translation:
    text: str
    score: float  # log-probability divided by the length penalty, summed over the pieces
    log_prob: float
    # The ids of each piece of the line, with the EOS: its sentences, or parts of long ones.
    src: list[list[int]]
    tgt: list[list[int]]  # the ids of their translations, without the EOS
    repairs: Sequence[str] = ()  # what a parser's output needed to become a tree
    n_cut: int = 0  # sentences that were too long to be translated in one piece

    @property
    def n_tokens(self) -> int:
        return sum(map(len, self.tgt))

    @property
    def n_pieces(self) -> int:
        """The number of pieces that it was translated in: 0 for an empty line."""
        return len(self.src)


@dataclass(frozen=True)
class Text:
    """How raw text becomes token ids, and token ids become text."""

    subword: Subword
    src: Tokenization
    tgt: Tokenization

    @property
    def is_of_trees(self) -> bool:
        return self.src.is_of_trees or self.tgt.is_of_trees

    @classmethod
    def load(cls, artifact: Artifact, n_rows: int) -> "Text":
        """Load the subwords and the tokenization of a prepared corpus or a bundle, verified."""
        subword, sides = load_subword(artifact), Tokenizations.load(artifact)
        if subword.n_tokens > n_rows:
            raise UserError(
                f"the vocabulary in {artifact.path} has {subword.n_tokens:,} tokens, and the model "
                f"has {n_rows:,} rows; restore both from the same copy"
            )
        return cls(subword, sides.src, sides.tgt)

    def encode(self, line: str) -> list[int]:
        """Return the ids of a raw line with the EOS, or nothing if it is blank."""
        ids = [] if is_blank(line) else self.subword.encode(self.src.tokenize(line))
        return [*ids, EOS_ID] if ids else []

    def encode_target(self, line: str) -> list[int]:
        """Return the ids of a raw translation without an EOS, or nothing if it is blank."""
        return [] if is_blank(line) else self.subword.encode(self.tgt.tokenize(line))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the raw text of ids; a tree stays linearized."""
        return self.tgt.detokenize(self.subword.decode(ids))

    def decode_line(self, line: str, pieces: Sentences) -> tuple[str, Sequence[Repair]]:
        """Join the translations of a raw line's pieces, and repair a tree with the line's words."""
        texts = [text for text in map(self.decode, pieces) if text]
        joined = self.sentence_separator.join(texts) if len(texts) > 1 else "".join(texts)
        if not self.tgt.is_of_trees or not pieces:
            return joined, ()
        return read_back(joined, self.src.tokenize(line).split(" "))

    @cached_property
    def sentence_separator(self) -> str:
        """What stands between two sentences of a translation: nothing in Chinese and Japanese."""
        language = parse_tag(self.tgt.lang)
        is_unspaced = language is not None and _SENTENCES_UNSPACED.fullmatch(language.script)
        return "" if is_unspaced else " "


@dataclass(frozen=True)
class Translator:
    """An engine with the text around it."""

    text: Text
    engine: Engine
    decoding: DecodingConfig
    max_subwords: int  # of a source, EOS included, that are translated at a time
    fingerprint: str = ""  # of all of this; none in a stage, whose artifact has its own
    split_sentences: bool = False

    def translate(
        self, lines: Iterable[str], progress: Advance = lambda _: None
    ) -> list[Translation]:
        """Translate raw lines; a line in which nothing is seen becomes empty.

        Args:
            lines: With `split_sentences`, the sentences of each line are translated one by one.
                What is too long to be translated at once is translated in pieces.
            progress: Called with the number of pieces that have been translated.
        """
        return [translations[0] for translations in self.n_best(lines, 1, progress)]

    def n_best(
        self, lines: Iterable[str], n: int, progress: Advance = lambda _: None
    ) -> list[list[Translation]]:
        """Find the `n` best translations of each line, best first, as `translate` does.

        There are fewer where the search finds fewer. Of a line in pieces, they are the `n` best
        combinations of translations of its pieces.
        """
        if isinstance(lines, str):
            raise TypeError("lines is a string; give a list of lines")
        if not 1 <= n <= self.decoding.beam_size:
            raise ValueError(f"n = {n} is not from 1 to beam_size = {self.decoding.beam_size}")
        sources: list[_Source] = []
        for number, line in enumerate(lines, start=1):
            _check_text(line, number)
            sources.append(self._source(line))
        pieces = [ids for source in sources for ids in source.pieces]
        hypotheses = iter(self.engine.translate(pieces, self.decoding, n, progress))
        translations = []
        for source in sources:
            of_pieces = list(islice(hypotheses, len(source.pieces)))
            best = _best_combinations(of_pieces, n)
            translations.append([self._translation(source, combination) for combination in best])
        return translations

    def _source(self, line: str) -> "_Source":
        # A tree covers all words of a line.
        is_split = self.split_sentences and not self.text.is_of_trees
        sentences = split_sentences(line, self.text.src.lang) if is_split else [line]
        source = _Source(line)
        for sentence in sentences:
            pieces = list(encode_in_pieces(sentence, self.text.encode, self.max_subwords))
            source.pieces += pieces
            source.n_cut += len(pieces) > 1
        return source

    def _translation(self, source: "_Source", hypotheses: Sequence[Hypothesis]) -> Translation:
        tgt = [hypothesis.tokens for hypothesis in hypotheses]
        text, repairs = self.text.decode_line(source.line, tgt)
        score = sum((hypothesis.score for hypothesis in hypotheses), start=0.0)
        log_prob = sum((hypothesis.log_prob for hypothesis in hypotheses), start=0.0)
        return Translation(text, score, log_prob, source.pieces, tgt, repairs, source.n_cut)


@dataclass
class _Source:
    """A raw line and the ids of its pieces."""

    line: str
    pieces: list[list[int]] = field(default_factory=list)
    n_cut: int = 0  # sentences in several pieces


def _check_text(line: str, number: int) -> None:
    """Refuse what is not Unicode text: the libraries that read it fail in different ways."""
    if not isinstance(line, str):
        raise TypeError(f"line {number:,} is a {type(line).__name__}; give a list of str")
    try:
        line.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"line {number:,} has a lone surrogate ({line[error.start]!a}, character "
            f"{error.start + 1:,}), which is not valid Unicode; decode its bytes as UTF-8"
        ) from None


def _best_combinations(
    pieces: Sequence[Sequence[Hypothesis]], n: int
) -> list[tuple[Hypothesis, ...]]:
    """Return the `n` ways to take one hypothesis of each piece with the highest sums of scores."""
    best: list[tuple[Hypothesis, ...]] = [()]
    for hypotheses in pieces:
        longer = [(*front, hypothesis) for front in best for hypothesis in hypotheses]
        longer.sort(key=lambda combination: -sum(each.score for each in combination))
        best = longer[:n]
    return best


def max_subwords(config: ModelConfig) -> int:
    """Return the most subwords of a source, EOS included: training has seen no longer sentence."""
    return min(config.max_positions, MAX_SUBWORDS)
