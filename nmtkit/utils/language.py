"""Languages: tags as users and files write them, parsed once for all modules."""

import re
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any

from nmtkit.utils.errors import UserError
from nmtkit.utils.text import quote

# ISO 15924: scripts whose words have no spaces between them.
UNSPACED_SCRIPTS = re.compile("Bopo|Han[ist]|Hira|Hrkt|Jpan|Kana|Khmr|Laoo|Mymr|Thai|Tibt")
# Tags that can hardly mean anything else: "en", "pt-BR", "eng_Latn"; but not "key" or "doc_id".
CLEAR_TAG = re.compile(
    r"[A-Za-z]{2}|[a-z]{2}[-_]([A-Z]{2}|\d{3})|[A-Za-z]{2,3}[-_][A-Z][a-z]{3}([-_][A-Z]{2})?"
)
WORD = re.compile(r"[^\W_]+")
MAX_NAME_WORDS = 6  # of a column that names a language
# Languages that langcodes lacks or treats otherwise: standards of macrolanguages; Twi (to it,
# Akan); "pes" is "fa-IR", as "prs" (Dari) is "fa-AF".
MACROLANGUAGES = {"nb": "no", "ory": "or"}
OWN_CODES = {"tw": "tw", "twi": "tw"}
TERRITORIES = {"pes": "IR"}
NOT_LANGUAGES = (None, "und", "mul", "mis", "zxx")  # undetermined, multiple, uncoded, no content
MAX_NAME_LENGTH = 60
NAME_WITH_REGION = re.compile(r"(.+?)\s*[(\uff08](.+)[)\uff09]")  # "French (Canada)"


@dataclass(frozen=True)
class Language:
    """A language or a variant of it; two are equal if they are the same, however they are written.

    Attributes:
        tag: The tag as it was written: "fr-CA", "FRA", "fra_Latn".
        code: Its code in Moses and sacreBLEU: two letters (ISO 639-1), or three if it has no code
            of two. A macrolanguage stands for its standard: "zh" for "cmn", "et" for "ekk".
        script: ISO 15924; the usual script of the language if the tag names none.
        variant: Of the code: "CA", "Latn" (for "sr-Latn"), "Hant_TW"; empty for "fra_Latn".
        subtags: Subtags that narrow the code, if the tag names them: script, territory (with its
            script), variants.
    """

    tag: str = field(compare=False)
    code: str
    script: str
    variant: str = ""
    subtags: frozenset[str] = field(default=frozenset(), compare=False)

    @classmethod
    def of(cls, tag: str) -> "Language":
        """Return the language of a tag: BCP 47, ISO 639 with two or three letters, or a locale.

        Raises:
            UserError: It is not such a tag.
        """
        language = parse_tag(tag)
        if language is None:
            named = cls.from_name(tag)
            example = "one such as pt-BR" if named in (None, TREE) else str(named)
            raise UserError(f"{quote(tag)} is not a language code; use {example}")
        return language

    @classmethod
    def from_name(cls, text: str) -> "Language | None":
        """Return the language whose tag, or English or native name, `text` is exactly."""
        text = text.strip()
        if text == TREE.tag:
            return TREE
        return parse_tag(text) or parse_tag(find_tag(text) or "")

    @classmethod
    def shown_by(cls, text: str) -> "Language | None":
        """Return the language that `text` is exactly, unless it may well mean something else.

        Of tags of three letters, only other codes of languages with two letters count ("deu"), and
        a territory only if it is written as in a locale: "key" and "doc_id" are columns.
        """
        text = text.strip()
        language = cls.from_name(text)
        if language is None or CLEAR_TAG.fullmatch(text) or cls.is_name_in_words(text):
            return language
        return language if len(text) == 3 and len(language.code) == 2 else None

    @classmethod
    def within(cls, text: str) -> dict[str, "Language"]:
        """Return the languages that a text may name, by the part of the text.

        "pt-BR" is one and nothing else. "en_id" may be English of Indonesia, or the ids of English
        text: it is, and has, several. Sentences name none.
        """
        language = cls.from_name(text)
        parts = {} if language is None else {text: language}
        spans = [word.span() for word in WORD.finditer(text)]
        if cls.shown_by(text) is not None or len(spans) > MAX_NAME_WORDS:
            return parts
        for first, (start, _) in enumerate(spans):
            for _, end in spans[first : first + 3]:  # up to "zh_Hant_TW"
                language = cls.from_name(text[start:end])
                if language is not None:
                    parts[text[start:end]] = language
        return parts

    @classmethod
    def is_name_in_words(cls, text: str) -> bool:
        """Return whether `text` is the name of a language, such as "German", and not a tag."""
        return parse_tag(text.strip()) is None and cls.from_name(text) is not None

    @classmethod
    def parse_pair(cls, text: str) -> tuple["Language", "Language"]:
        """Return the two languages of "en-de" or "zh-TW-en".

        Raises:
            UserError: The text cannot be split at a hyphen into two tags, or at several.
        """
        pairs = []
        for hyphen in re.finditer("-", text):
            src = parse_tag(text[: hyphen.start()])
            tgt = parse_tag(text[hyphen.end() :])
            if src and tgt:
                pairs.append((src, tgt))
        if len(pairs) != 1:
            raise UserError(
                f"{quote(text)} is not a language pair; expected SRC-TGT, such as en-de"
            )
        return pairs[0]

    @property
    def is_spaced(self) -> bool:
        """Whether spaces separate words."""
        return UNSPACED_SCRIPTS.fullmatch(self.script) is None

    @property
    def canonical(self) -> str:
        """The same string for all tags of this language, such as "fr" or "zh_Hant_TW"."""
        return f"{self.code}_{self.variant}" if self.variant else self.code

    @property
    def english_name(self) -> str:
        """Its name, such as "Portuguese (Brazil)"."""
        import langcodes  # slow to import

        return langcodes.Language.get(self.tag).display_name()

    def __str__(self) -> str:
        """Return the tag as it was written."""
        return self.tag

    def matches(self, other: "Language") -> bool:
        """Return whether one is the other or a more general form of it (RFC 4647, lookup)."""
        own_code = MACROLANGUAGES.get(self.code, self.code)
        other_code = MACROLANGUAGES.get(other.code, other.code)
        is_general = self.subtags <= other.subtags or other.subtags <= self.subtags
        return own_code == other_code and is_general

    def includes(self, other: "Language") -> bool:
        """Return whether this is the macrolanguage of another one, such as "no" of "nob"."""
        return MACROLANGUAGES.get(other.code) == self.code and self.subtags <= other.subtags

    def distance(self, other: "Language") -> int:
        """Return how far a language that matches is away.

        Returns:
            0 for the same subtags, 1 for the same language ("zh" and "zh-Hans"), 2 for the same
            code, 3 for another code.
        """
        if self.code != other.code:
            return 3
        if self.subtags == other.subtags:
            return 0
        return 1 if self == other else 2


