"""English and native names of languages; only exact names are found."""

import re
from functools import cache, lru_cache
from typing import Any

MAX_NAME_LENGTH = 60
NAME_WITH_REGION = re.compile(r"(.+?)\s*[(\uff08](.+)[)\uff09]")  # "French (Canada)"


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
