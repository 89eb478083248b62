"""The two sides of each unit of a text in several languages, and what is skipped."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import NoReturn

from nmtkit.sources.sides import find_sides, is_side, is_side_word, plain
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import TREE, Language
from nmtkit.utils.text import quote

N_SHOWN = 12
N_TAGS = 200  # the first, from which languages are detected
# Columns that give the language or direction of a row.
_ROW_LANGUAGE = re.compile(
    r"((src|source|tgt|target|trg)[ _-]?)?lang(uage)?s?([ _-]?(pair|code))?|direction"
)


class Variants:
    """Chooses the two sides of each unit of a text, and counts what is taken and left out.

    An equal language is taken before one that matches. No variant serves as both sides, and empty
    texts are ignored.
    """

    def __init__(self, src: Language, tgt: Language) -> None:
        self.langs = src, tgt
        self.skipped = Counter[str]()  # units, by reason; kinds of sources add their own
        self._taken = Counter[tuple[str, str]]()  # tags
        self._tags = Counter[str]()  # of units that were skipped before any was taken
        # By tags, and whether they have text: the positions of both texts, or why one is missing.
        self._plans: dict[tuple[tuple[str, bool], ...], tuple[int, int] | str] = {}

    def choose(self, unit: Sequence[tuple[str, str]], where: str) -> tuple[str, str] | None:
        """Return both texts of a unit of (tag, text), or None if it lacks one, and count it."""
        ours = [part for part in unit if is_side(part[0], self.langs)]
        key = tuple((tag, bool(text) and not text.isspace()) for tag, text in ours)
        if key not in self._plans:
            self._plans[key] = self._plan(key, where)
        plan = self._plans[key]
        if isinstance(plan, str):
            self.skipped[plan] += 1
            if not self._taken:
                self._tags.update(tag for tag, _ in unit)
            return None
        src, tgt = (ours[position] for position in plan)
        self._taken[src[0], tgt[0]] += 1
        return src[1], tgt[1]

    def _plan(self, unit: Sequence[tuple[str, bool]], where: str) -> tuple[int, int] | str:
        first: dict[Language | None, int] = {}  # the first text of each language
        for position, (tag, has_text) in enumerate(unit):
            if has_text:
                first.setdefault(Language.named(tag), position)
        positions = list(first.values())
        filled = find_sides([unit[position][0] for position in positions], self.langs)
        sides: list[int] = []
        for number, lang in enumerate(self.langs):
            found = [positions[place] for place in filled[number]]
            if not found:
                is_blank = bool(find_sides([tag for tag, _ in unit], self.langs)[number])
                return f"with a blank {lang}" if is_blank else f"without {lang}"
            tags = [unit[position][0] for position in found]
            taken = {both[number] for both in self._taken}
            mixed = [tag for tag in taken if _script(tag) != _script(tags[0])]
            if len(mixed + tags) > 1:
                raise UserError(
                    f"{where} has {lang} in several variants, {listed(mixed + tags)}; name "
                    "one of them, such as --tgt-lang zh-TW"
                )
            sides += found
        return f"without {self.langs[1]}" if sides[0] == sides[1] else (sides[0], sides[1])

    def choose_columns(
        self,
        names: Sequence[str],
        where: str,
        remedy: str = "name one of these as the language",
        labels: Sequence[str] = (),
    ) -> tuple[int, int]:
        """Return the positions of the two sides, or refuse the names.

        Args:
            names: Names of columns, keys or files.
            where: What has these names, for the message.
            remedy: What the user can do if a side has no candidate or several.
            labels: What the message calls the names, if they are parts of longer ones.
        """
        labels = labels or names
        candidates = find_sides(names, self.langs)
        for lang, found in zip(self.langs, candidates, strict=True):
            if len(found) > 1:
                several = listed(labels[position] for position in found)
                raise UserError(
                    f"{where} has several candidates for {lang}: {several} (it has "
                    f"{listed(labels)}); {remedy}"
                )
        if not all(candidates) or candidates[0] == candidates[1]:
            src, tgt = self.langs
            raise UserError(
                f"{where} has not both {src} and {tgt}; it has {listed(labels)}; {remedy}"
            )
        [[src_position], [tgt_position]] = candidates
        row_languages = [name for name in names if _ROW_LANGUAGE.fullmatch(plain(name))]
        if row_languages and any(is_side_word(names[found]) for [found] in candidates):
            raise UserError(
                f"{where} has {listed(row_languages)}, so that the direction may differ from row "
                f"to row; write a file for each direction, or if all rows have the same, {remedy}"
            )
        return src_position, tgt_position

    def choose_names(self, names: Sequence[str], where: str) -> tuple[str, str]:
        """Return which two of the names of languages or files are the sides."""
        src, tgt = self.choose_columns(names, where)
        return names[src], names[tgt]

    def warning(self) -> str | None:
        """Count the units that were skipped, by reason; None if there are none."""
        if not self.skipped:
            return None
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in self.skipped.most_common())
        return f"skipped {self.skipped.total():,} units: {reasons}"

    def notes(self) -> list[str]:
        """Count the variants that were taken as a language that was named otherwise."""
        notes = []
        for number, lang in enumerate(self.langs):
            taken = Counter[str]()
            for tags, n in self._taken.items():
                taken[tags[number]] += n
            if {Language.named(tag) for tag in taken} - {lang}:
                variants = ", ".join(f"{n:,} {tag}" for tag, n in taken.most_common())
                notes.append(f"took as {lang}: {variants}")
        return notes

    def lack(self) -> str:
        """Return why no unit was found: the predicate of a sentence about the text."""
        if not self._tags:
            return "has no text"
        src, tgt = self.langs
        tags = [f"{quote(tag)} ({n:,})" for tag, n in self._tags.most_common()]
        return f"has no unit in both {src} and {tgt}; it has {listed(tags)}"


def _script(tag: str) -> str:
    language = Language.named(tag)
    return language.script if language else ""


class _EnoughError(Exception):
    pass


class _NameRecorder(Variants):
    """Records the names of the first units, and chooses none."""

    def choose(self, unit: Sequence[tuple[str, str]], _where: str) -> None:
        self._tags.update(tag for tag, _ in unit)
        if self._tags.total() > N_TAGS:
            raise _EnoughError

    def choose_columns(
        self, names: Sequence[str], _where: str, _remedy: str = "", labels: Sequence[str] = ()
    ) -> NoReturn:
        self._tags.update(labels or names)
        raise _EnoughError


def recorded_names(read: Callable[[Variants], Iterable[object]]) -> list[str]:
    """Return the names of the texts that `read` chooses from, in its first units."""
    recorder = _NameRecorder(TREE, TREE)
    with suppress(_EnoughError):
        list(read(recorder))
    return list(recorder._tags)


def listed(names: Iterable[str]) -> str:
    """Return names, or the first few of many, separated by commas."""
    names = list(names)
    more = f" and {len(names) - N_SHOWN:,} more" if len(names) > N_SHOWN else ""
    return (", ".join(names[:N_SHOWN]) or "none") + more
