"""The Moses text tools, compared with the output of the Perl scripts."""

import re
import shutil
import subprocess
import time
import tomllib
import unicodedata
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path

import pytest
from system.command import read_lines

from nmtkit.corpus.moses import Tokenization
from nmtkit.corpus.moses_punctuation import normalize_punctuation, replace_unicode_punctuation
from nmtkit.corpus.moses_tokenizer import STAND_INS, _perl_classes, tokenize


def moses(lang: str, *, aggressive_hyphens: bool = False) -> Tokenization:
    return Tokenization(lang, False, False, "moses", aggressive_hyphens)


@pytest.mark.parametrize("lang", ["en", "de", "fr"])
@pytest.mark.parametrize("script", ["tok", "tok-a", "norm", "unipunct", "detok"])
def test_newstest2013_equals_perl(script: str, lang: str, shared_data: Path) -> None:
    goldens = shared_data / "goldens" / "moses"
    if script == "detok":
        source = read_lines(goldens / f"newstest2013.tok.{lang}")
    else:
        source = read_lines(shared_data / "newstest" / f"newstest2013.{lang}")[:2000]
    tools: dict[str, Callable[[str], str]] = {
        "tok": moses(lang).script_output,
        "tok-a": moses(lang, aggressive_hyphens=True).script_output,
        "norm": partial(normalize_punctuation, lang=lang),
        "unipunct": replace_unicode_punctuation,
        "detok": moses(lang).detokenize,
    }
    assert [tools[script](line) for line in source] == read_lines(
        goldens / f"newstest2013.{script}.{lang}"
    )


CASES = tomllib.loads(Path(__file__).with_name("moses.toml").read_text(encoding="utf-8"))


def cases(script: str) -> list[tuple[str, str, str]]:
    """Languages, lines, and the output of a script."""
    found = []
    for langs, pairs in CASES[script].items():
        found += [(langs, *pair) for pair in pairs]
    return found


@pytest.mark.parametrize(("lang", "line", "tokens"), cases("tokenize"))
def test_tokenize_equals_perl(lang: str, line: str, tokens: str) -> None:
    assert moses(lang).tokenize(line) == tokens


def test_tokenize_drops_spaces_of_script() -> None:
    line = "He said 'no .'"
    assert moses("en").script_output(line) == "He said &apos; no  . &apos; "
    assert moses("en").tokenize(line) == "He said &apos; no . &apos;"
    assert moses("de").script_output(line) == "He said &apos; no . &apos;"
    assert moses("de").script_output("  ") == "  "
    assert moses("de").tokenize("  ") == ""


# For each code point, whether it is in \p{IsAlpha}, \p{IsAlnum} and \p{IsN}.
PERL_CLASSES = r"""
use Unicode::UCD;
print Unicode::UCD::UnicodeVersion(), "\n";
for my $code (0 .. 0x3FFFF) {
    my $character = chr($code);
    utf8::upgrade($character);
    print $character =~ /\p{IsAlpha}/ ? 1 : 0;
    print $character =~ /\p{IsAlnum}/ ? 1 : 0;
    print $character =~ /\p{IsN}/ ? 1 : 0, "\n";
}
"""


def test_character_classes_equal_perl() -> None:
    perl = shutil.which("perl")
    if perl is None:
        pytest.skip("perl is not installed")
    output = subprocess.run(
        [perl, "-e", PERL_CLASSES], capture_output=True, check=True, encoding="ascii"
    ).stdout
    version, *flags = output.removesuffix("\n").split("\n")
    if {version, unicodedata.unidata_version} != {"14.0.0"}:
        pytest.skip("perl or Python has another version of Unicode than 14")
    for position, name in enumerate(("letters", "letters_and_digits", "numbers")):
        member = re.compile(f"[{getattr(_perl_classes(0x40000), name)}]")
        differing = []
        for code, flag in enumerate(flags):
            if (member.match(chr(code)) is not None) != (flag[position] == "1"):
                differing.append(hex(code))
        assert differing == [], name


def test_stand_ins_do_not_change_text() -> None:
    """Characters beyond U+FFFF are replaced within the tokenizer, by characters of the line too."""
    assert tokenize("\u2603\U0001f600\u2603", "en", False) == "\u2603 \U0001f600 \u2603"
    # A digit, a letter and a number in the middle of a word, among their stand-ins.
    for fast, slow in zip(
        "\u1e9d\ua000\u1946\u2188", "\U00010428\U00010000\U0001d7d1\U00012400", strict=True
    ):
        assert fast in STAND_INS
        for line in (f"a{slow}b, {slow}{fast},{slow}. {slow}-{fast}'s", f"{fast}. {slow}{slow}"):
            only_fast = tokenize(line.replace(slow, fast), "en", True)
            tokens = tokenize(line, "en", True)
            assert tokens.replace(slow, fast) == only_fast
            assert tokens.count(slow) == line.count(slow)


def test_emoji_take_no_longer_than_other_symbols() -> None:
    def seconds(symbol: str) -> float:
        begin = time.perf_counter()
        assert tokenize(symbol * 20_000, "en", False) == " ".join(symbol * 20_000)
        return time.perf_counter() - begin

    tokenize("\U0001f600", "en", False)  # builds the classes
    assert min(seconds("\U0001f600") for _ in range(3)) < 5 * min(
        seconds("\u2602") for _ in range(3)
    )


@pytest.mark.parametrize(("lang", "tokens", "text"), cases("detokenize"))
def test_detokenize_equals_perl(lang: str, tokens: str, text: str) -> None:
    assert moses(lang).detokenize(tokens) == text


@pytest.mark.parametrize(("langs", "line", "normalized"), cases("normalize"))
def test_normalize_equals_perl(langs: str, line: str, normalized: str) -> None:
    for lang in langs.split():
        assert normalize_punctuation(line, lang) == normalized


def test_full_stops_before_quotes_as_in_perl() -> None:
    """The last rule of the script, for all short lines of its characters."""
    rule = re.compile(r'(\.+)"(\s*[^<]|\Z)', re.ASCII)
    for length in range(1, 8):
        for signs in product('."<x', repeat=length):
            line = "".join(signs)
            assert normalize_punctuation(line, "de") == rule.sub(r'"\1\2', line)


@pytest.mark.parametrize("lang", ["en", "de", "cs"])
@pytest.mark.parametrize(
    "unit", [".", ". ", '"', '."', ".<", ",", " ", "(", ")", "\u00a0", "'", "1 "]
)
def test_normalize_takes_linear_time(unit: str, lang: str) -> None:
    """If it were quadratic, it would take minutes."""
    begin = time.perf_counter()
    normalize_punctuation(unit * 200_000, lang)
    assert time.perf_counter() - begin < 10
