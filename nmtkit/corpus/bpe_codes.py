"""The codes of byte-pair encoding, as subword-nmt and fastBPE write them (section 5.1).

The two versions of subword-nmt differ at the end of a word. In 0.2 its last character is a symbol
of its own, "n</w>". In 0.1 the end is a symbol, "</w>", that merges like a character, and a
merge found inside of words also applies before their end. The codes of fastBPE are those of 0.2,
with counts.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Literal

from subword_nmt import apply_bpe

from nmtkit.store.records import read_utf8
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import quote

Pair = tuple[str, str]
BpeVersion = Literal["0.1", "0.2"]

END_OF_WORD = "</w>"
CONTINUES = "@@"  # ends every piece of a word but the last
HEADER = "#version:"  # subword-nmt 0.1 writes none
HEADER_LINES: dict[str, BpeVersion] = {f"{HEADER} 0.1": "0.1", f"{HEADER} 0.2": "0.2"}
MAX_CODES_BYTES = 2**23  # 32,000 merges take 400 kB


@dataclass(frozen=True)
class BpeCodes:
    """Merges in the order of learning, and the version that applies them."""

    merges: Sequence[Pair]
    version: BpeVersion = "0.2"

    def lines(self) -> list[str]:
        """Return the lines of the file that subword-nmt writes."""
        header = [] if self.version == "0.1" else [f"{HEADER} {self.version}"]
        return [*header, *map(" ".join, self.merges)]

    def pieces(self) -> Iterator[str]:
        """Yield the pieces that the merges can form, as they stand in a text."""
        for pair in self.merges:
            piece = "".join(pair)
            if END_OF_WORD not in piece:
                yield piece + CONTINUES
            # In 0.1 a merge inside of words also applies at their ends.
            if END_OF_WORD in piece or self.version == "0.1":
                yield piece.removesuffix(END_OF_WORD)

    def encoder(self, vocabulary: Container[str] = ()) -> apply_bpe.BPE:
        """Return an encoder of subword-nmt for the version of the codes.

        Args:
            vocabulary: If not empty, a piece outside of it is split by the merges that formed it.
        """
        bpe = apply_bpe.BPE(StringIO("\n".join(self.lines())), len(self.merges), vocab=vocabulary)
        if self.version == "0.1":
            # To split the last piece of a word, subword-nmt looks up the merge that formed it with
            # its end. In 0.1 the piece may have none; or it merged with its end last, and what is
            # split off would be empty. In both cases the merge that formed the piece is meant.
            splits = {
                piece: pair
                for piece, pair in bpe.bpe_codes_reverse.items()
                if pair[1] != END_OF_WORD
            }
            for piece, (left, right) in list(splits.items()):
                if not right.endswith(END_OF_WORD):
                    splits.setdefault(piece + END_OF_WORD, (left, right + END_OF_WORD))
            bpe.bpe_codes_reverse = splits
        return bpe


def read_codes(path: Path) -> BpeCodes:
    """Read codes of subword-nmt, whose header has their version, or of fastBPE.

    Raises:
        UserError: A line is not a merge, or the header of version 0.2 was removed.
    """
    text = read_utf8(path, MAX_CODES_BYTES).removesuffix("\n")
    lines = text.split("\n") if text else []  # 0.1 without a merge
    header = lines[0].strip() if lines else ""
    version = HEADER_LINES.get(header)
    if header.startswith(HEADER) and version is None:
        raise UserError(
            f"{path} starts with {quote(header)}; use BPE codes with the header "
            f"{' or '.join(HEADER_LINES)}"
        )
    first_number = 1 if version is None else 2
    rows = [line.strip("\r\n ").split(" ") for line in lines[first_number - 1 :]]
    has_counts = version is None and rows != [] and len(rows[0]) == 3  # fastBPE
    if version is None:
        version = "0.2" if has_counts else "0.1"

    merges = []
    for number, row in enumerate(rows, start=first_number):
        is_complete = len(row) == 3 and row[2].isdecimal() if has_counts else len(row) == 2
        if not is_complete or not row[0] or not row[1]:
            raise UserError(
                f"{path}, line {number:,}: expected two subwords (in codes of fastBPE, also a "
                f"count), got {quote(lines[number - 1])}"
            )
        merges.append((row[0], row[1]))
    if version == "0.1":
        _check_ends(path, merges)
    return BpeCodes(merges, version)


def _check_ends(path: Path, merges: Sequence[Pair]) -> None:
    """Check that codes without a header merge the end of a word before they use the result.

    Applied as 0.1, codes of 0.2 that have lost their header would split words differently.
    """
    formed = {END_OF_WORD}
    for pair in merges:
        for symbol in pair:
            if symbol.endswith(END_OF_WORD) and symbol not in formed:
                raise UserError(
                    f"{path} has no merge that forms {quote(symbol)}, as is usual in version 0.2 "
                    'of subword-nmt; if it is of this version, add its header, "#version: 0.2", '
                    "as the first line"
                )
        formed.add("".join(pair))
