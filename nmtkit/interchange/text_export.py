"""A prepared corpus as text in pieces, with vocabularies, in the files that other toolkits read.

Training text is written from token ids. With BPE, it equals the output of subword-nmt, since all
of its pieces are in the vocabulary. Other text is split without regard to the vocabulary, like
`subword-nmt apply-bpe` without --vocabulary, so that the other toolkit decides what is unknown.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from subword_nmt import apply_bpe

from nmtkit.corpus.bpe_subword import BpeSubword
from nmtkit.corpus.ids import Ids
from nmtkit.corpus.long_lines import split_long
from nmtkit.corpus.moses import Tokenization
from nmtkit.corpus.prepared import SIDES, PreparedCorpus
from nmtkit.corpus.sentencepiece_subword import SentencePiecePair
from nmtkit.corpus.special_tokens import EOS_ID, SPECIALS
from nmtkit.corpus.subword import Subword
from nmtkit.store.records import write_lines
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import quote

SENTENCES_PER_CHUNK = 10_000
VOCABULARY = "vocab.txt"  # one piece per line
COUNTED_VOCABULARY = "vocab.tsv"  # a piece and its count per line
N_FAIRSEQ_SYMBOLS = 4  # <s>, <pad>, </s>, <unk>: fairseq adds them itself
FAIRSEQ_MULTIPLE = 8  # fairseq-preprocess --padding-factor


Split = Callable[[str], str]  # splits a tokenized line into pieces, and joins them by spaces


def piece_splitter(corpus: PreparedCorpus) -> Split:
    """Return the function that splits tokenized lines by the subword model of a corpus.

    Raises:
        UserError: The corpus has two models, as a corpus for a model of Marian has.
    """
    subword = corpus.subword()
    if isinstance(subword, SentencePiecePair):
        raise UserError(
            "this corpus has one sentencepiece model per language (from a MarianMT model), but "
            "--format text needs one subword model; prepare the corpus with another [subword] "
            "method"
        )
    if isinstance(subword, BpeSubword):
        # The original tool: it reads all versions of its codes.
        with corpus.subword_model().open(encoding="utf-8", newline="\n") as codes:
            bpe = apply_bpe.BPE(codes)
        return bpe.process_line  # type: ignore[no-any-return]
    return lambda line: " ".join(subword.split(line))


def split_lines(lines: Sequence[str], tokenization: Tokenization, split: Split) -> Iterator[str]:
    """Tokenize raw lines, split them into pieces and join these by spaces.

    Args:
        lines: Raw text of one side.
        split: Splits tokenized lines.
    """
    for line in lines:
        # The same parts as for translation: long lines are tokenized sentence by sentence.
        parts = [line] if tokenization.has_trees else split_long(line)
        yield split(" ".join(tokenization.script_output(part) for part in parts))


def sentence_bytes(ids: Ids, subword: Subword, start: int, stop: int) -> Iterator[bytes]:
    """Yield sentences as UTF-8, one per line, their pieces joined by spaces.

    Args:
        ids: The sentences of one side.
        start: Index of the first sentence.
        stop: Index after the last sentence.
    """
    pieces = []
    for piece in subword.pieces(range(subword.n_tokens)):
        pieces.append(f"{piece} ".encode())
    pieces[EOS_ID] = b"\n"  # ends every sentence, and occurs nowhere else
    for first in range(start, stop, SENTENCES_PER_CHUNK):
        last = min(first + SENTENCES_PER_CHUNK, stop)
        chunk = ids.ids[ids.offsets[first] : ids.offsets[last]].tolist()
        text = b"".join(map(pieces.__getitem__, chunk))
        yield text.replace(b" \n", b"\n")


def count_pieces(corpus: PreparedCorpus, subword: Subword) -> dict[str, int]:
    """Count the pieces of the training text, both sides together.

    Returns:
        The counts of the pieces that occur, the most frequent ones first, ties alphabetically, as
        in a dictionary of `fairseq-preprocess --joined-dictionary`.

    Raises:
        UserError: A piece has the name of a special token.
    """
    totals = np.zeros(subword.n_tokens, np.int64)
    for side in SIDES:
        totals += corpus.ids("train", side).counts(subword.n_tokens)
    counts: dict[str, int] = {}
    for id_, piece in enumerate(subword.pieces(range(subword.n_tokens))):
        if id_ < len(SPECIALS) or totals[id_] == 0:
            continue
        # The dictionaries of other toolkits identify special tokens by their names.
        if piece in SPECIALS:
            raise UserError(
                f"the training text has the subword {quote(piece)}, which other toolkits cannot "
                'distinguish from the special token of this name; set tokenizer = "moses", which '
                "escapes < and >, or remove it from the text"
            )
        counts[piece] = int(totals[id_])
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def write_vocabularies(folder: Path, counts: Mapping[str, int], langs: Sequence[str]) -> None:
    """Write the vocabulary without special tokens: plain, with counts, and for fairseq.

    Args:
        counts: The pieces and their counts, in the order of the vocabulary.
        langs: The languages of both sides, in the names of fairseq's two dictionaries. These are
            equal.
    """
    write_lines(folder / VOCABULARY, counts)
    rows = []
    fairseq_lines = []
    for piece, count in counts.items():
        rows.append(f"{piece}\t{count}")
        fairseq_lines.append(f"{piece} {count}")
    write_lines(folder / COUNTED_VOCABULARY, rows)

    # fairseq-preprocess fills its dictionaries up to a multiple of 8 rows, for speed on GPUs.
    n_fillers = -(N_FAIRSEQ_SYMBOLS + len(counts)) % FAIRSEQ_MULTIPLE
    for number in range(n_fillers):
        fairseq_lines.append(f"madeupword{number:04d} 0")
    for lang in langs:
        write_lines(folder / f"dict.{lang}.txt", fairseq_lines)
