"""Formats of text files that are not plain text, recognized by many of their lines.

The first line is never enough: plain text may begin with "[Applause]", "<BT>" or "Yes, sir". Keys
at the start of lines, such as numbers and times, are found in the same way.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from nmtkit.utils.text import counted, quote

N_LINES = 100  # that are examined, the first ones
MIN_SHARE = 0.8  # share of lines with the pattern of a format in which all lines have it
MIN_LINES = 5  # in fewer lines, a common pattern may be a coincidence
XML = "XML"
SGML = "SGML"
JSON = "JSON"
TALKS = "text with lines of tags, such as IWSLT's talks"

_TAG = re.compile(r"</?[A-Za-z!?][^<>]*>")
# An empty element ends at the end of a line only: "<BT/>" may stand before a sentence.
_END_TAG = re.compile(r"</[^<>]*>|<[^<>]*/>\s*$")
_XML_START = re.compile(r"\s*<(\?xml|!DOCTYPE|html|srcset|refset|tstset)\b", re.IGNORECASE)
_MIN_TAGGED = 0.2  # share of lines with a tag after such a start; text may span several lines
_MIN_ENDS = 0.5  # end tags per line that begins with a tag

_SUBTITLES = re.compile(
    r"\d{1,3}:\d\d(:\d\d)?[,.]\d{1,3}[ \t]+-->[ \t]+\d"  # .srt and .vtt
    r"|\d+:\d\d:\d\d\.\d{3},\d+:\d\d:\d\d\.\d{3}$"  # .sbv
    r"|Dialogue: [^,]*,\d+:\d\d:\d\d\.\d\d,"  # .ass and .ssa
    r"|\{\d+\}\{\d+\}."  # .sub
)
_MIN_TIMES = 0.1  # share of lines with times in subtitles; the others are text
_GETTEXT = re.compile(r'(msgid|msgstr(\[\d+\])?)[ \t]+"')
_MIN_MESSAGES = 0.3  # share of such lines; gettext also has comments and continued lines
_PROPERTY = re.compile(r'("[^"]+"|[\w.\-\[\]]+)[ \t]*=')
_PROPERTY_WITH_COLON = re.compile(r"[\w.\-\[\]]+[ \t]*[=:]")
_COMMENT = re.compile(r"[#!;]|//|/\*|\[[^\]]*\]$")  # or the name of a section
_JSON_START = re.compile(r"\s*(?=[\[{])")
_YAML_KEY = re.compile(r"""(- )?("[^"]*"|'[^']*'|[\w.\-]+):( |$)""")
_YAML_SUFFIXES = (".yml", ".yaml")
_MIN_KEYS = 0.2  # share of lines with a key in YAML, whose values may have several lines
_MIN_INDENTED = 0.5  # share of indented lines in YAML without its suffix: "Alice: Hello" is text

# Lines about the talk in training text of IWSLT, or about the document.
_TALK_NAMES = "url|keywords|speaker|talkid|title|description|reviewer|translator|doc"
_TALK_TAG = re.compile(rf"</?({_TALK_NAMES})\b[^<>]*>(.*</\1>)?\s*$")

# Keys at the start of lines: numbers, times, names. In legal text, many paragraphs are numbered.
_MIN_KEYED_PAIRS = 5  # fewer may be a coincidence
_MIN_KEYED_SHARE = 0.8  # of the pairs
# A first word with a digit, such as "12." or "[00:10]"; or a short beginning with a delimiter, such
# as "'key' =>" or "12|".
_KEYS = (re.compile(r"\s*\S*\d\S*(?=\s)"), re.compile(r"\s*[^=:|;,\t]{1,80}(?:=>|[=:|;,\t])"))


@dataclass(frozen=True)
class Format:
    """A format that is not plain text, and what the user can do with it.

    Attributes:
        name: Its name in messages.
        remedy: How to train on it.
        to_plain: How to get plain text of it.
    """

    name: str
    remedy: str
    to_plain: str = "copy its sentences to a text file, one per line"


