"""The Moses text tools against the output of the Perl scripts."""

# ruff: noqa: RUF001 - look-alike signs are what the scripts are about

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


# What the Perl scripts print for these lines, here and below.
@pytest.mark.parametrize(
    ("lang", "line", "tokens"),
    [
        (
            "en",
            "The cat's 1,000 toys (A&B) don't cost $5.50, e.g. at 3 p.m.",
            "The cat &apos;s 1,000 toys ( A &amp; B ) don &apos;t cost $ 5.50 , e.g. at 3 p.m.",
        ),
        ("en", 'He said: "Wait..."', "He said : &quot; Wait ... &quot;"),
        ("en", "in 1990's [sic] style.", "in 1990 &apos;s &#91; sic &#93; style ."),
        ("en", "well-known", "well-known"),
        ("de", "Am 3. Mai z.B. geht's um 5,5 %.", "Am 3. Mai z.B. geht &apos; s um 5,5 % ."),
        ("fr", "L'école d'aujourd'hui : 5 €!", "L&apos; école d&apos; aujourd&apos; hui : 5 € !"),
        # Where the lists of sacremoses differ from those of 2017.
        ("en", "It cost Rs. 500, see No. 5.", "It cost Rs . 500 , see No. 5 ."),
        ("es", "Fil. X, pág. X, Sra. X", "Fil . X , pág. X , Sra. X"),
        ("ga", "d'aois b'fhéidir 5'", "d&apos; aois b&apos; fhéidir 5&apos;"),
        ("is", "no. X, no. 5, Nr. X", "no. X , no. 5 , Nr . X"),
        ("it", "all. X, ing. X", "all . X , ing . X"),
        ("nl", "Nrs. X, dhr. X", "Nrs . X , dhr. X"),
        ("sk", "Pf. X, Ing. X", "Pf . X , Ing. X"),
        ("sv", "t.ex. den 3 jan. Lund, kl. 5", "t.ex. den 3 jan . Lund , kl. 5"),
        # Where the letters and digits of sacremoses differ from Perl's.
        (
            "en",
            "The 東京 tower, 한국's 𝐀𝐛 and 𝟏,𝟐 of 🅰b.",
            "The 東京 tower , 한국 &apos;s 𝐀𝐛 and 𝟏,𝟐 of 🅰b .",
        ),
        ("en", "went. 𝐚nd went. 𝐀nd ⓐb 5,𝟏 ᄀ가", "went. 𝐚nd went . 𝐀nd ⓐb 5,𝟏 ᄀ가"),
        ("en", "a◌b x፟y", "a ◌ b x ፟ y"),
        (
            "de",
            "Die Gruppe 방탄소년단 („BTS“) aus 서울.",
            "Die Gruppe 방탄소년단 ( „ BTS “ ) aus 서울 .",
        ),
        ("fr", "l'𝐚mi d'東京 カナ。", "l&apos; 𝐚mi d&apos; 東京 カナ 。"),
        ("zh", "中文，好。A 3.5", "中文 ， 好 。 A 3.5"),
        ("ja", "東京、カナ。ABC", "東京 、 カナ 。 ABC"),
        ("ko", "한국어. 日本 語", "한국어 . 日本 語"),
        ("ka", "კარგი. დღე", "კარგი. დღე"),
    ],
)
def test_tokens_are_those_of_tokenizer_perl(lang: str, line: str, tokens: str) -> None:
    assert moses(lang).tokenize(line) == tokens


@pytest.mark.parametrize(
    ("lang", "tokens", "text"),
    [
        (
            "en",
            "The cat &apos;s ( A &amp; B ) &quot; $ 5 &quot; , &#91; well @-@ known &#93; .",
            'The cat\'s (A & B) "$5", [well-known].',
        ),
        ("de", "geht &apos; s um „ alles “ ( 5 % ) .", "geht 's um „alles“ (5%)."),
        (
            "fr",
            "L&apos; école , c&apos; est &quot; ça &quot; : oui !",
            "L'école, c'est \"ça\" : oui !",
        ),
        (
            "en",
            "the Jones &apos; house ( &apos;s ) is John &apos;s",
            "the Jones' house ('s) is John's",
        ),
        ("cs", "v roce 2007 .", "v roce 2007."),
        ("cs", "je - li e - mail za 3 , 5 milionu", "je-li e-mail za 3,5 milionu"),
        ("cs", "e&apos; - mail x x x", "e' - mail x x x"),
        ("cs", "řekl „ ano “ a „ ne “ .", "řekl „ano“ a „ne“."),
        ("fi", "FBI : n ja EU : Ssa , TV : llekin", "FBI:n ja EU:ssa, TV:llekin"),
        ("fi", "klo : se", "klo: se"),
        ("ga", "d&apos; aois", "d' aois"),
        ("it", "l&apos; uomo dell&apos; 800", "l'uomo dell' 800"),
        ("ja", "日本 語 ABC 한국", "日本語 ABC 한국"),
        ("ko", "한국 어 日本 語", "한국 어 日本 語"),
        (
            "en",
            "&lt; a &amp;lt; | &bar; &#124; &bra; &ket; &gt; @-@ @-@",
            "< a &lt; | | | [] >-@-@",
        ),
    ],
)
def test_text_is_that_of_detokenizer_perl(lang: str, tokens: str, text: str) -> None:
    assert moses(lang).detokenize(tokens) == text


@pytest.mark.parametrize(
    ("langs", "line", "normalized"),
    [
        ("en", "„Ja“, sagt er", '"Ja," sagt er'),
        ("de fr ro cs", "„Ja“, sagt er", '"Ja", sagt er'),
        ("en cs", '"Ja, gern," und "Nein."', '"Ja, gern," und "Nein."'),
        ("de fr ro", '"Ja, gern," und "Nein."', '"Ja, gern", und "Nein".'),
        ("de fr ro", '"Nein."<b>', '"Nein."<b>'),
        ("de fr ro", 'a.".".', 'a"..".'),
        ("de fr cs", "5\u00a0000\u00a0%", "5,000%"),
        ("en ro", "5\u00a0000\u00a0%", "5.000%"),
        ("en de", "«\u00a0oui\u00a0» :\u00a0non\u00a0?", '"oui":\u00a0non?'),
        ("en de", "l’a’b ‘x’ 7 %— (so)", "l'a\"b 'x\" 7% - (so) "),
        ("en de", "a  ( b ) . c\r", "a (b). c"),
    ],
)
def test_punctuation_is_that_of_normalize_punctuation_perl(
    langs: str, line: str, normalized: str
) -> None:
    for lang in langs.split():
        assert normalize_punctuation(line, lang) == normalized
