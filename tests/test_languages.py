"""Tags of languages."""

import pytest

from nmtkit.errors import UserError
from nmtkit.languages import Language


@pytest.mark.parametrize(
    ("tags", "code"),
    [
        ("de DE deu ger de-AT de_DE", "de"),
        ("zh ZH zho chi cmn zh-TW zh_cn zho-Hant", "zh"),
        ("hsb HSB", "hsb"),  # Upper Sorbian has no code of two letters
        ("yue", "yue"),
    ],
)
def test_a_language_has_one_code_however_it_is_written(tags: str, code: str) -> None:
    for tag in tags.split():
        assert Language.of(tag).code == code


@pytest.mark.parametrize(
    "tag", ["german", "xx", "xyz", "d", "", "de en", "1b", "-de", "\uff44\uff45"]
)
def test_what_is_no_code_is_refused(tag: str) -> None:
    with pytest.raises(UserError, match="is not the code of a language; give"):
        Language.of(tag)


@pytest.mark.parametrize("pair", ["ende", "en-", "en-xx", "en-de-fr"])
def test_what_is_no_pair_is_refused(pair: str) -> None:
    with pytest.raises(UserError, match="is not SRC-TGT"):
        Language.pair_of(pair)


def test_languages_without_spaces() -> None:
    tags = ["zho", "JA", "th", "yue", "ko", "de", "vi"]
    assert [tag for tag in tags if not Language.of(tag).is_spaced] == ["zho", "JA", "th", "yue"]