_JSON_FORMAT = Format(JSON, "if each line is an object, use the key jsonl in a recipe")
_SUBTITLES_FORMAT = Format(
    "subtitles",
    "pair both languages by their times, as translate-toolkit does: "
    "`sub2po -t en.srt de.srt out.po`, `po2tmx -l de out.po out.tmx`; then use --tmx",
    "remove numbers and times, and join the lines of a sentence",
)
_GETTEXT_FORMAT = Format(
    "gettext (.po)",
    "convert it with translate-toolkit: `po2tmx -l de in.po out.tmx`; then use --tmx",
)
_PROPERTIES_FORMAT = Format(
    "keys and values (.properties, .ini, .strings)",
    "pair both languages by their keys, as translate-toolkit does: "
    "`prop2po -t en.properties de.properties out.po`, `po2tmx -l de out.po out.tmx`; then use "
    "--tmx",
)
_TALKS_FORMAT = Format(
    TALKS,
    f"remove them from both files: `grep -vE '^</?({_TALK_NAMES})[ >]' FILE > NEW_FILE`",
    f"remove them: `grep -vE '^</?({_TALK_NAMES})[ >]' FILE > NEW_FILE`",
)
_YAML_FORMAT = Format("YAML", "write the texts of its keys to one file for each language")
_XLIFF_FORMAT = Format(
    "XLIFF (XML)",
    "convert it with translate-toolkit: `xliff2po in.xlf out.po`, `po2tmx -l de out.po out.tmx`; "
    "then use --tmx",
)


def detect_format(text: str, suffix: str = "") -> Format | None:
    """Return the format of a text, or None if it may be plain text.

    Args:
        text: The first lines of the text, or all of them.
        suffix: The suffix of its name. It is not enough: `yml` and `srt` are also tags of
            languages.
    """
    if is_markup(text):
        return _markup_format(text)
    # All formats are tried, from those with the clearest signs to those with the weakest.
    lines = first_lines(text)
    stripped = [line.strip() for line in lines]
    matches = (
        (_JSON_FORMAT, _is_json(text)),
        (_SUBTITLES_FORMAT, _has_many(_SUBTITLES, stripped, _MIN_TIMES)),
        (_GETTEXT_FORMAT, _has_many(_GETTEXT, stripped, _MIN_MESSAGES)),
        (_PROPERTIES_FORMAT, _is_properties(stripped, suffix)),
        (_TALKS_FORMAT, _count(_TALK_TAG, stripped) > 1),
        (_YAML_FORMAT, _is_yaml(lines, suffix)),
    )
    for found, is_match in matches:
        if is_match:
            return found
    return None


def first_lines(text: str) -> list[str]:
    """Return the first lines of a text that are not blank, without carriage returns."""
    lines: list[str] = []
    for line in text.split("\n"):
        if line.strip() and len(lines) < N_LINES:
            lines.append(line.removesuffix("\r"))
    return lines


def is_markup(text: str) -> bool:
    """Return whether a text is XML, SGML or HTML: lines of tags, and many end tags."""
    lines = first_lines(text)
    n_tagged = 0  # lines that begin with a tag
    n_tags = 0
    n_ends = 0
    for line in lines:
        n_tagged += _TAG.match(line.lstrip()) is not None
        n_tags += len(_TAG.findall(line))
        n_ends += len(_END_TAG.findall(line))
    if _XML_START.match(text):
        # After such a strong sign, text may span many lines between tags.
        return n_tags > 1 and n_tagged >= _MIN_TAGGED * len(lines)
    return n_tagged > MIN_SHARE * len(lines) and n_ends >= _MIN_ENDS * n_tagged


