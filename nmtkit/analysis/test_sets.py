"""The test sets that files are scored against: public ones by name, or a user's references."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nmtkit.config.settings import Settings
from nmtkit.sources.kinds import read_plain
from nmtkit.sources.parallel import check_test_set, find_corpus
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import TREE, Language
from nmtkit.utils.text import counted


@dataclass(frozen=True)
class TestSet:
    """One or more references in one language, with the source text if it is known.

    Attributes:
        name: Name of the test set, or of the files of its references.
        lang: Target language. With `TREE`, parse trees are scored by bracket F1.
        references: One or more references, as lines.
        src: The lines of the source text.
        order: The file that defines the order of the lines (SGML segments may be in any order).
    """

    name: str
    lang: Language
    references: Sequence[Sequence[str]]
    src: Sequence[str] | None = None
    order: Path | None = None


def named_test_set(name: str, lang: str | None, settings: Settings) -> TestSet:
    """Load a test set of the catalog or of sacreBLEU.

    Args:
        name: Name of the test set, such as wmt22.
        lang: The language pair, such as en-de.
        settings: The folder of downloads and the mirror.

    Raises:
        UserError: The test set is unknown, or `lang` is missing.
    """
    if lang is None:
        raise UserError(
            f"--test-set {name} needs a language pair; pass --lang, such as --lang en-de"
        )
    src_lang, tgt_lang = Language.parse_pair(lang)
    check_test_set(name, src_lang, tgt_lang)
    rows = find_corpus(name, src_lang, tgt_lang).rows(settings.downloads())
    src, *references = map(list, zip(*rows, strict=True))
    return TestSet(name, tgt_lang, references, src)


def own_test_set(paths: Sequence[Path], lang: str, *, plain: bool = False) -> TestSet:
    """Read the references of a test set from files.

    Args:
        paths: One file per reference. Segments of SGML are read in the order of the first file.
        lang: The tag of the target language, or of `TREE`.
        plain: Read the files as plain text, even if they look like another format.

    Raises:
        UserError: `lang` is a language pair, or the references differ in their number of lines.
    """
    # "pt-br" is a valid tag, but a pair of languages, as for --test-set, is a likely mistake.
    if re.fullmatch("[a-z]{2,3}-[a-z]{2,3}", lang):
        raise UserError(
            f"--lang {lang} looks like a language pair; pass only the target language, or write "
            "the region in capitals, such as --lang pt-BR"
        )
    language = TREE if lang == TREE.tag else Language.of(lang)
    if language == TREE and len(paths) > 1:
        raise UserError(f"bracket F1 needs one reference, got {len(paths)}; pass one --ref")
    references = [list(read_plain(path, is_plain=plain, in_order_of=paths[0])) for path in paths]
    # The first reference defines the length of the test set.
    for path, reference in zip(paths, references, strict=True):
        check_length(path, reference, str(paths[0]), references[0])
    name = ", ".join(path.name for path in paths)
    return TestSet(name, language, references, order=paths[0])


def check_length(
    system: str | Path, lines: Sequence[str], name: str, others: Sequence[str]
) -> None:
    """Check that a text has the same number of lines as a test set, and not zero.

    Args:
        system: Name of the text, for the error.
        name: Name of the test set, for the error.
        others: The lines of its first reference.

    Raises:
        UserError: The test set is empty, or the numbers of lines differ.
    """
    if not others:
        raise UserError(f"{name} is empty; pass a text with at least one line")
    if len(lines) != len(others):
        raise UserError(
            f"{system} has {counted(len(lines), 'line')}, but {name} has {len(others):,}; pass "
            "files of the same test set"
        )
