"""Words as a reader writes them, from the subwords of a model."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from nmtkit.corpus.special_tokens import SPECIALS, UNK_ID
from nmtkit.utils.language import Language

if TYPE_CHECKING:
    from nmtkit.corpus.moses import Tokenization
    from nmtkit.corpus.subword import Subword

BOUNDARY = "·"  # between the subwords of a word
REPLACEMENT = "\ufffd"  # decoded from incomplete UTF-8


@dataclass(frozen=True)
class Word:
    """A word, as it is drawn."""

    text: str
    n_subwords: int


def compute_words(
    subword: "Subword",
    tokenization: "Tokenization",
    ids: Sequence[int],
    *,
    subwords: bool = False,
) -> list[Word]:
    """Return the words of subword ids: joined, and without the escapes of the tokenizer.

    A special token is a word. In a language without spaces, a subword is one, too.

    Args:
        subwords: Return all subwords, as the model reads them.
    """
    if subwords:
        return [Word(piece, 1) for piece in subword.pieces(ids)]
    language = Language.from_name(tokenization.lang)
    is_spaced = language is None or language.is_spaced
    words = []
    # <unk> is a part of a word.
    for is_special, group in groupby(ids, lambda id_: id_ < len(SPECIALS) and id_ != UNK_ID):
        is_joined = is_spaced and not is_special
        run = list(group)
        for word_ids in subword.words(run) if is_joined else [[id_] for id_ in run]:
            words.append(Word(_word_text(subword, tokenization, word_ids), len(word_ids)))
    return words


def _word_text(subword: "Subword", tokenization: "Tokenization", ids: Sequence[int]) -> str:
    """Return the text of a word, or the names of its subwords if they have none."""
    text = ""
    for is_special, group in groupby(ids, lambda id_: id_ < len(SPECIALS)):
        run = list(group)
        text += "".join(subword.pieces(run)) if is_special else subword.decode(run)
    return tokenization.detokenize(text) or "".join(subword.pieces(ids))


def mark_subwords(
    subword: "Subword",
    tokenization: "Tokenization",
    ids: Sequence[int],
    words: Sequence[Word],
) -> list[str]:
    """Return the words of `compute_words` with a dot between their subwords, such as "Küche·n"."""
    marked = []
    begin = 0
    for word in words:
        word_ids = ids[begin : begin + word.n_subwords]
        begin += word.n_subwords
        parts = []
        for id_ in word_ids:
            part = _word_text(subword, tokenization, [id_])
            if REPLACEMENT in part:  # a single byte of a character is no text, but has a name
                part = "".join(subword.pieces([id_]))
            elif id_ >= len(SPECIALS) and not subword.decode([id_]):  # only a space
                part = ""
            parts.append(part)
        marked.append(BOUNDARY.join(parts))
    return marked
