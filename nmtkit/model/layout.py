"""Which token belongs to which sentence: all that attention needs to know of a batch."""

from typing import Protocol

from torch import Tensor


class Layout(Protocol):
    """The sentences of a batch of tokens, whose shape is (T,) or (B, L).

    Everything that the model computes for a token depends on that token alone, except attention:
    it sees the other tokens of the same sentence.
    """

    @property
    def positions(self) -> Tensor:
        """Return the position of each token in its sentence, from 0, in the shape of the tokens."""

    @property
    def sentences(self) -> Tensor:
        """Return the number of the sentence of each token, in the shape of the tokens."""

    @property
    def max_seqlen(self) -> int:
        """Return a length that no sentence exceeds."""