def _markup_format(text: str) -> Format:
    """Return the format of a text of tags."""
    # nmtkit reads SGML if the suffix of the file is .sgm.
    names = {name.lower() for name in re.findall(r"<([A-Za-z]\w*)", text)}
    if "seg" in names and not names & {"tmx", "xliff"}:
        return Format(SGML, "add .sgm to its name")
    if "xliff" in names:
        return _XLIFF_FORMAT
    return Format(XML, "extract its text")


def _is_json(text: str) -> bool:
    """Return whether nearly all of a text is objects or arrays of JSON; the last may be cut."""
    decoder = json.JSONDecoder()
    position = 0  # after the last value
    try:
        while start := _JSON_START.match(text, position):
            _, position = decoder.raw_decode(text, start.end())
    except json.JSONDecodeError as error:
        position = error.pos  # up to here, it is JSON
    except (RecursionError, ValueError):  # nested too deeply, or a number of thousands of digits
        return False
    return position > MIN_SHARE * len(text.rstrip()) > 0


def _is_properties(lines: Sequence[str], suffix: str) -> bool:
    """Return whether nearly all lines but comments are keys with values."""
    # Only .properties has colons between keys and values; a dialogue has them too.
    entries = [line for line in lines if not _COMMENT.match(line)]
    pattern = _PROPERTY_WITH_COLON if suffix == ".properties" else _PROPERTY
    return len(entries) >= MIN_LINES and _share(pattern, entries) > MIN_SHARE


def _is_yaml(lines: Sequence[str], suffix: str) -> bool:
    """Return whether nearly all lines but comments are keys, or indented below one."""
    entries = [line for line in lines if not line.lstrip().startswith(("#", "---"))]
    if len(entries) < MIN_LINES:
        return False
    n_keys = 0
    n_indented = 0
    n_structured = 0  # keys, and the indented lines of a value
    for line in entries:
        is_key = _YAML_KEY.match(line.strip()) is not None
        is_indented = line.startswith(" ")
        n_keys += is_key
        n_indented += is_indented
        n_structured += is_key or is_indented
    # Without the suffix, a play with the names of its speakers is text.
    if suffix in _YAML_SUFFIXES and n_keys >= _MIN_KEYS * len(entries):
        return n_structured > MIN_SHARE * len(entries)
    return n_keys > MIN_SHARE * len(entries) and n_indented > _MIN_INDENTED * len(entries)


def _has_many(pattern: re.Pattern[str], lines: Sequence[str], min_share: float) -> bool:
    """Return whether at least two lines, and at least a share of all, begin with a pattern.

    Args:
        min_share: The share, from 0 to 1.
    """
    return _count(pattern, lines) > 1 and _share(pattern, lines) >= min_share


def _count(pattern: re.Pattern[str], lines: Sequence[str]) -> int:
    """Return the number of lines that begin with a pattern."""
    return sum(pattern.match(line) is not None for line in lines)


def _share(pattern: re.Pattern[str], lines: Sequence[str]) -> float:
    """Return the share of lines that begin with a pattern, from 0 to 1."""
    return _count(pattern, lines) / len(lines) if lines else 0.0


# Keys at the start of lines


def find_keys(pairs: Sequence[tuple[str, str]]) -> str | None:
    """Describe the keys that begin both sides of nearly all pairs, or return None.

    Args:
        pairs: Lines and their translations. Pairs of equal lines do not count.
    """
    n_pairs = 0
    found: list[tuple[int, str]] = []  # numbers of pairs, and keys
    for number, (src, tgt) in enumerate(pairs, 1):
        if src.strip() == tgt.strip():
            continue
        n_pairs += 1
        for pattern in _KEYS:
            key = pattern.match(src)
            if key is not None and tgt.startswith(key[0]):
                found.append((number, key[0].strip()))
                break
    if len(found) < _MIN_KEYED_PAIRS or len(found) <= _MIN_KEYED_SHARE * n_pairs:
        return None
    number, key_text = found[0]
    return f"{len(found):,} of {counted(n_pairs, 'pair')}, pair {number:,}: {quote(key_text)}"
