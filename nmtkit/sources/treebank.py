"""Penn Treebank brackets: trees of phrases, read and normalized to one line each.

A tree becomes what parsers are trained on and scored with (Collins 1997): traces and other empty
elements are removed, and with them the phrases that they leave without a word; labels lose their
function tags ("NP-SBJ=2" becomes "NP"); the outer bracket, which has no label in the treebank, is
called TOP. Brackets of the text are the words -LRB- and -RRB-, as in the treebank. A tag without a
word, "(HYPH )", is removed too, but counted: it is a mistake of the file.
"""

import re
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from nmtkit.sources.sides import Variants
from nmtkit.sources.source import Pair, Row, Source
from nmtkit.sources.text_file import TextFile, list_zip, read_lines
from nmtkit.utils.errors import UserError
from nmtkit.utils.text import shorten

if TYPE_CHECKING:
    from nltk.tree import Tree

TOP = "TOP"
_OUTER = ("", TOP, "ROOT", "S1")  # labels of the outer bracket in various treebanks
_EMPTY = "-NONE-"
_WORDLESS = "brackets without a word, as in (HYPH )"
Part = Annotated[str, Field(pattern=r"^(\d{2}(-\d{2})?|\d{4}(-\d{4})?)$")]
SUFFIXES = (".mrg", ".trees", ".ptb")  # of the files of a folder or an archive that hold trees

MAX_CHARACTERS = 2**20  # of a tree; the longest of the treebank has some 10,000


class Treebank(Source):
    """Trees in Penn Treebank brackets: a folder of files, a zip archive, or one file."""

    key = "treebank"
    path_keys = ("treebank",)
    title = "trees"
    trees = (True,)
    may_be_folder = True

    treebank: str
    # Ranges of the numbers in the names of its files: "02-21" is wsj_0200.mrg to wsj_2199.mrg, and
    # "0001-0049" a part of section 00. Without any, all files are read.
    sections: Annotated[tuple[Part, ...], Field(strict=False)] = ()

    def default_name(self) -> str:
        """Return the name of the folder or file, with the sections."""
        return "-".join((Path(self.treebank).name, *self.sections))

    def texts_at(self, places: Sequence[TextFile]) -> list[TextFile]:
        """Return the files of the sections."""
        [place] = places
        return find_tree_files(place, self.sections)

    def identity(self, hashes: Sequence[str]) -> list[str]:
        """Return the values that determine the text: also the sections."""
        return [self.key, *self.sections, *hashes]

    def rows(self, texts: Sequence[TextFile], variants: Variants) -> Iterator[Row]:
        """Yield the words and the normalized tree of each sentence; see `Source.rows`."""
        for text in texts:
            yield from read_trees(text, variants.skipped)


def read_trees(file: TextFile, skipped: Counter[str] | None = None) -> Iterator[Pair]:
    """Yield the words and the normalized tree of each sentence; see `normalize`.

    Args:
        file: The trees. They may span several lines.
        skipped: Counts the brackets that have no word.
    """
    from nltk.tokenize.sexpr import SExprTokenizer  # slow to import, as nltk.tree is

    split = SExprTokenizer().tokenize
    lines: list[str] = []  # of trees that are open
    n_characters = 0  # of these lines
    depth = 0  # number of open brackets
    for number, line in enumerate(chain(read_lines(file), [""]), 1):
        lines.append(line)
        n_characters += len(line) + 1
        depth += line.count("(") - line.count(")")
        # A longer tree is cut, which is an error; a bracket that is never closed would otherwise
        # collect the whole file.
        if depth <= 0 or n_characters > MAX_CHARACTERS:
            where = f"{file}, line {number:,}"
            try:
                trees = split("\n".join(lines))
            except ValueError as error:
                raise UserError(
                    f"{where}: {error}; write trees in Penn Treebank brackets"
                ) from None
            for tree in trees:
                yield normalize(tree, where, skipped)
            lines = []
            n_characters = 0
    if lines:
        raise UserError(f"{file} ends within a tree; add the missing closing bracket")


