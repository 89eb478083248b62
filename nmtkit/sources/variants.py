"""Which of several languages and variants in a text are its two sides.

The tag that the user named comes first. If the user named no variant, any variant of the language
is taken, unless there are several. No variant serves as both sides, and empty texts are ignored.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import NoReturn

from nmtkit.errors import UserError, shown
from nmtkit.languages import TREE, Language

N_SHOWN = 12
N_TAGS = 200  # the first, that tell which a text has
# Names of texts that tell sides instead of languages, some of which are the codes of languages.
SIDES = ({"source", "src"}, {"target", "tgt", "trg", "reference", "ref", "translation"})


class Variants:
    """Chooses the two sides of each unit of a text, and counts what is taken and left out."""

    def __init__(self, src: Language, tgt: Language) -> None:
        self.langs = src, tgt
        self.skipped = Counter[str]()  # units, by reason; kinds of sources add their own
        self._taken = Counter[tuple[Language, Language]]()
        self._tags = Counter[str]()  # of units that were skipped before any was taken
        # By tags, and whether they have text: the numbers of both texts, or why one is missing.
        self._plans: dict[tuple[tuple[str, bool], ...], dict[Language, int] | str] = {}

    def choose(self, unit: Sequence[tuple[str, str]], where: str) -> tuple[str, str] | None:
        """Return both texts of a unit of (tag, text), or None if it lacks one, and count it."""
        codes = [lang.code for lang in self.langs]
        ours = [part for part in unit if (lang := Language.named(part[0])) and lang.code in codes]
        key = tuple((tag, bool(text) and not text.isspace()) for tag, text in ours)
        if key not in self._plans:
            self._plans[key] = self._plan(key, where)
        plan = self._plans[key]
        if isinstance(plan, str):
            self.skipped[plan] += 1
            if not self._taken:
                self._tags.update(tag for tag, _ in unit)
            return None
        (src, first), (tgt, second) = plan.items()
        self._taken[src, tgt] += 1
        return ours[first][1], ours[second][1]

    def _plan(self, unit: Sequence[tuple[str, bool]], where: str) -> dict[Language, int] | str:
        texts: dict[Language, int] = {}  # the first with text
        for number, (tag, has_text) in enumerate(unit):
            language = Language.named(tag)
            if language is not None and (has_text or language not in texts):
                known = texts.setdefault(language, number)
                texts[language] = known if unit[known][1] else number
        filled = [language for language, number in texts.items() if unit[number][1]]
        found: dict[Language, int] = {}
        for number, lang in enumerate(self.langs):
            language = self._side(number, filled, where)
            if language is None:
                is_blank = bool(lang.among(texts.keys() - set(filled)))
                return f"with a blank {lang}" if is_blank else f"without {lang}"
            found[language] = texts[language]
        return found

    def choose_names(self, names: Sequence[str], where: str) -> tuple[str, str]:
        """Return which two of the names of columns or files are the sides."""
        unit = [(name, name) for name in names]
        pair = Variants(*self.langs).choose(unit, where) or self._hinted(names, where)
        if pair is None:
            src, tgt = self.langs
            raise UserError(f"{where} has not both {src} and {tgt}; it has {listed(names)}")
        return pair

    def _hinted(self, names: Sequence[str], where: str) -> tuple[str, str] | None:
        """Return the names that hint at the languages, as in "text_en" and "Source (English)"."""
        hints = [(language.tag, name) for name in names if (language := Language.hinted(name))]
        pair = Variants(*self.langs).choose(hints, where)
        for side in pair or ():
            same = [name for name in names if Language.hinted(name) == Language.hinted(side)]
            if len(same) > 1:
                raise UserError(f"{where} has {listed(same)}; name one of them as the language")
        return pair

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
            taken = Counter[Language]()
            for both, n in self._taken.items():
                taken[both[number]] += n
            if taken.keys() - {lang}:
                variants = ", ".join(f"{n:,} {language}" for language, n in taken.most_common())
                notes.append(f"took as {lang}: {variants}")
        return notes

    def lack(self) -> str:
        """Return why no unit was found: the predicate of a sentence about the text."""
        if not self._tags:
            return "has no text"
        src, tgt = self.langs
        tags = [f"{shown(tag)} ({n:,})" for tag, n in self._tags.most_common()]
        return f"has no unit in both {src} and {tgt}; it has {listed(tags)}"

    def _side(self, number: int, filled: Sequence[Language], where: str) -> Language | None:
        lang, other = self.langs[number], self.langs[1 - number]
        found = lang.among(language for language in filled if language != other)
        taken = {both[number] for both in self._taken}
        mixed = [each for each in taken if found and each.script != found[0].script]
        several = mixed + found
        if len(several) > 1:
            raise UserError(
                f"{where} has {lang} in several variants, {listed(map(str, several))}; name one"
            )
        return found[0] if found else None


class _EnoughError(Exception):
    pass


class _Tags(Variants):
    """Notes the tags of the first units, and chooses none."""

    def choose(self, unit: Sequence[tuple[str, str]], _where: str) -> None:
        self._tags.update(tag for tag, _ in unit)
        if self._tags.total() > N_TAGS:
            raise _EnoughError

    def choose_names(self, names: Sequence[str], _where: str) -> NoReturn:
        self._tags.update(names)
        raise _EnoughError


def tags_of(read: Callable[[Variants], Iterable[object]]) -> list[str]:
    """Return the tags or names of the texts that `read` chooses from, in its first units."""
    tags = _Tags(TREE, TREE)
    with suppress(_EnoughError):
        list(read(tags))
    return list(tags._tags)


def told(names: Sequence[str]) -> list[Language]:
    """Return the languages that names of columns or keys tell: none, or at least two.

    A name with spaces is a sentence. A code of three letters is a word, such as "key", unless there
    is one of two for the same language; "id" is no language beside two others.
    """
    if any(" " in re.sub(r" *\(.*\)", "", name) for name in names):
        return []
    hinted = (Language.hinted(name) for name in names if name.lower() not in SIDES[0] | SIDES[1])
    found = list(dict.fromkeys(each for each in hinted if each and len(each.code) == 2))
    if len(found) > 2:
        found = [each for each in found if each.tag.lower() != "id"]
    return found if len(found) > 1 else []


def sides_of(names: Sequence[str], asked: Sequence[str], *langs: Language) -> Sequence[str]:
    """Return which of the names are the two sides: those asked for, or as far as they tell."""
    if asked:
        return asked[::-1] if are_exchanged(told(asked), *langs) else asked
    words = [(name, name.strip().lower(), Language.hinted(name)) for name in names]
    sides = zip(SIDES, langs, strict=True)
    return [name for side, lang in sides for name, word, of in words if word in side or of == lang]


def are_exchanged(found: Sequence[Language], src: Language, tgt: Language) -> bool:
    """Return whether texts in the languages `found` are not in `src` and `tgt`, but exchanged."""
    if len(found) != 2:
        return False
    are_wrong = found[0].contradicts(src) and found[1].contradicts(tgt)
    return are_wrong and not (found[0].contradicts(tgt) or found[1].contradicts(src))


def listed(names: Iterable[str]) -> str:
    """Return names, or the first few of many, separated by commas."""
    names = list(names)
    more = f" and {len(names) - N_SHOWN:,} more" if len(names) > N_SHOWN else ""
    return (", ".join(names[:N_SHOWN]) or "none") + more
