"""Layouts assign tokens to sentences: all that attention needs to know of a batch."""

from typing import Protocol

from torch import Tensor


class Layout(Protocol):
    """The sentences of a batch of tokens, whose shape is (T,) or (B, L).

    Only attention sees the other tokens of a sentence. All other computations for a token depend
    only on this token.
    """

    @property
    def positions(self) -> Tensor:
        """The position of every token in its sentence, from 0, in the shape of the tokens."""

    @property
    def sentences(self) -> Tensor:
        """The number of the sentence of every token, in the shape of the tokens."""

    @property
    def max_seqlen(self) -> int:
        """Return a length that no sentence exceeds."""
