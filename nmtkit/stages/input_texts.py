"""The texts on the command line of `nmtkit new`: their languages, and their sources."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from nmtkit.decoding.bundle import Bundle
from nmtkit.sources.file_pair import FilePair, differing_parts
from nmtkit.sources.kinds import KINDS, check_form
from nmtkit.sources.sides import find_sides, named_languages
from nmtkit.sources.source import OfColumns, Source, last_parts, own_path
from nmtkit.sources.table import Csv, Delimiter, Tsv
from nmtkit.sources.text import TextFile
from nmtkit.sources.variants import listed
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language
from nmtkit.utils.text import shorten

Files = list[str] | None
Languages = tuple[Language, Language]
MAX_SHOWN_NAME = 40


@dataclass(frozen=True)
class InputText:
    """A text, with the columns that were written after its path."""

    kind: type[Source]
    paths: tuple[str, ...]  # one, or two of a FilePair
    columns: Sequence[str] = ()
    name: str | None = None

    @classmethod
    def parse(cls, kind: type[Source], text: str) -> "InputText":
        """Return the text of "a.tsv" or "a.tsv:id,en,de"; a path may have a colon itself."""
        path, _, columns = text.rpartition(":")
        if own_path(text).exists() or not (path and own_path(path).exists()):
            return cls(kind, (text,))
        return cls(kind, (path,), columns.split(","))

    def __str__(self) -> str:
        return " and ".join(self.paths)

    @cached_property
    def names(self) -> Sequence[str]:
        """What its texts are called: by the user, or by file names, a header, keys or tags."""
        for place in map(own_path, self.paths):
            if place.exists() and not (place.is_file() or place.is_dir()):
                raise UserError(f"{place} is not a file that can be read twice; copy it to one")
        if self.kind is FilePair:
            return differing_parts(*self.paths)
        return self.columns or self.kind.names_in(self.paths[0])

    @cached_property
    def languages(self) -> list[Language]:
        """The languages that the names are exactly; of nested texts, the last part counts."""
        is_nested = issubclass(self.kind, OfColumns)
        return named_languages(last_parts(self.names) if is_nested else self.names)

    def source(self, langs: Languages, *, reverse: bool, plain: bool = False) -> Source:
        """Return the source of the text.

        Args:
            langs: The languages of its two sides.
            reverse: Whether to exchange the sides.
            plain: Whether to read a pair of files as plain text, whatever it looks like.
        """
        if self.kind is FilePair:
            src, tgt = self.paths[::-1] if reverse else self.paths
            return FilePair(name=self.name, src=src, tgt=tgt, plain=plain)
        source = self.kind.of_file(self.paths[0], *langs, self.columns)
        if reverse and isinstance(source, OfColumns) and source.columns:
            return source.model_copy(update={"columns": source.columns[::-1]})
        return source


def source_kinds(delimiter: Delimiter | None, *, quoted: bool | None) -> dict[str, type[Source]]:
    """Return the kinds of sources by their keys.

    Args:
        delimiter: Delimiter of CSV files; None: detect it in each file.
        quoted: Whether cells of TSV files are in quotation marks; None: detect it in each file.
    """
    kinds = {kind.key: kind for kind in KINDS}
    if delimiter is not None:
        kinds[Csv.key] = Csv.with_dialect(delimiter=delimiter)
    if quoted is not None:
        kinds[Tsv.key] = Tsv.with_dialect(quoted=quoted)
    return kinds


def check_formats(texts: Sequence[InputText], *, plain: bool) -> None:
    """Refuse files in a format that their option does not read, before looking into them."""
    for text in texts:
        for path in map(own_path, text.paths):
            if path.is_file():
                check_form(TextFile(path, is_plain=plain and text.kind is FilePair), text.kind)


def input_texts(
    src: Sequence[str],
    tgt: Sequence[str],
    files: Mapping[str, Files],
    kinds: Mapping[str, type[Source]],
) -> list[InputText]:
    """Return the texts that the options name, `files` by the keys of `kinds`."""
    pairs = [InputText(FilePair, paths) for paths in zip(src, tgt, strict=False)]
    texts = [
        InputText.parse(kinds[key], text) for key, some in files.items() for text in some or []
    ]
    if len(src) != len(tgt) or not pairs + texts:
        raise UserError(
            f"name one text or more: by as many --src as --tgt (seen: {len(src)} and {len(tgt)}), "
            "or by --tsv, --csv, --jsonl, --tmx, --opus-zip or --dataset"
        )
    return pairs + texts


def find_languages(
    texts: Sequence[InputText], src_lang: str | None, tgt_lang: str | None, bundle: Bundle | None
) -> Languages:
    """Find the languages of source and target.

    Args:
        texts: All texts; their languages are used as far as the user and the bundle name none.
        src_lang: The source language, if the user named it.
        tgt_lang: Likewise, the target language.
        bundle: The bundle to be fine-tuned.

    Returns:
        The two languages, in which all texts are as far as their names show it.
    """
    langs = [Language.of(tag) if tag else None for tag in (src_lang, tgt_lang)]
    # Two files have an order, as the user's options and a bundle; columns may be in any.
    file_pairs = [text for text in texts if text.kind is FilePair]
    others = [text for text in texts if text.kind is not FilePair]
    has_order = bundle or any(langs) or any(text.languages for text in file_pairs)
    detected = [text.languages for text in (*file_pairs, *others)]
    if bundle:
        detected.insert(0, [Language.of(side.lang) for side in (bundle.text.src, bundle.text.tgt)])
    for languages in detected:
        known = [lang.code for lang in langs if lang]
        rest = [language for language in languages if language.code not in known]
        if len(rest) == langs.count(None):
            langs = [lang or rest.pop(0) for lang in langs]
    src, tgt = langs
    silent = [text for text in texts if not text.languages]
    if src is None or tgt is None or (silent and not has_order):
        text = silent[0] if silent else texts[0]
        names = listed(shorten(name, MAX_SHOWN_NAME) for name in text.names)
        raise UserError(
            f"could not detect the languages of {text} (names: {names}); pass --src-lang and "
            "--tgt-lang, such as --src-lang en --tgt-lang de"
        )
    for text in file_pairs:
        sides = find_sides(text.names, (src, tgt))
        is_free = src_lang and tgt_lang and not any(sides)  # named by the user alone
        if text.names and not is_free and sides != [[0], [1]]:
            raise UserError(
                f"{text} are named {listed(text.names)}, but the languages are {src}, {tgt}; give "
                "texts in one pair of languages, --src in the source language"
            )
    return src, tgt
