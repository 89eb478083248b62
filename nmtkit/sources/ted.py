"""Transcripts and translations of TED talks, as the IWSLT workshops distribute them.

They are read as fairseq's prepare-iwslt14.sh reads them, for scores that can be compared with those
of other toolkits: entities stay as they are, and titles and descriptions are sentences.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Annotated

from pydantic import Field

from nmtkit.sources.sides import Variants
from nmtkit.sources.source import Row, Source
from nmtkit.sources.text_file import TextFile, read_lines, text_suffix
from nmtkit.sources.text_formats import TALKS
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language
from nmtkit.utils.text import counted

# Development and test sets: <seg id="1"> A sentence. </seg>
SEGMENT = "<seg id"
SEGMENT_TAGS = re.compile(r'<seg id="[0-9]*">\s*|\s*</seg>\s*')
# Training text (train.tags): the lines of facts, and the tags around sentences.
FACTS = ("<url>", "<talkid>", "<keywords>")
SENTENCE_TAGS = re.compile(r"</?(?:title|description)>")

Files = str | Annotated[tuple[str, ...], Field(min_length=1, strict=False)]


class Ted(Source):
    """One file of talks for each side, or several that are read one after the other.

    A file that ends in .xml has segments, any other one is training text.
    """

    key = "ted"
    path_keys = ("ted", "ted_tgt")
    title = "talks of the IWSLT"
    form = TALKS

    ted: Files
    ted_tgt: Files

    @classmethod
    def recognizes(cls, head: str) -> bool:
        """Return whether a text that begins with `head` has segments of talks."""
        return SEGMENT in head and "<talkid>" in head

    def reversed(self) -> Source:
        """Return the source for the opposite direction."""
        return self.model_copy(update={"ted": self.ted_tgt, "ted_tgt": self.ted})

    def rows(self, texts: Sequence[TextFile], _: Variants) -> Iterator[Row]:
        """Yield the sentences that have the same number; see `Source.rows`."""
        n_files = len(texts) // 2
        for src_text, tgt_text in zip(texts[:n_files], texts[n_files:], strict=True):
            # All talks of a language fit into memory.
            src = list(_sentences(src_text))
            tgt = list(_sentences(tgt_text))
            if len(src) != len(tgt):
                raise UserError(
                    f"{src_text} has {counted(len(src), 'sentence')}, but {tgt_text} has "
                    f"{len(tgt):,}; pass two files of the same talks"
                )
            yield from zip(src, tgt, strict=True)

    def check(self, _src: Language, _tgt: Language) -> None:
        """Check that both sides have the same number of files.

        Raises:
            ValueError: They do not.
        """
        n_src = 1 if isinstance(self.ted, str) else len(self.ted)
        if len(self.paths()) != 2 * n_src:
            raise ValueError(
                f"ted has {counted(n_src, 'file')}, but ted_tgt has {len(self.paths()) - n_src:,}; "
                "list the files of both sides in the same order"
            )


def _sentences(text: TextFile) -> Iterator[str]:
    """Yield the sentences of a file."""
    has_segments = text_suffix(text.name) == ".xml"
    for line in read_lines(text):
        if has_segments and SEGMENT in line:
            # The script does this for these sets only.
            yield SEGMENT_TAGS.sub("", line).replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
        elif not has_segments and not any(tag in line for tag in FACTS):
            yield SENTENCE_TAGS.sub("", line)
