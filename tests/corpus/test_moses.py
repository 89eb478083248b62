"""The Moses text tools against the output of the Perl scripts."""

import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from system.command import read_lines

from nmtkit.corpus.moses import Tokenization, normalize_punctuation, replace_unicode_punctuation


def moses(lang: str, *, aggressive_hyphens: bool = False) -> Tokenization:
    return Tokenization(lang, False, False, "moses", aggressive_hyphens)


@pytest.mark.parametrize("lang", ["en", "de", "fr"])
@pytest.mark.parametrize("script", ["tok", "tok-a", "norm", "unipunct", "detok"])
def test_every_line_of_newstest2013_equals_the_perl_scripts(
    script: str, lang: str, shared_data: Path
) -> None:
    goldens = shared_data / "goldens" / "moses"
    if script == "detok":
        source = read_lines(goldens / f"newstest2013.tok.{lang}")
    else:
        source = read_lines(shared_data / "newstest" / f"newstest2013.{lang}")[:2000]
    tools: dict[str, Callable[[str], str]] = {
        "tok": moses(lang).tokenize,
        "tok-a": moses(lang, aggressive_hyphens=True).tokenize,
        "norm": partial(normalize_punctuation, lang=lang),
        "unipunct": replace_unicode_punctuation,
        "detok": moses(lang).detokenize,
    }
    assert [tools[script](line) for line in source] == read_lines(
        goldens / f"newstest2013.{script}.{lang}"
    )


CASES = tomllib.loads(Path(__file__).with_name("moses.toml").read_text(encoding="utf-8"))


def cases(of: str) -> list[tuple[str, str, str]]:
    """Languages, lines, and what a script makes of them."""
    return [(langs, *both) for langs, pairs in CASES[of].items() for both in pairs]


@pytest.mark.parametrize(("lang", "line", "tokens"), cases("tokenize"))
def test_tokens_are_those_of_tokenizer_perl(lang: str, line: str, tokens: str) -> None:
    assert moses(lang).tokenize(line) == tokens


@pytest.mark.parametrize(("lang", "tokens", "text"), cases("detokenize"))
def test_text_is_that_of_detokenizer_perl(lang: str, tokens: str, text: str) -> None:
    assert moses(lang).detokenize(tokens) == text


@pytest.mark.parametrize(("langs", "line", "normalized"), cases("normalize"))
def test_punctuation_is_that_of_normalize_punctuation_perl(
    langs: str, line: str, normalized: str
) -> None:
    for lang in langs.split():
        assert normalize_punctuation(line, lang) == normalized
