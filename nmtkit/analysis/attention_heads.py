"""The heads that stand out in the attention of a sentence, and the measures that find them.

Arrays of weights have the axes layer, head, query and key: N layers, H heads, and L words of a
sentence, or Lt words of the translation and Ls of the source.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from nmtkit.utils.language import Language

Weights = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Kind = Literal["encoder", "decoder", "cross"]

KIND_NAMES: dict[str, str] = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "encoder-decoder attention",
}
# The smallest values that count as findings: a weight that is a fifth of a word's attention above
# the average, and means over all words; many words contribute little to them.
MIN_VALUES = {"alignment": 0.3, "long distance": 0.2, "anaphora": 0.2, "structure": 0.1}
MIN_LONG_DISTANCE = 5  # two words are a long distance apart if 4 or more others are between them

# Words that stand for another one, in the languages of the tests and recipes.
PRONOUNS = {
    "en": "he she it they him them his its their hers theirs himself herself itself themselves",
    "de": "er sie es ihn ihm ihr ihnen ihre ihren ihrem ihrer sein seine seinen seinem seiner",
    "fr": "il elle ils elles le la les lui leur leurs son sa ses",
}
NOT_LETTERS = '▁.,;:!?"()[]„“”«»'  # before or after a word


@dataclass(frozen=True)
class View:
    """The heads of a layer that a picture shows. Layers, heads and words count from 1."""

    kind: str  # a key of KIND_NAMES
    layer: int
    head: int | None = None  # None: all heads
    query: int | None = None  # the word whose attention is drawn; None: all words


@dataclass(frozen=True)
class Finding:
    """The head that has the largest value of a measure."""

    name: str  # a key of MIN_VALUES
    measure: str  # description of the measure
    value: float
    view: View | None  # None: the value is too small to mean anything


def find_heads(encoder: Weights, cross: Weights, src: Sequence[str], lang: str) -> list[Finding]:
    """Find the head of an alignment and the kinds of heads that Figures 3 to 5 show.

    Args:
        encoder: Weights of encoder self-attention, (N, H, Ls, Ls).
        cross: Weights of encoder-decoder attention, (N, H, Lt, Ls).
        src: The Ls source words; the last is the EOS.
        lang: Tag of the source language, for its pronouns.

    Returns:
        The alignment and the three kinds of encoder heads, also where the sentence has none.
    """
    is_word = np.array([any(map(str.isalnum, token)) for token in src])
    is_word[-1] = False  # the EOS is written with letters, but is no word
    specific = specific_weights(encoder)
    far = long_distance_weights(specific, is_word)
    back = anaphora_weights(specific, is_word, _is_pronoun(src, lang))
    structure = structure_scores(specific)
    sharpness = alignment_scores(cross)
    return [
        _finding(
            "alignment",
            "mean over words of the largest weight on a source word",
            sharpness,
            largest_view("cross", sharpness),
        ),
        # The figure of a long distance shows all heads of the layer, as Figure 3 does.
        _finding(
            "long distance",
            "the largest specific weight over 4 or more words between",
            far,
            largest_view("encoder", far, with_head=False),
        ),
        _finding(
            "anaphora",
            "the largest specific weight of a pronoun on an earlier word",
            back,
            largest_view("encoder", back),
        ),
        _finding(
            "structure",
            "mean over words of the largest specific weight on another word, minus that at the "
            "preferred distance",
            structure,
            largest_view("encoder", structure),
        ),
    ]


def _finding(name: str, measure: str, values: Weights, view: View) -> Finding:
    """Return the finding of a measure.

    Args:
        name: A key of MIN_VALUES.
        values: Its values, of heads or weights.
        view: The view of the largest value; it is omitted if the value is too small.
    """
    value = float(values.max())
    return Finding(name, measure, value, view if value >= MIN_VALUES[name] else None)


def _is_pronoun(src: Sequence[str], lang: str) -> Mask:
    """Return a mask of the words that are pronouns of the language, (Ls,)."""
    language = Language.from_name(lang)
    pronouns = PRONOUNS.get(language.code if language else "", "").split()
    # "▁" marks the beginning of a word in sentencepieces; in plain text, a comma may follow it.
    return np.array([token.strip(NOT_LETTERS).lower() in pronouns for token in src])


def specific_weights(weights: Weights) -> Weights:
    """Compute the parts of weights that are specific to their queries.

    specific[q, k] = max(0, w[q, k] - mean over q' of w[q', k])

    A head where all words attend to the same word shows nothing about the sentence; its
    specific weights are zero.

    Args:
        weights: Attention weights, (N, H, L, L).
    """
    specific: Weights = np.maximum(weights - weights.mean(-2, keepdims=True), 0.0)
    return specific


def long_distance_weights(specific: Weights, is_word: Mask) -> Weights:
    """Compute the specific weights between words that are far apart (Figure 3).

    far[q, k] = specific[q, k] where |q - k| >= 5 and both are words, else 0

    Args:
        specific: Specific weights, (N, H, L, L).
        is_word: Whether a token is a word, not punctuation or the EOS, (L,).
    """
    # Punctuation and the EOS often collect weight that no word needs.
    is_far = abs(_distances(len(is_word))) >= MIN_LONG_DISTANCE
    return specific * (is_far & is_word[:, None] & is_word)


def anaphora_weights(specific: Weights, is_word: Mask, is_pronoun: Mask) -> Weights:
    """Compute the specific weights of pronouns on earlier words (Figure 4).

    back[q, k] = specific[q, k] where q - k >= 2, q is a pronoun and k a word, else 0

    Args:
        specific: Specific weights, (N, H, L, L).
        is_word: Whether a token is a word, not punctuation or the EOS, (L,).
        is_pronoun: Whether a token is a pronoun, (L,).
    """
    # The previous token is excluded: attention to neighbours is common and resolves no pronoun.
    is_earlier = _distances(len(is_word)) >= 2
    return specific * (is_earlier & (is_word & is_pronoun)[:, None] & is_word)


def structure_scores(specific: Weights) -> Weights:
    """Compute how much the distances vary at which the words of a head attend.

    score = (sum over q of max over k of s[q, k]  -  max over d of sum over q of s[q, q + d]) / n

    for the n words without the EOS and d != 0, where s is `specific` without its diagonal. A head
    that always attends to the previous or the next word scores 0: only heads that follow the
    structure of the sentence (Figure 5) have varied distances.

    Args:
        specific: Specific weights, (N, H, L, L); the last token is the EOS.

    Returns:
        Scores, (N, H).
    """
    n = specific.shape[-1] - 1
    others = specific[..., :n, :n] * (1 - np.eye(n))  # (N, H, n, n)
    varied = others.max(-1, initial=0.0).sum(-1)  # (N, H)
    constant = np.zeros_like(varied)  # (N, H), at the best constant distance
    # The diagonal at distance d has s[q, q + d] for all q.
    for distance in range(1 - n, n):
        if distance != 0:
            constant = np.maximum(constant, others.diagonal(distance, -2, -1).sum(-1))
    scores: Weights = (varied - constant) / max(1, n)
    return scores


def alignment_scores(cross: Weights) -> Weights:
    """Compute how clearly a head aligns target words with source words.

    score = mean over target words q of max over source words k of w[q, k]

    Args:
        cross: Weights of encoder-decoder attention, (N, H, Lt, Ls); the last word of
            both sides, the EOS, is not counted.

    Returns:
        Scores, (N, H).
    """
    n_queries = cross.shape[-2] - 1
    sharpest = cross[..., :-1, :-1].max(-1, initial=0.0)  # (N, H, Lt - 1)
    scores: Weights = sharpest.sum(-1) / max(1, n_queries)
    return scores


def _distances(length: int) -> npt.NDArray[np.int64]:
    """Return q - k for all queries and keys, (L, L)."""
    positions = np.arange(length, dtype=np.int64)
    return positions[:, None] - positions


def largest_view(kind: Kind, values: Weights, *, with_head: bool = True) -> View:
    """Return the view of the largest of some values.

    Args:
        values: Values of heads, (N, H), or of weights, (N, H, L, L).
        with_head: Show the head only, not all heads of its layer.
    """
    # `argmax` counts the values of all layers in one sequence; views count from 1.
    indices = [int(index) + 1 for index in np.unravel_index(values.argmax(), values.shape)]
    layer = indices[0]
    head = indices[1] if with_head else None
    query = indices[2] if values.ndim == 4 else None
    return View(kind, layer, head, query)
