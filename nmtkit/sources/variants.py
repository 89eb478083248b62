"""The two sides of each unit of a text in several languages, and counts of skipped units."""

from collections import Counter
from collections.abc import Sequence

from nmtkit.sources.sides import Positions, find_sides, is_side
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language
from nmtkit.utils.text import counted, join_names, quote

TaggedText = tuple[str, str]  # the tag of a language, and a text


class Variants:
    """Chooses the two sides of each unit of a text, and counts the units by outcome.

    A unit is a sentence in several languages or variants of them. A text in the same language comes
    before one that only matches. No text serves as both sides, and blank texts are ignored.

    Attributes:
        langs: The languages of source and target.
        skipped: Number of skipped units by reason; kinds of sources add their own reasons.
        suspicions: Sentences about text that was read, and that may be wrong.
    """

    def __init__(self, src: Language, tgt: Language) -> None:
        """Create the counts of a text in two languages."""
        self.langs = (src, tgt)
        self.skipped = Counter[str]()
        self.suspicions: list[str] = []
        self._chosen_tags = Counter[tuple[str, str]]()
        self._repeated = Counter[str]()  # units with further texts, by the language of these
        self._skipped_tags = Counter[str]()  # of units that were skipped before any was chosen
        # The choice depends only on the tags, and on which texts are blank.
        self._choices: dict[tuple[tuple[str, bool], ...], Positions | str] = {}

    def choose(self, unit: Sequence[TaggedText], where: str) -> tuple[str, str] | None:
        """Return both texts of a unit, or None, counted by reason, if a side is missing.

        Args:
            unit: The texts of the unit with their tags.
            where: The place of the unit, for messages.

        Raises:
            UserError: Several variants of a language fit, and the user named none of them.
        """
        texts = [tagged for tagged in unit if is_side(tagged[0], self.langs)]
        # Units with the same tags are decided once: a memory has millions of them.
        key = tuple((tag, not text or text.isspace()) for tag, text in texts)
        if key not in self._choices:
            self._choices[key] = self._choose(key, where)
        choice = self._choices[key]
        if isinstance(choice, str):
            self.skipped[choice] += 1
            # These explain an empty corpus; once a unit is chosen, they are not needed.
            if not self._chosen_tags:
                self._skipped_tags.update(tag for tag, _ in unit)
            return None
        # The first text of a language is chosen; others that differ from it are lost.
        if len(texts) > 2:
            for position, lang in zip(choice, self.langs, strict=True):
                tag, _ = texts[position]
                same = [other for name, other in texts if _is_same(name, tag) and other.strip()]
                self._repeated[str(lang)] += len(set(same)) > 1
        src_tag, src = texts[choice[0]]
        tgt_tag, tgt = texts[choice[1]]
        self._chosen_tags[src_tag, tgt_tag] += 1
        return src, tgt

    def _choose(self, tags: Sequence[tuple[str, bool]], where: str) -> Positions | str:
        """Return the positions of both sides, or the reason why one is missing.

        Args:
            tags: The tags of a unit, and whether their texts are blank.
            where: The place of the unit, for messages.
        """
        # Of several texts in the same language, the first counts.
        filled: dict[Language | None, int] = {}  # positions of texts that are not blank
        for position, (tag, is_blank) in enumerate(tags):
            if not is_blank:
                filled.setdefault(Language.from_name(tag), position)
        positions = list(filled.values())
        names = [tag for tag, _ in tags]
        filled_names = [names[position] for position in positions]
        all_sides = find_sides(names, self.langs)
        filled_sides = find_sides(filled_names, self.langs)

        chosen = []
        for side, lang in enumerate(self.langs):
            if not filled_sides[side]:
                return f"with a blank {lang}" if all_sides[side] else f"without {lang}"
            variants = [filled_names[number] for number in filled_sides[side]]
            # Scripts would be mixed if earlier units had a variant in another script.
            earlier = {chosen_tags[side] for chosen_tags in self._chosen_tags}
            mixed = [tag for tag in earlier if _script(tag) != _script(variants[0])]
            if len(mixed + variants) > 1:
                raise UserError(
                    f"{where} has {lang} in several variants, {join_names(mixed + variants)}; pass "
                    "one of them as the language, such as --tgt-lang zh-TW"
                )
            chosen.append(positions[filled_sides[side][0]])
        src_position, tgt_position = chosen
        if src_position == tgt_position:
            return f"without {self.langs[1]}"
        return src_position, tgt_position

    def warnings(self) -> list[str]:
        """Return the number of skipped units by reason, if there are any, and the suspicions."""
        warnings = []
        if self.skipped:
            reasons = ", ".join(f"{n:,} {reason}" for reason, n in self.skipped.most_common())
            warnings.append(f"skipped {counted(self.skipped.total(), 'unit')}: {reasons}")
        for lang, n_units in (+self._repeated).items():
            units = counted(n_units, "unit")
            warnings.append(f"used only the first of several texts in {lang} of {units}")
        return warnings + self.suspicions

    def notes(self) -> list[str]:
        """Return a line for each side that has variants other than the language itself."""
        notes = []
        for side, lang in enumerate(self.langs):
            counts = Counter[str]()
            for tags, n in self._chosen_tags.items():
                counts[tags[side]] += n
            if any(Language.from_name(tag) != lang for tag in counts):
                variants = ", ".join(f"{n:,} {tag}" for tag, n in counts.most_common())
                notes.append(f"read as {lang}: {variants}")
        return notes

    def missing_reason(self) -> str:
        """Return the reason why no unit was chosen: the predicate of a sentence on the text."""
        if not self._skipped_tags:
            return "has no text"
        src, tgt = self.langs
        tags = [f"{quote(tag)} ({n:,})" for tag, n in self._skipped_tags.most_common()]
        return f"has no unit in both {src} and {tgt}; its texts are in {join_names(tags)}"


def _is_same(tag: str, other: str) -> bool:
    """Return whether two tags are the same language, however they are written."""
    return Language.from_name(tag) == Language.from_name(other)


def _script(tag: str) -> str:
    """Return the script of a tag, such as Hant; empty if it has none."""
    language = Language.from_name(tag)
    return language.script if language else ""
