"""Word-piece vocabularies (section 5.1, English-French), learned by sentencepiece.

Deviation: the paper's published code has word-pieces of its own (SubwordTextEncoder of
tensor2tensor): the substrings that occur often enough for about `n_tokens` of them, and a word is
split greedily, longest piece first. The pieces of sentencepiece are BPE: exactly `n_tokens`, and a
word is split by merging pairs in the order of learning. In both, a character
outside the vocabulary is encoded as bytes, so nothing is unknown.
"""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import sentencepiece

from nmtkit.corpus.special_tokens import BOS_ID, EOS_ID, PAD_ID, SPECIALS, UNK_ID
from nmtkit.utils.errors import UserError

SYMBOLS = {"pad": PAD_ID, "bos": BOS_ID, "eos": EOS_ID, "unk": UNK_ID}  # by sentencepiece's names


def learn_sentencepieces(
    word_counts: Mapping[str, int], n_tokens: int, protected: Sequence[str] = ()
) -> bytes:
    """Learn a model.

    Args:
        n_tokens: Number of pieces, symbols counted. There are fewer if none is left to merge.
        protected: Strings that are always one piece each.

    Returns:
        The contents of a model file.

    Raises:
        UserError: sentencepiece cannot learn that number of pieces.
    """
    # Sorted: the same counts give the same bytes in any order. A word of untokenized text can have
    # a tab; it is encoded as bytes.
    words = sorted(word_counts.items(), key=lambda item: (-item[1], item[0]))
    symbols: dict[str, Any] = {f"{name}_id": id_ for name, id_ in SYMBOLS.items()}
    symbols |= {f"{name}_piece": SPECIALS[id_] for name, id_ in SYMBOLS.items()}
    if protected:
        symbols["user_defined_symbols"] = list(protected)
    # sentencepiece fails if the text has fewer pieces than a hard limit; then the limit is soft.
    for exactly in (True, False):
        lines = (f"{word}\t{count}" for word, count in words if "\t" not in word)
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=lines,
                input_format="tsv",
                model_writer=model,
                model_type="bpe",
                vocab_size=n_tokens,
                hard_vocab_limit=exactly,
                byte_fallback=True,
                normalization_rule_name="identity",  # the text is already normalized
                max_sentence_length=2**20,  # bytes; longer words would be skipped silently
                num_threads=1,  # the number is written into the model
                minloglevel=2,
                **symbols,
            )
            return model.getvalue()
        except RuntimeError as error:
            reason = error
    raise UserError(
        f"sentencepiece cannot learn {n_tokens:,} pieces from {len(word_counts):,} different "
        f"words ({reason}); set another n_tokens in [subword]"
    )
