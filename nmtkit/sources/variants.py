"""Which of several languages and variants in a text are its two sides.

The tag that the user named comes first. If the user named no variant, a variant of the language
will do, unless there are several to choose from. None serves both sides, and what is empty does not
count.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nmtkit.errors import UserError, shown
from nmtkit.languages import Language

N_SHOWN = 12
MAX_PLANS = 10_000  # combinations of languages in a unit


@dataclass
class _Plan:
    """What becomes of all units that have the same tags with text."""

    sides: tuple[int, int] | None  # which texts of a unit
    languages: tuple[Language, ...] = ()
    why_not: str = ""
    n_units: int = 0


class Variants:
    """Chooses the two sides of each unit of a text, and counts what is taken and left out."""

    def __init__(self, src: Language, tgt: Language) -> None:
        self.langs = src, tgt
        self.left_out = Counter[str]()  # units that the kind of source itself skips, by reason
        self._plans: dict[tuple[tuple[str, bool], ...], _Plan] = {}

    def choose(self, unit: Sequence[tuple[str, str]], where: str) -> tuple[str, str] | None:
        """Return the two texts of a unit, or None if it has not both, which is counted.

        Args:
            unit: Tags or names of languages, each with a text.
            where: How messages name the text that the unit is of.

        Raises:
            UserError: It has several variants of a language of which the user named none.
        """
        key = tuple((tag, bool(text) and not text.isspace()) for tag, text in unit)
        plan = self._plans.get(key)
        if plan is None and len(self._plans) >= MAX_PLANS:
            ours = [part for part in unit if self._is_ours(part[0])]
            if len(ours) < len(unit):
                return self.choose(ours, where)
            plan = self._plan(key, where)  # which is not counted
        elif plan is None:
            plan = self._plans[key] = self._plan(key, where)
        plan.n_units += 1
        if plan.sides is None:
            return None
        return unit[plan.sides[0]][1], unit[plan.sides[1]][1]

    def _is_ours(self, tag: str) -> bool:
        language = Language.named(tag)
        return language is not None and language.code in {lang.code for lang in self.langs}

    def _plan(self, unit: Sequence[tuple[str, bool]], where: str) -> _Plan:
        texts: dict[Language, int] = {}  # the first with text
        for number, (tag, has_text) in enumerate(unit):
            language = Language.named(tag)
            if language is not None and (has_text or language not in texts):
                known = texts.setdefault(language, number)
                texts[language] = known if unit[known][1] else number
        filled = [language for language, number in texts.items() if unit[number][1]]
        found: list[Language] = []
        for number, lang in enumerate(self.langs):
            language = self._side(number, filled, where)
            if language is None:
                is_blank = bool(lang.among(texts.keys() - set(filled)))
                return _Plan(None, (), f"with a blank {lang}" if is_blank else f"without {lang}")
            found.append(language)
        return _Plan((texts[found[0]], texts[found[1]]), tuple(found))

    def choose_names(self, names: Sequence[str], where: str) -> tuple[str, str]:
        """Return which two of the names of columns or files are the sides.

        Raises:
            UserError: None is, or several may be.
        """
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

    @property
    def skipped(self) -> Counter[str]:
        """Return the numbers of units that were skipped, by reason."""
        skipped = self.left_out.copy()
        for plan in self._plans.values():
            if plan.why_not:
                skipped[plan.why_not] += plan.n_units
        return skipped

    def notes(self) -> list[str]:
        """Return what to tell the user about the text that was read, a sentence each."""
        notes = []
        if skipped := self.skipped:
            reasons = ", ".join(f"{n:,} {reason}" for reason, n in skipped.most_common())
            notes.append(f"skipped {skipped.total():,} units: {reasons}")
        for number, lang in enumerate(self.langs):
            taken = Counter[Language]()
            for plan in self._plans.values():
                taken.update({plan.languages[number]: plan.n_units} if plan.sides else {})
            if taken.keys() - {lang}:
                variants = ", ".join(f"{n:,} {language}" for language, n in taken.most_common())
                notes.append(f"took as {lang}: {variants}")
        return notes

    def lack(self) -> str:
        """Return why no unit was found: the rest of a sentence that starts with the text."""
        src, tgt = self.langs
        if not self._plans:
            return "has no text"
        seen = Counter[str]()
        for key, plan in self._plans.items():
            seen.update({tag: plan.n_units for tag, _ in key})
        tags = [f"{shown(tag)} ({n:,})" for tag, n in seen.most_common()]
        return f"has no unit in both {src} and {tgt}; it has {listed(tags)}"

    def _side(self, number: int, filled: Sequence[Language], where: str) -> Language | None:
        lang, other = self.langs[number], self.langs[1 - number]
        found = lang.among(language for language in filled if language != other)
        taken = {plan.languages[number] for plan in self._plans.values() if plan.sides}
        mixed = [each for each in taken if found and each.script != found[0].script]
        if len(found) > 1 or mixed:
            raise UserError(
                f"{where} has {lang} in several variants, {listed([*map(str, mixed + found)])}; "
                "name one of them as the language"
            )
        return found[0] if found else None


def listed(names: Iterable[str]) -> str:
    """Return names, or the first of many, as a sentence lists them."""
    names = list(names)
    more = f" and {len(names) - N_SHOWN:,} more" if len(names) > N_SHOWN else ""
    return (", ".join(names[:N_SHOWN]) or "none") + more