def normalize(text: str, where: str, skipped: Counter[str] | None = None) -> Pair:
    """Return the words and the normalized form of one tree.

    Args:
        text: The tree, in brackets.
        where: Its place, for messages.
        skipped: Counts the brackets that have no word.

    Raises:
        UserError: It is not a tree, or has no word.
    """
    from nltk.tree import Tree

    try:
        parsed = Tree.fromstring(text)
        tree = _plain(parsed, is_outer=True)
    except (ValueError, RecursionError) as error:  # the messages of nltk have several lines
        reason = str(error).partition("\n")[0]
        raise UserError(f"{where}: {shorten(text)} is not a tree: {reason}; correct it") from None
    if tree is None:
        raise UserError(f"{where}: {shorten(text)} is an empty tree; remove it")
    n_wordless = len(list(parsed.subtrees(lambda bracket: len(bracket) == 0)))
    if skipped is not None and n_wordless:
        skipped[_WORDLESS] += n_wordless
    return " ".join(tree.leaves()), tree.pformat(margin=sys.maxsize)


def _plain(tree: "Tree", *, is_outer: bool = False) -> "Tree | None":
    """Return a tree without empty elements and function tags, or None if nothing is left.

    Args:
        is_outer: Whether it is the whole tree and gets the label `TOP`.

    Raises:
        ValueError: It is not in Penn Treebank brackets.
    """
    from nltk.tree import Tree

    label = str(tree.label())
    # A bracket has one word, or only brackets: (NP (DT the) (NN house)).
    is_word = [isinstance(child, str) for child in tree]
    if is_word == [True] and label and not re.search(r"[()]", label + tree[0]):
        tagged = Tree(label, list(tree))
        plain = None if label == _EMPTY else tagged
    elif any(is_word) or not (label or is_outer) or re.search(r"[()]", label):
        raise ValueError(
            f"({label} ...) is neither a tag with one word nor a label with brackets; labels and "
            "words have no spaces, and brackets of the text are -LRB- and -RRB-"
        )
    else:
        children = []
        for child in tree:
            plain_child = _plain(child)
            if plain_child is not None:
                children.append(plain_child)
        phrase = re.split("(?<!^)[-=]", label, maxsplit=1)[0]  # "NP" of "NP-SBJ-1" and "NP=2"
        plain = Tree(phrase, children) if children else None
    if not is_outer or plain is None:
        return plain
    # An outer bracket with another label is a phrase of the tree.
    return Tree(TOP, list(plain) if label in _OUTER else [plain])


def find_tree_files(text: TextFile, sections: Sequence[str]) -> list[TextFile]:
    """Return the files of trees in a folder or a zip archive, or the file itself.

    Args:
        text: The folder, archive or file.
        sections: See `Treebank.sections`.

    Raises:
        UserError: There are no such files.
    """
    place = text.path
    if place.is_dir():
        texts = [TextFile(path) for path in sorted(place.rglob("*")) if _has_trees(path.name)]
    elif not place.is_file():
        raise UserError(f"{place} does not exist; correct the path in the recipe")
    elif text.member is None and zipfile.is_zipfile(place):
        texts = [TextFile(place, name) for name in sorted(list_zip(place)) if _has_trees(name)]
    elif sections:
        raise UserError(
            f"{text} is a file and has no sections; set a folder or a .zip file as treebank"
        )
    else:
        return [text]
    # A section that is missing would change the result unnoticed.
    for section in sections:
        if not any(_is_in_section(file, section) for file in texts):
            raise UserError(
                f"{place} has no section {section}: none of its {len(texts):,} tree files "
                f"({', '.join(SUFFIXES)}) has such a name (as wsj_0200.mrg in section 02); "
                "correct the recipe"
            )
    if not texts:
        raise UserError(f"{place} has no tree files ({', '.join(SUFFIXES)}); correct the recipe")
    if not sections:
        return texts
    chosen = []
    for file in texts:
        if any(_is_in_section(file, section) for section in sections):
            chosen.append(file)
    return chosen


def _has_trees(name: str) -> bool:
    return name.lower().removesuffix(".gz").endswith(SUFFIXES)


def _is_in_section(file: TextFile, section: str) -> bool:
    """Return whether the first number in the name of a file is in a range such as 02-21."""
    first, _, last = section.partition("-")
    numbers = re.findall(r"\d+", file.name.rpartition("/")[2])
    return bool(numbers) and first <= numbers[0][: len(first)] <= (last or first)
