"""Texts as they are typed, several on one command line: their languages, and their sources."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from nmtkit.decoding.bundle import Bundle
from nmtkit.errors import UserError
from nmtkit.languages import Language
from nmtkit.sources.file_pair import FilePair, OpusZip
from nmtkit.sources.source import OfColumns, Source, own_path
from nmtkit.sources.variants import are_exchanged, listed, told
from nmtkit.sources.xml import Tmx

Langs = tuple[Language, Language]


@dataclass(frozen=True)
class Given:
    """A text, with the columns that were written behind its name."""

    kind: type[Source]
    paths: tuple[str, ...]  # one, or two of a FilePair
    columns: Sequence[str] = ()
    name: str | None = None

    @classmethod
    def typed(cls, kind: type[Source], text: str) -> "Given":
        """Return the file that was typed as "a.tsv" or "a.tsv:id,en,de"."""
        path, _, columns = text.rpartition(":")
        if own_path(text).exists() or not (path and own_path(path).exists()):
            return cls(kind, (text,))  # whose own name may have a colon
        return cls(kind, (path,), columns.split(","))

    def __str__(self) -> str:
        return " and ".join(self.paths)

    @cached_property
    def told(self) -> list[Language]:
        """The languages that names, columns or contents tell: none, or at least two."""
        for place in map(own_path, self.paths):
            if place.exists() and not (place.is_file() or place.is_dir()):
                raise UserError(f"{place} is not a file that can be read twice; copy it to one")
        if self.kind is FilePair:
            return FilePair.languages(*self.paths)
        names = self.columns or self.kind.names_in(self.paths[0])
        if self.kind in (Tmx, OpusZip):
            return [language for name in names if (language := Language.named(name))]
        return told(names)

    def source(self, langs: Langs, *, reverse: bool) -> Source:
        """Return the source of the text, which is in `langs`, to be read in reverse if asked."""
        if self.kind is FilePair:
            swap = are_exchanged(self.told, *langs) != reverse
            src, tgt = self.paths[::-1] if swap else self.paths
            return FilePair(name=self.name, src=src, tgt=tgt)
        source = self.kind.of_file(self.paths[0], *langs, self.columns)
        if reverse and isinstance(source, OfColumns) and source.columns:
            return source.model_copy(update={"columns": source.columns[::-1]})
        return source


def languages_of(
    texts: Sequence[Given], asked: Sequence[str | None], bundle: Bundle | None
) -> Langs:
    """Return the languages of source and target: as asked, of the bundle, or as the texts tell.

    A text that tells neither of the two that were asked for is taken to be in both.
    """
    tellers = [(str(text), text.told, text.kind is FilePair) for text in texts]
    tellers.sort(key=lambda teller: not teller[2])  # two files have an order, others may have none
    if bundle:
        sides = map(Language.of, (bundle.text.src.lang, bundle.text.tgt.lang))
        tellers.insert(0, (f"the bundle {bundle.artifact.path}", [*sides], True))
    langs, by = [Language.of(tag) if tag else None for tag in asked], "--src-lang and --tgt-lang"
    n_open, is_ordered = langs.count(None), any(asked)
    for who, found, has_order in tellers:
        rest = [lang for lang in found if all(not one or lang.contradicts(one) for one in langs)]
        if n_open and len(rest) == n_open:
            langs, by, n_open = [each or rest.pop(0) for each in langs], who, 0
            is_ordered |= has_order
    src, tgt = langs
    unclear = [each for each in tellers if n_open or not (each[1] or is_ordered)]
    if src is None or tgt is None or unclear:
        who, found, _ = unclear[0]
        raise UserError(
            f"the languages of {who} are {listed(map(str, found)) if found else 'not told'}; add "
            "--src-lang and --tgt-lang, such as --src-lang en --tgt-lang de"
        )
    for who, found, _ in tellers[bundle is not None :]:  # which knows no variants of a language
        lacking = [lang for lang in (src, tgt) if all(map(lang.contradicts, found))]
        if found and lacking and not (all(asked) and len(lacking) == 2):
            raise UserError(
                f"the languages of {who} are {listed(map(str, found))}, those of {by} {src}, "
                f"{tgt}; give texts in one pair of languages"
            )
    return src, tgt
