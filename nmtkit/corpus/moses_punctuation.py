r"""The two punctuation scripts of Moses: normalize-punctuation.perl and its Unicode companion.

Both are tables of replacements that follow the scripts as they have been since 2019 (Moses
3445289); the normalizer of sacremoses differs from them in one German or French line of 30.
"""

import re
from functools import cache

Rule = tuple[str, str]  # a pattern and its replacement

# normalize-punctuation.perl, in its order, without the rules that earlier ones make superfluous.
# If two matches share a character, as in "l’a’b", only the first counts: a look-ahead instead of a
# group would be wrong. "  +" is the script's " +" without the matches that change nothing.
COMMON_RULES: tuple[Rule, ...] = (
    (r"\r", ""),
    (r"\(", " ("),
    (r"\)", ") "),
    (r"  +", " "),
    (r"\) ([.!:?;,])", r")\1"),
    (r"\( ", "("),
    (r" \)", ")"),
    (r"(\d) %", r"\1%"),
    (r" ([:;])", r"\1"),
    (r"`", "'"),
    (r"''", ' " '),
    (r"[„“”]", '"'),
    (r"–", "-"),
    (r"—", " - "),
    (r"  +", " "),
    (r"´", "'"),
    (r"([a-zA-Z])’([a-zA-Z])", r"\1'\2"),
    (r"[‘‚]", "'"),
    (r"’", '"'),
    (r"''", '"'),
    (r"…", "..."),
    (r"\u00a0«\u00a0", ' "'),
    (r"«\u00a0?", '"'),
    (r"\u00a0»\u00a0", '" '),
    (r"\u00a0?»", '"'),
    (r"\u00a0%", "%"),
    (r"nº\u00a0", "nº "),
    (r"\u00a0([:?!;])", r"\1"),
    (r"\u00a0(ºC|cm)", r" \1"),
    (r",\u00a0", ", "),
    (r"  +", " "),
)
ENGLISH_QUOTE_RULES: tuple[Rule, ...] = ((r'"([,.]+)', r'\1"'),)
EUROPEAN_QUOTE_RULES: tuple[Rule, ...] = (
    (r',"', '",'),
    # The script intends to keep a final `."`, but its [^<] matches the end of the line. Full stops
    # without a quotation mark after them match too and stay as they are: otherwise all of them
    # would be tried with everything that follows.
    (r'(\.+)(")(\s*[^<]|\Z)|(\.+)', r"\2\1\3\4"),
)
SPACE_IN_NUMBER = r"(\d)\u00a0(\d)"
CZECH = ("cs", "cz")
DECIMAL_COMMA = ("de", "es", "cz", "cs", "fr")  # the languages that write "1,5"

# replace-unicode-punctuation.perl
UNICODE_FULL_STOP = re.compile("[。．] *")
UNICODE_PUNCTUATION = str.maketrans(
    {
        "０": "0",
        "１": "1",
        "２": "2",
        "３": "3",
        "４": "4",
        "５": "5",
        "６": "6",
        "７": "7",
        "８": "8",
        "９": "9",
        "，": ",",
        "、": ",",
        "∶": ":",
        "：": ":",
        "；": ";",
        "？": "?",
        "！": "!",
        "（": "(",
        "）": ")",
        "【": "[",
        "】": "]",
        "〈": "<",
        "〉": ">",
        "％": "%",
        "～": "~",
        "━": "-",
        "’": "'",
        "“": '"',
        "”": '"',
        "「": '"',
        "」": '"',
        "《": '"',
        "》": '"',
        "…": "...",
    }
)


def replace_unicode_punctuation(line: str) -> str:
    """Replace the characters of replace-unicode-punctuation.perl by ASCII: “ and …, not „ and –."""
    return UNICODE_FULL_STOP.sub(". ", line).translate(UNICODE_PUNCTUATION)


def normalize_punctuation(line: str, lang: str) -> str:
    """Normalize a line like normalize-punctuation.perl; its space after a final parenthesis stays.

    Args:
        lang: A two-letter code, as in `normalize-punctuation.perl -l`.
    """
    for pattern, replacement in _rules(lang):
        line = pattern.sub(replacement, line)
    return line


@cache
def _rules(lang: str) -> list[tuple[re.Pattern[str], str]]:
    """Return the compiled rules of a language, in the order of the script."""
    rules = list(COMMON_RULES)
    if lang == "en":
        rules += ENGLISH_QUOTE_RULES
    elif lang not in CZECH:
        rules += EUROPEAN_QUOTE_RULES
    rules.append((SPACE_IN_NUMBER, r"\1,\2" if lang in DECIMAL_COMMA else r"\1.\2"))
    # The script reads bytes, so its \d and \s match only ASCII.
    return [(re.compile(pattern, re.ASCII), replacement) for pattern, replacement in rules]
