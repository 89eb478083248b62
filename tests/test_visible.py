"""Text in which nothing is seen."""

import shutil
import subprocess
import sys
from unicodedata import category

import pytest

from nmtkit.visible import is_blank

# What Perl's own tables of Unicode call a space, a control, a format or ignorable by default.
INVISIBLE = r"""
for my $code (0 .. 0x10FFFF) {
    next if $code >= 0xD800 && $code <= 0xDFFF;
    my $character = chr $code;
    print "$code " if $character =~ /[\p{Z}\p{Cc}\p{Cf}\p{Default_Ignorable_Code_Point}]/
        && $character !~ /\p{Prepended_Concatenation_Mark}/;
}
"""
BRAILLE_BLANK = 0x2800  # the one character without a dot that Unicode counts as a symbol


def test_invisible_characters_are_those_of_perl() -> None:
    perl = shutil.which("perl")
    if perl is None:
        pytest.skip("there is no perl")
    told = subprocess.run([perl, "-e", INVISIBLE], capture_output=True, check=True)
    theirs = {int(code) for code in told.stdout.split()} | {BRAILLE_BLANK}
    ours = {code for code in range(sys.maxunicode + 1) if is_blank(chr(code))}
    of_another_unicode = {code for code in ours ^ theirs if category(chr(code)) in ("Cf", "Cn")}
    assert ours ^ theirs <= of_another_unicode
    assert len(of_another_unicode) < 50


@pytest.mark.parametrize(
    ("text", "blank"),
    [
        ("", True),
        (" \t\u00a0\u3000\u2028", True),
        ("\u200b\u00ad\ufeff\u2060\u180e\u200e\x00", True),
        ("\u3164\uffa0\u115f\ufe0f\u034f\U000e0001\U000e0100\u2800", True),
        ("\u200ba", False),
        ("\u2800.", False),
        ("\u0301", False),  # a combining accent
        ("\u06dd", False),  # the Arabic end of a verse
        ("\ue000", False),  # private use: a font may have it
        ("\U0001f44b\ufe0f", False),
    ],
)
def test_text_is_blank_if_nothing_is_seen(text: str, blank: bool) -> None:
    assert is_blank(text) is blank
