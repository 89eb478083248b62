"""Lines of raw text in, translations out, whatever engine runs the model. No torch here."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from nmtkit.corpus.linearized import Repair, read_back
from nmtkit.corpus.long_lines import encode_in_pieces
from nmtkit.corpus.moses import Tokenization, Tokenizations
from nmtkit.corpus.subword import Subword, load_subword
from nmtkit.decoding.engine import Engine, Hypothesis, Sentences
from nmtkit.errors import Advance, UserError
from nmtkit.recipe import DecodingConfig, ModelConfig
from nmtkit.store import Artifact
from nmtkit.symbols import EOS_ID
from nmtkit.visible import is_blank

# Subwords of a source that are translated at a time, whatever a bundle claims of itself: some four
# times the longest line of news.
MAX_SUBWORDS = 1_024


@dataclass(frozen=True)
class Translation:
    text: str
    score: float  # log-probability divided by the length penalty, summed over the pieces
    log_prob: float
    src: list[list[int]]  # the ids of each piece of the line, with the EOS: one but for long lines
    tgt: list[list[int]]  # the ids of their translations, without the EOS
    repairs: Sequence[str] = ()  # what a parser's output needed to become a tree

    @property
    def n_tokens(self) -> int:
        return sum(map(len, self.tgt))

    @property
    def n_pieces(self) -> int:
        """How many pieces it was translated in: 0 for an empty line."""
        return len(self.src)


@dataclass(frozen=True)
class Text:
    """How raw text becomes token ids, and token ids become text."""

    subword: Subword
    src: Tokenization
    tgt: Tokenization

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
        texts = " ".join(filter(None, map(self.decode, pieces)))
        if not self.tgt.is_of_trees or not pieces:
            return texts, ()
        return read_back(texts, self.src.tokenize(line).split(" "))


@dataclass(frozen=True)
class Translator:
    """An engine with the text around it."""

    text: Text
    engine: Engine
    decoding: DecodingConfig
    max_subwords: int  # of a source, EOS included, that are translated at a time
    fingerprint: str = ""  # of all of this; none in a stage, whose artifact has its own

    def translate(
        self, lines: Iterable[str], progress: Advance = lambda _: None
    ) -> list[Translation]:
        """Translate raw lines one by one; a line in which nothing is seen becomes empty.

        A line that is too long is translated in pieces, joined with spaces; `progress` counts them.
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
        pieces = [
            (line, list(encode_in_pieces(line, self.text.encode, self.max_subwords)))
            for line in lines
        ]
        sources = [ids for _, of_line in pieces for ids in of_line]
        found = iter(self.engine.translate(sources, self.decoding, n, progress))
        return [
            [
                self._translation(line, src, hypotheses)
                for hypotheses in _best_combinations(list(islice(found, len(src))), n)
            ]
            for line, src in pieces
        ]

    def _translation(
        self, line: str, src: list[list[int]], hypotheses: Sequence[Hypothesis]
    ) -> Translation:
        tgt = [hypothesis.tokens for hypothesis in hypotheses]
        text, repairs = self.text.decode_line(line, tgt)
        score = sum((hypothesis.score for hypothesis in hypotheses), start=0.0)
        log_prob = sum((hypothesis.log_prob for hypothesis in hypotheses), start=0.0)
        return Translation(text, score, log_prob, src, tgt, repairs)


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
