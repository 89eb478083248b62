"""Lines of raw text in, translations out, whatever engine runs the model. No torch here."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from nmtkit.artifacts import Artifact
from nmtkit.corpus.long_lines import encode_in_pieces
from nmtkit.corpus.moses import Tokenization
from nmtkit.corpus.subword import Subword, load_subword
from nmtkit.corpus.tokenizations import Tokenizations
from nmtkit.decoding.engine import Engine, Hypothesis
from nmtkit.errors import UserError
from nmtkit.recipe import DecodingConfig, ModelConfig
from nmtkit.symbols import EOS_ID

# Subwords of a source that are translated at a time, whatever a bundle claims of itself: some four
# times the longest line of news.
MAX_SUBWORDS = 1_024


@dataclass(frozen=True)
class Translation:
    """A line of output and how the model rates it."""

    text: str
    score: float  # log-probability divided by the length penalty, summed over the pieces
    log_prob: float
    n_tokens: int
    n_pieces: int  # that the line was translated in: 0 for an empty one, 1 for nearly all others


@dataclass(frozen=True)
class Text:
    """How raw text becomes token ids, and token ids become text."""

    subword: Subword
    src: Tokenization
    tgt: Tokenization

    @classmethod
    def load(cls, artifact: Artifact, n_rows: int) -> "Text":
        """Load the subwords and the tokenization that lie in `artifact`.

        Args:
            artifact: A prepared corpus or a bundle, verified.
            n_rows: Number of rows of the model's embedding matrix.

        Raises:
            UserError: They are damaged, or belong to a larger model.
        """
        subword = load_subword(artifact)
        if subword.n_tokens > n_rows:
            raise UserError(
                f"the vocabulary in {artifact.path} has {subword.n_tokens:,} tokens, and the model "
                f"has {n_rows:,} rows; delete the folder and make it again"
            )
        sides = Tokenizations.load(artifact)
        return cls(subword, sides.src, sides.tgt)

    def encode(self, line: str) -> list[int]:
        """Return the ids of a raw line with the EOS, or nothing if it is blank."""
        tokens = self.src.tokenize(line)
        return [*self.subword.encode(tokens), EOS_ID] if tokens else []

    def decode(self, ids: Sequence[int]) -> str:
        """Return the raw text of ids."""
        return self.tgt.detokenize(self.subword.decode(ids))


@dataclass(frozen=True)
class Translator:
    """An engine with the text around it."""

    text: Text
    engine: Engine
    decoding: DecodingConfig
    max_subwords: int  # of a source, EOS included, that are translated at a time

    def translate(self, lines: Sequence[str], progress: Callable[[int], None]) -> list[Translation]:
        """Translate raw `lines` one by one, in their order; an empty line stays empty.

        A line that is too long is translated in pieces, as if each were a line, and these are
        joined with a space.
        """
        encode, max_subwords = self.text.encode, self.max_subwords
        pieces = [list(encode_in_pieces(line, encode, max_subwords)) for line in lines]
        sources = [ids for of_line in pieces for ids in of_line]
        found = self.engine.translate(sources, self.decoding, n_best=1, progress=progress)
        best = (hypotheses[0] for hypotheses in found)
        return [self._translation(list(islice(best, len(of_line)))) for of_line in pieces]

    def _translation(self, pieces: Sequence[Hypothesis]) -> Translation:
        texts = [self.text.decode(piece.tokens) for piece in pieces]
        return Translation(
            " ".join(filter(None, texts)),
            sum((piece.score for piece in pieces), start=0.0),
            sum((piece.log_prob for piece in pieces), start=0.0),
            sum(len(piece.tokens) for piece in pieces),
            len(pieces),
        )


def max_subwords(config: ModelConfig) -> int:
    """Return the most subwords of a source, EOS included, that are translated at a time.

    Training has seen no longer sentence, and both memory and time grow with the square of it.
    """
    return min(config.max_positions, MAX_SUBWORDS)
