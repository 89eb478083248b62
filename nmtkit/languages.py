"""Languages: a tag as people and files write it, parsed once into what every module can use."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from nmtkit.errors import UserError, shown

# ISO 15924: scripts whose words have no spaces between them.
_UNSPACED = re.compile("Bopo|Han[ist]|Hira|Hrkt|Jpan|Kana|Khmr|Laoo|Mymr|Thai|Tibt")
_NAME = re.compile(r"[^\W\d_][\w ()'\u2019-]{1,39}")  # of a language, such as "Portuguese (Brazil)"
_MAX_HINT_PARTS = 4  # of a name; more are a sentence


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

    @classmethod
    def of(cls, tag: str) -> "Language":
        """Return the language of a tag: BCP 47, ISO 639 with two or three letters, or a locale."""
        if language := parsed(tag):
            return language
        raise UserError(f"{shown(tag)} is not the code of a language; give one such as pt-BR")

    @classmethod
    def named(cls, text: str) -> "Language | None":
        """Return the language whose tag, or name in any language, `text` is: "DE", "German"."""
        return _named(text.strip())

    @classmethod
    def hinted(cls, text: str) -> "Language | None":
        """Return the language that a name is, or ends or begins with: "text_en", "Source (en)"."""
        parts = [part for part in re.split(r"[\s()._:-]+", text) if part]
        if not parts or len(parts) > _MAX_HINT_PARTS:
            return cls.named(text)
        tails = ("_".join(parts[start:]) for start in range(1, len(parts)))
        found = map(cls.named, (text, *tails, parts[0]))
        return next((language for language in found if language), None)

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

    def contradicts(self, other: "Language") -> bool:
        """Return whether no text can be in both: other languages, or variants of one."""
        are_variants = bool(self.variant and other.variant) and self != other
        return self.code != other.code or self.script != other.script or are_variants

    def among(self, known: Iterable["Language"]) -> list["Language"]:
        """Return the one of `known` that it is, or else all variants of it if it names none."""
        known = list(known)
        exact = [each for each in known if each == self]
        return exact or [each for each in known if not self.variant and each.code == self.code]


TREE = Language("tree", "tree", "")  # what a parser translates into (section 6.3)


@lru_cache(maxsize=2**12)
def parsed(tag: str) -> Language | None:
    """Return the language of a tag, as `Language.of` does, or None."""
    import langcodes  # slow, and a translation does not need it

    if not re.fullmatch(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]{1,8})*", tag):
        return None
    try:
        found = langcodes.Language.get(tag).prefer_macrolanguage()
    except ValueError:  # langcodes.LanguageTagError
        return None
    code = found.language
    if code in (None, "und", "mul", "mis", "zxx") or found.extlangs or not found.is_valid():
        return None
    usual = langcodes.Language.make(language=code, territory=found.territory).maximize().script
    script = found.maximize().script or ""
    parts = (found.script if found.script != usual else None, found.territory)
    variant = "_".join(filter(None, (*parts, *(found.variants or ()))))
    return Language(tag, str(code), script, variant)


@lru_cache(maxsize=2**12)
def _named(text: str) -> Language | None:
    import langcodes

    if text == TREE.tag:
        return TREE
    if language := parsed(text):
        return language
    if not _NAME.fullmatch(text) or (len(text) < 4 and text.isascii()):  # "id" and "ref" are none
        return None
    try:
        return parsed(langcodes.find(text).to_tag())
    except LookupError:
        return None
