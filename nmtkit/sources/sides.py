"""The source and the target among the texts of a file, by their names.

Names are those of columns or keys, suffixes, or tags of languages. `find_sides` is the rule for all
of them; `Variants` applies it to every unit of a text in several languages.
"""

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

from nmtkit.utils.errors import UserError
from nmtkit.utils.language import WORD, Language
from nmtkit.utils.text import counted, join_names, quote, shorten

SIDE_WORDS = (("src", "source"), ("tgt", "target", "trg"))
# Names of columns with the language or direction of a row; "source" may depend on it.
ROW_LANGUAGE = re.compile(
    r"((src|source|tgt|target|trg)[ _-]?)?(lang(uage)?s?|locale)([ _-]?(pair|code))?|direction|lp"
)
MAX_NAME_CHARACTERS = 40  # of a name in a message

Positions = tuple[int, int]  # of source and target
TaggedText = tuple[str, str]  # the tag of a language, and a text


class UnclearColumnsError(UserError):
    """The names of columns do not show which two are the sides."""


def find_sides(
    names: Sequence[str], langs: Sequence[Language], *, in_words: bool = False
) -> list[list[int]]:
    """Find the names that may be the source, and those that may be the target, by position.

    This is the only rule of detection:

    1. A name belongs to a side if it is a word for it (`src`, `source`; `tgt`, `target`, `trg`) or
       its language: a tag, or the English or native name.
    2. A column or key in a file of the user may also contain the language as a word (`in_words`),
       like `en_text`, unless another one is its name in full, like `English`.
    3. The closest languages exclude the others, and exactly one name for each side must remain.

    Returns:
        The positions of the candidates for source and target.
    """
    languages = []
    for name in names:
        parts = Language.within(name) if in_words else {name: Language.from_name(name)}
        # Some words for sides are also tags: "tgt" is Central Tagbanwa.
        languages.append([found for found in parts.values() if found and not is_side_word(name)])
    sides = []
    for words, lang, other in zip(SIDE_WORDS, langs, reversed(langs), strict=True):
        distances = {}
        for position, found in enumerate(languages):
            # "en_de" is not one side, and "fr_ca" not French of France, whose word it has.
            is_other = any(one.code == lang.code and not lang.matches(one) for one in found)
            if any(map(lang.matches, found)) and not is_other and other not in found:
                distances[position] = min(map(lang.distance, found))
                # The user of a file with "no" and "nob" may mean either by Norwegian.
                if in_words and any(map(lang.includes, found)):
                    distances[position] = min(distances[position], 1)
        closest = min(distances.values(), default=0)
        # "id" and "ind_Latn" are the same language; "zh" could be "zh-Hans" as well as "zh-Hant".
        limit = 1 if closest == 0 else max(closest, 2)
        chosen = [position for position, distance in distances.items() if distance <= limit]
        # "German" comes before "German comment"; but "de" before "de_text" may be a coincidence.
        if any(Language.is_name_in_words(names[position]) for position in chosen):
            chosen = [p for p in chosen if Language.from_name(names[p]) is not None]
        named = [position for position, name in enumerate(names) if plain(name) in words]
        sides.append(sorted(named + chosen))
    return sides


def choose_columns(
    names: Sequence[str],
    langs: Sequence[Language],
    where: str,
    remedy: str = "use one of these as the language",
    labels: Sequence[str] = (),
    *,
    in_words: bool = False,
) -> Positions:
    """Return the positions of the two sides.

    Args:
        names: Names of columns, keys or tags.
        langs: The languages of source and target.
        where: The text that has these names, for messages.
        remedy: What the user can do if the sides are unclear.
        labels: The names in messages, if `names` are parts of longer ones.
        in_words: See `find_sides`.

    Raises:
        UnclearColumnsError: A side has no candidate or several, or the two have other words.
        UserError: The direction may differ by row.
    """
    sides = find_sides(names, langs, in_words=in_words)
    labels = [shorten(label, MAX_NAME_CHARACTERS) for label in labels or names]
    all_names = f"(it has {join_names(labels)}); {remedy}"
    for lang, positions in zip(langs, sides, strict=True):
        if len(positions) > 1:
            candidates = join_names(labels[position] for position in positions)
            raise UnclearColumnsError(
                f"{where} has several candidates for {lang}: {candidates} {all_names}"
            )
    # One name is never both sides, even if it matches both: pt matches pt-BR and pt-PT.
    if not all(sides) or sides[0] == sides[1]:
        raise UnclearColumnsError(
            f"{where} does not have both {langs[0]} and {langs[1]} {all_names}"
        )
    src, tgt = (names[position] for [position] in sides)
    # "is_valid" is not the Icelandic of "en", but "is_text" is that of "en_text".
    if in_words and _other_words(src, langs[0]) != _other_words(tgt, langs[1]):
        raise UnclearColumnsError(f"{where} has {src} and {tgt}, no pair {all_names}")
    if is_side_word(src) or is_side_word(tgt):
        check_direction(names, where, remedy)
    return sides[0][0], sides[1][0]


def _other_words(name: str, lang: Language) -> list[str]:
    """Return the words of a name, in lower case, that name neither its language nor a side."""
    parts = [part for part, found in Language.within(name).items() if lang.matches(found)]
    rest = name.replace(max(parts, key=len, default=""), "")
    return [word for word in WORD.findall(plain(rest)) if not is_side_word(word)]


def check_direction(names: Sequence[str], where: str, remedy: str) -> None:
    """Refuse columns that hold languages of rows; arguments are those of `choose_columns`."""
    row_languages = [name for name in names if ROW_LANGUAGE.fullmatch(plain(name))]
    if row_languages:
        raise UserError(
            f"{where} has {join_names(row_languages)}, so the direction may differ by row; "
            f"write one file per direction, or if all rows have the same, {remedy}"
        )


@lru_cache(maxsize=2**12)
def is_side(name: str, langs: tuple[Language, Language]) -> bool:
    """Return whether a name is a candidate for one side or the other."""
    return any(find_sides([name], langs))


def are_swapped(names: Sequence[str], langs: Sequence[Language]) -> bool:
    """Return whether names for source and target are the languages of target and source."""
    return bool(named_languages(names)) and find_sides(names, langs) == [[1], [0]]


def named_languages(names: Sequence[str]) -> list[Language]:
    """Return the different languages that names are exactly, in order."""
    languages = [Language.from_name(name) for name in names if not is_side_word(name)]
    return list(dict.fromkeys(language for language in languages if language is not None))


def is_side_word(name: str) -> bool:
    """Return whether a name is a side in any language, such as "source"."""
    return any(plain(name) in words for words in SIDE_WORDS)


def plain(name: str) -> str:
    """Return a name for comparisons: without case and outer spaces."""
    return name.strip().lower()


# Units of several languages


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
                chosen = Language.from_name(tag)
                different = set()  # texts in this language, however its tag is written
                for other_tag, text in texts:
                    if Language.from_name(other_tag) == chosen and text.strip():
                        different.add(text)
                self._repeated[str(lang)] += len(different) > 1
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


def _script(tag: str) -> str:
    """Return the script of a tag, such as Hant; empty if it has none."""
    language = Language.from_name(tag)
    return language.script if language else ""
