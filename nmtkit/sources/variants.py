"""Which of several languages and variants in a text are its two sides.

The tag that the user named comes first. If the user named no variant, a variant of the language
will do, unless there are several to choose from. None serves both sides, and what is empty does not
count.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from nmtkit.errors import UserError, shown
from nmtkit.languages import Language

N_SHOWN = 12
MAX_SEEN = 1_000  # tags that are counted


class Variants:
    """Chooses the two sides of each unit of a text, and counts what is taken and left out."""

    def __init__(self, src: Language, tgt: Language) -> None:
        self.langs = src, tgt
        self.skipped = Counter[str]()  # units, by reason
        self._seen = Counter[str]()  # tags
        self._taken = Counter[Language](), Counter[Language]()

    def choose(self, unit: Iterable[tuple[str, str]], where: str) -> tuple[str, str] | None:
        """Return the two texts of a unit, or None if it has not both, which is counted.

        Args:
            unit: Tags or names of languages, each with a text.
            where: How messages name the text that the unit is of.

        Raises:
            UserError: It has several variants of a language of which the user named none.
        """
        texts: dict[Language, str] = {}
        for tag, text in unit:
            if tag in self._seen or len(self._seen) < MAX_SEEN:
                self._seen[tag] += 1
            language = Language.named(tag)
            if language is not None and not texts.get(language, "").strip():
                texts[language] = text
        filled = [language for language, text in texts.items() if text.strip()]
        found = [self._side(number, filled, where) for number in (0, 1)]
        for lang, language in zip(self.langs, found, strict=True):
            if language is None:
                is_blank = bool(lang.among(texts.keys() - set(filled)))
                self.skipped[f"with a blank {lang}" if is_blank else f"without {lang}"] += 1
                return None
        for taken, language in zip(self._taken, found, strict=True):
            assert language is not None
            taken[language] += 1
        return texts[found[0]], texts[found[1]]  # type: ignore[index]

    def choose_names(self, names: Sequence[str], where: str) -> tuple[str, str]:
        """Return which two of the names of columns or files are the sides.

        Raises:
            UserError: None is, or several may be.
        """
        pair = Variants(*self.langs).choose([(name, name) for name in names], where)
        if pair is None:
            src, tgt = self.langs
            raise UserError(f"{where} has not both {src} and {tgt}; it has {listed(names)}")
        return pair

    def notes(self) -> list[str]:
        """Return what to tell the user about the text that was read, a sentence each."""
        notes = []
        if self.skipped:
            reasons = ", ".join(f"{n:,} {reason}" for reason, n in self.skipped.most_common())
            notes.append(f"skipped {self.skipped.total():,} units: {reasons}")
        for lang, taken in zip(self.langs, self._taken, strict=True):
            if taken.keys() - {lang}:
                variants = ", ".join(f"{n:,} {language}" for language, n in taken.most_common())
                notes.append(f"took as {lang}: {variants}")
        return notes

    def lack(self) -> str:
        """Return why no unit was found: the rest of a sentence that starts with the text."""
        src, tgt = self.langs
        if not self._seen:
            return "has no text"
        seen = [f"{shown(tag)} ({n:,})" for tag, n in self._seen.most_common()]
        return f"has no unit in both {src} and {tgt}; it has {listed(seen)}"

    def _side(self, number: int, filled: Sequence[Language], where: str) -> Language | None:
        lang, other = self.langs[number], self.langs[1 - number]
        found = lang.among(language for language in filled if language != other)
        mixed = [each for each in self._taken[number] if found and each.script != found[0].script]
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
