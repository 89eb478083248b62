"""Languages: a tag as people and files write it, parsed once into what every module can use."""

import re
from dataclasses import dataclass, field
from functools import lru_cache

from nmtkit.utils.errors import UserError, shown
from nmtkit.utils.language_names import tag_of_name

# ISO 15924: scripts whose words have no spaces between them.
_UNSPACED = re.compile("Bopo|Han[ist]|Hira|Hrkt|Jpan|Kana|Khmr|Laoo|Mymr|Thai|Tibt")
# What langcodes lacks: standards of macrolanguages; Twi besides Akan; as "prs" (Dari) is "fa-AF".
_MACROLANGUAGES = {"nb": "no", "ory": "or"}
_OWN_CODES = {"tw": "tw", "twi": "tw"}
_TERRITORIES = {"pes": "IR"}  # Iranian Persian


@dataclass(frozen=True)
class Language:
    """A language or a variant of it; two are equal if they are the same however they are written.

    The code is what Moses and sacreBLEU know it by: two letters (ISO 639-1), or three if it has no
    code of two. A macrolanguage stands for its standard: "zh" for "cmn", "et" for "ekk".
    """

    tag: str = field(compare=False)  # as it was written: "fr-CA", "FRA", "fra_Latn"
    code: str
    script: str  # ISO 15924; that in which it is usually written if the tag names none
    variant: str = ""  # of the code: "CA", "Latn" (of "sr-Latn"), "Hant_TW"; none of "fra_Latn"
    # What narrows the code, if the tag names it: script, territory (with its script), variants.
    subtags: frozenset[str] = field(default=frozenset(), compare=False)

    @classmethod
    def of(cls, tag: str) -> "Language":
        """Return the language of a tag: BCP 47, ISO 639 with two or three letters, or a locale."""
        if language := parsed(tag):
            return language
        raise UserError(f"{shown(tag)} is not the code of a language; give one such as pt-BR")

    @classmethod
    def named(cls, text: str) -> "Language | None":
        """Return the language whose tag, or English or native name, `text` is exactly."""
        text = text.strip()
        return TREE if text == TREE.tag else parsed(text) or parsed(tag_of_name(text) or "")

    @classmethod
    def pair_of(cls, text: str) -> tuple["Language", "Language"]:
        """Return the two languages of "en-de" or "zh-TW-en"."""
        ends = (end.span() for end in re.finditer("-", text))
        sides = ((parsed(text[:start]), parsed(text[end:])) for start, end in ends)
        pairs = [(src, tgt) for src, tgt in sides if src and tgt]
        if len(pairs) != 1:
            raise UserError(f"{shown(text)} is not SRC-TGT; give two languages, such as en-de")
        return pairs[0]

    @property
    def is_spaced(self) -> bool:
        return _UNSPACED.fullmatch(self.script) is None

    @property
    def canonical(self) -> str:
        """Return the same string for all tags of this language, such as "fr" or "zh_Hant_TW"."""
        return "_".join(filter(None, (self.code, self.variant)))

    def __str__(self) -> str:
        return self.tag

    def matches(self, other: "Language") -> bool:
        """Return whether one is the other or a more general form of it (RFC 4647, lookup)."""
        codes = {_MACROLANGUAGES.get(code, code) for code in (self.code, other.code)}
        return len(codes) == 1 and (self.subtags <= other.subtags or other.subtags <= self.subtags)


TREE = Language("tree", "tree", "")  # what a parser translates into (section 6.3)


@lru_cache(maxsize=2**12)
def parsed(tag: str) -> Language | None:
    """Return the language of a tag, as `Language.of` does, or None."""
    import langcodes  # slow, and a translation does not need it

    if not re.fullmatch(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]{1,8})*", tag):
        return None
    try:
        individual = langcodes.Language.get(tag)
    except ValueError:  # langcodes.LanguageTagError
        return None
    found = individual.prefer_macrolanguage()
    code = _OWN_CODES.get(re.split("[-_]", tag.lower())[0], found.language)
    if code in (None, "und", "mul", "mis", "zxx") or found.extlangs or not found.is_valid():
        return None
    usual = langcodes.Language.make(language=code, territory=found.territory).maximize().script
    # All Korean is written in Hangul (FLORES-200), usually with some Han characters (CLDR).
    script = usual if (found.script, usual) == ("Hang", "Kore") else found.script
    variants = found.variants or []
    parts = (script if script != usual else None, found.territory, *variants)
    territory = found.territory or _TERRITORIES.get(str(individual.language))
    implied = usual if territory else None
    return Language(
        tag,
        str(code),
        script or found.maximize().script or "",
        variant="_".join(filter(None, parts)),
        subtags=frozenset(filter(None, (script or implied, territory, *variants))),
    )
