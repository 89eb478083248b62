"""Codes of languages."""

import pytest

from nmtkit.errors import UserError
from nmtkit.languages import has_spaces, known_code, short_code


@pytest.mark.parametrize(
    ("codes", "short"),
    [
        ("de DE deu ger de-AT de_DE", "de"),
        ("zh ZH zho chi cmn zh-TW zh_cn zho-Hant", "zh"),
        ("hsb HSB", "hsb"),  # Upper Sorbian has no code of two letters
        ("yue", "yue"),
    ],
)
def test_a_language_has_one_code_however_it_is_written(codes: str, short: str) -> None:
    for code in codes.split():
        assert known_code(code) == short_code(code) == short


@pytest.mark.parametrize("code", ["german", "xx", "d", "", "de en", "1b", "-de", "\uff44\uff45"])
def test_what_is_no_code_is_refused(code: str) -> None:
    with pytest.raises(UserError, match="is not the code of a language; give"):
        known_code(code)


def test_languages_without_spaces() -> None:
    codes = ["zho", "JA", "th", "yue", "ko", "de", "vi"]
    assert [code for code in codes if not has_spaces(code)] == ["zho", "JA", "th", "yue"]
