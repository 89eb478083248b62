"""Selected lines of a text and its translation: a test set that is a part of another one."""

import hashlib
import re
from collections.abc import Iterator, Sequence

from nmtkit.sources.file_pair import FilePair
from nmtkit.sources.source import Row
from nmtkit.sources.text import TextFile
from nmtkit.sources.variants import Variants
from nmtkit.utils.errors import UserError


class SelectedLines(FilePair):
    """A pair of texts of which the catalog selects lines, such as a filtered test set."""

    lines: tuple[int, ...]  # numbers of the lines, from 1, in the order of the test set
    sha1: tuple[str, str]  # published hashes of the selected lines of both sides

    def identity(self, hashes: Sequence[str]) -> list[str]:
        """Return the values that determine the text: also the hashes of the selected lines."""
        return [*hashes, *self.sha1]

    def rows(self, texts: Sequence[TextFile], variants: Variants) -> Iterator[Row]:
        """Yield the selected lines.

        Raises:
            UserError: They are not the published ones.
        """
        all_rows = list(super().rows(texts, variants))
        rows = [all_rows[number - 1] for number in self.lines if number <= len(all_rows)]
        # Another version of the file could have other sentences at the same numbers.
        for side, (text, published) in enumerate(zip(texts, self.sha1, strict=True)):
            sha1 = hashlib.sha1(usedforsecurity=False)
            for row in rows:
                sha1.update(f"{row[side]}\n".encode())
            if sha1.hexdigest() != published:
                raise UserError(
                    f"the {len(self.lines):,} lines of {self.name} that were selected from {text} "
                    f"have the SHA-1 {sha1.hexdigest()}, not the published {published}; remove "
                    f"{text.path} to download it again"
                )
        yield from rows


def parse_line_numbers(ranges: str) -> tuple[int, ...]:
    """Parse numbers and ranges of lines, such as "7-9, 3": 7, 8, 9, 3."""
    numbers: list[int] = []
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", ranges):
        numbers += range(int(first), int(last or first) + 1)
    return tuple(numbers)
