"""Selected lines of a text and its translation: a test set that is a part of another one."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

from pydantic import Field

from nmtkit.sources.source import Row
from nmtkit.store.records import Record
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language

Sha1 = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]


class Selection(Record):
    """The lines of a text that form a corpus, in this order."""

    # Numbers from 1 and ranges, such as "7-9, 3".
    lines: Annotated[str, Field(pattern=r"^\d+(-\d+)?(,\s*\d+(-\d+)?)*$")]
    sha1: dict[str, Sha1]  # published hashes of the selected lines, by language

    def numbers(self) -> list[int]:
        """Return the numbers of the lines: 7, 8, 9, 3 for "7-9, 3"."""
        numbers: list[int] = []
        for first, last in re.findall(r"(\d+)(?:-(\d+))?", self.lines):
            numbers += range(int(first), int(last or first) + 1)
        return numbers

    def select(self, rows: Iterable[Row], langs: Sequence[Language], name: str) -> Iterator[Row]:
        """Yield the selected rows of a text.

        Args:
            rows: All rows of the text.
            langs: The languages of source and target.
            name: The corpus, for messages.

        Raises:
            UserError: They are not the published ones.
        """
        numbers = self.numbers()
        wanted = set(numbers)
        found = {number: row for number, row in enumerate(rows, 1) if number in wanted}
        selected = [found[number] for number in numbers if number in found]
        # Another version of the text could have other sentences at the same numbers.
        for side, lang in enumerate(langs):
            sha1 = hashlib.sha1(usedforsecurity=False)
            for row in selected:
                sha1.update(f"{row[side]}\n".encode())
            published = self.sha1[lang.canonical]
            if sha1.hexdigest() != published:
                raise UserError(
                    f"the {len(numbers):,} selected lines of {name} in {lang} have the SHA-1 "
                    f"{sha1.hexdigest()}, not the published {published}; remove its files from the "
                    "folder of downloads"
                )
        yield from selected