TREE = Language("tree", "tree", "")  # the target of a parser (section 6.3)


def is_group(language: Language) -> bool:
    """Return whether a language is a group of languages (ISO 639-5), such as "gmw".

    The registry of IANA (part of langcodes) calls them collections.
    """
    from langcodes.registry_parser import parse_registry  # slow, and only import needs it

    for entry in parse_registry():  # type: ignore[no-untyped-call]
        if entry.get("Subtag") == language.code and entry.get("Type") == "language":
            return bool(entry.get("Scope") == "collection")
    return False


@lru_cache(maxsize=2**12)
def parse_tag(tag: str) -> Language | None:
    """Return the language of a tag, like `Language.of`, or None."""
    import langcodes  # slow, and a translation does not need it

    if not re.fullmatch(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]{1,8})*", tag):
        return None
    try:
        individual = langcodes.Language.get(tag)
    except ValueError:  # langcodes.LanguageTagError
        return None
    resolved = individual.prefer_macrolanguage()
    code = OWN_CODES.get(re.split("[-_]", tag.lower())[0], resolved.language)
    if code in NOT_LANGUAGES or resolved.extlangs or not resolved.is_valid():
        return None

    # The variant names the script only if it is not the usual one.
    usual_script = (
        langcodes.Language.make(language=code, territory=resolved.territory).maximize().script
    )
    script = resolved.script
    if (script, usual_script) == ("Hang", "Kore"):
        # All Korean is written in Hangul (FLORES-200), usually with some Han characters (CLDR).
        script = usual_script
    variants = resolved.variants or []
    variant_parts = [script if script != usual_script else None, resolved.territory, *variants]

    # A territory implies its usual script: "zh-TW" is traditional.
    territory = resolved.territory or TERRITORIES.get(str(individual.language))
    narrowing_script = script or (usual_script if territory else None)
    subtags = [narrowing_script, territory, *variants]
    return Language(
        tag,
        str(code),
        script or resolved.maximize().script or "",
        variant="_".join(part for part in variant_parts if part),
        subtags=frozenset(subtag for subtag in subtags if subtag),
    )


# English and native names; only exact ones are found


@lru_cache(maxsize=2**12)
def find_tag(text: str) -> str | None:
    """Return the tag of an English or native name, also with a region: "Serbian (Latin)"."""
    if len(text) > MAX_NAME_LENGTH or not text.isprintable():
        return None
    name = text
    region = None
    parts = NAME_WITH_REGION.fullmatch(text)
    if parts:
        name, region = parts.groups()
    # A name is native if it is a name in the language that it stands for.
    native_lang = (_code("language", name, "und") or "").partition("-")[0]
    code = _code("language", name, "en") or _code("language", name, native_lang)
    if code is None or region is None:
        return code
    for lang in ("en", native_lang):
        for category in ("territory", "script"):
            subtag = _code(category, region, lang)
            if subtag:
                return f"{code}-{subtag}"
    return None


def find_tag_in(text: str, lang: str) -> str | None:
    """Return the tag of a name of a language in another language: "Englisch" in German ("de")."""
    return _code("language", text.strip(), lang)


def _code(category: str, name: str, lang: str) -> str | None:
    """Return the code of exactly this name, or None; `langcodes.find` would also guess.

    Args:
        category: "language", "territory" or "script".
        lang: The language that the name is in; "und" stands for all.
    """
    from language_data.names import get_trie_value

    key = name.casefold().replace("-", " ").replace("\u2019", "'")  # as the keys are written
    codes = _codes_by_name(category, lang)
    return str(get_trie_value(codes, key)) if key in codes else None


@cache
def _codes_by_name(category: str, lang: str) -> Any:
    from language_data.names import load_trie
    from language_data.util import data_filename

    path = data_filename(f"trie/{lang}/name_to_{category}.marisa")
    return load_trie(path) if path.is_file() else {}
