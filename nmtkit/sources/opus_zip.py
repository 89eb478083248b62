"""Zip archives of OPUS in the format of Moses: a text a language, beside licences and the like."""

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from nmtkit.errors import UserError
from nmtkit.languages import Language
from nmtkit.sources.archives import PackedError, list_zip
from nmtkit.sources.file_pair import read_rows
from nmtkit.sources.source import Row, Source
from nmtkit.sources.text import TextFile
from nmtkit.sources.variants import Variants, listed


class OpusZip(Source):
    """An archive of OPUS, whose texts are told by their suffixes: TED2020.de-en.de, .en."""

    key = "opus_zip"
    path_keys = ("opus_zip",)
    title = "a zip archive"
    form = "zip"

    opus_zip: str

    def rows(self, texts: Sequence[TextFile], variants: Variants) -> Iterator[Row]:
        [archive] = texts
        try:
            names = list_zip(archive.path)
        except PackedError as error:
            raise UserError(f"{archive} {error}") from None
        members: dict[str, dict[str, str]] = {}  # by name without suffix, and by suffix
        for name in names:
            suffix = PurePosixPath(name).suffix.removeprefix(".")
            if suffix != "xml" and Language.named(suffix) is not None:  # it is a language, too
                members.setdefault(name.removesuffix(f".{suffix}"), {})[suffix] = name
        texts_of = {stem: each for stem, each in members.items() if len(each) > 1}
        if len(texts_of) != 1:
            raise UserError(
                f"{archive} has {len(texts_of)} parallel texts; give an archive with one, in the "
                f"format of Moses; its files are {listed(names)}"
            )
        [by_suffix] = texts_of.values()
        src, tgt = variants.choose_names(list(by_suffix), str(archive))
        members_of = (TextFile(archive.path, by_suffix[suffix]) for suffix in (src, tgt))
        return read_rows(self.own_name(), *members_of)
