"""Tags and names of languages."""

from itertools import combinations

import langcodes
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language


@pytest.mark.parametrize(
    ("tags", "code"),
    [
        ("de DE deu ger de-AT de_DE", "de"),
        ("zh ZH zho chi cmn zh-TW zh_cn zho-Hant", "zh"),
        ("hsb HSB", "hsb"),  # Upper Sorbian has no code of two letters
        ("yue", "yue"),
    ],
)
def test_code_of_any_spelling(tags: str, code: str) -> None:
    for tag in tags.split():
        assert Language.of(tag).code == code


@pytest.mark.parametrize(
    "tag", ["german", "xx", "xyz", "d", "", "de en", "1b", "-de", "\uff44\uff45"]
)
def test_invalid_code_is_refused(tag: str) -> None:
    with pytest.raises(UserError, match="is not a language code"):
        Language.of(tag)


@pytest.mark.parametrize("pair", ["ende", "en-", "en-xx", "en-de-fr"])
def test_invalid_pair_is_refused(pair: str) -> None:
    with pytest.raises(UserError, match="is not a language pair"):
        Language.parse_pair(pair)


def test_languages_without_spaces() -> None:
    tags = ["zho", "JA", "th", "yue", "ko", "de", "vi"]
    assert [tag for tag in tags if not Language.of(tag).is_spaced] == ["zho", "JA", "th", "yue"]


# The languages of FLORES-200 (NLLB Team 2022).
FLORES_200 = """
ace_Arab ace_Latn acm_Arab acq_Arab aeb_Arab afr_Latn ajp_Arab aka_Latn als_Latn amh_Ethi apc_Arab
arb_Arab arb_Latn ars_Arab ary_Arab arz_Arab asm_Beng ast_Latn awa_Deva ayr_Latn azb_Arab azj_Latn
bak_Cyrl bam_Latn ban_Latn bel_Cyrl bem_Latn ben_Beng bho_Deva bjn_Arab bjn_Latn bod_Tibt bos_Latn
bug_Latn bul_Cyrl cat_Latn ceb_Latn ces_Latn cjk_Latn ckb_Arab crh_Latn cym_Latn dan_Latn deu_Latn
dik_Latn dyu_Latn dzo_Tibt ell_Grek eng_Latn epo_Latn est_Latn eus_Latn ewe_Latn fao_Latn fij_Latn
fin_Latn fon_Latn fra_Latn fur_Latn fuv_Latn gaz_Latn gla_Latn gle_Latn glg_Latn grn_Latn guj_Gujr
hat_Latn hau_Latn heb_Hebr hin_Deva hne_Deva hrv_Latn hun_Latn hye_Armn ibo_Latn ilo_Latn ind_Latn
isl_Latn ita_Latn jav_Latn jpn_Jpan kab_Latn kac_Latn kam_Latn kan_Knda kas_Arab kas_Deva kat_Geor
kaz_Cyrl kbp_Latn kea_Latn khk_Cyrl khm_Khmr kik_Latn kin_Latn kir_Cyrl kmb_Latn kmr_Latn knc_Arab
knc_Latn kon_Latn kor_Hang lao_Laoo lij_Latn lim_Latn lin_Latn lit_Latn lmo_Latn ltg_Latn ltz_Latn
lua_Latn lug_Latn luo_Latn lus_Latn lvs_Latn mag_Deva mai_Deva mal_Mlym mar_Deva min_Arab min_Latn
mkd_Cyrl mlt_Latn mni_Beng mos_Latn mri_Latn mya_Mymr nld_Latn nno_Latn nob_Latn npi_Deva nso_Latn
nus_Latn nya_Latn oci_Latn ory_Orya pag_Latn pan_Guru pap_Latn pbt_Arab pes_Arab plt_Latn pol_Latn
por_Latn prs_Arab quy_Latn ron_Latn run_Latn rus_Cyrl sag_Latn san_Deva sat_Olck scn_Latn shn_Mymr
sin_Sinh slk_Latn slv_Latn smo_Latn sna_Latn snd_Arab som_Latn sot_Latn spa_Latn srd_Latn srp_Cyrl
ssw_Latn sun_Latn swe_Latn swh_Latn szl_Latn tam_Taml taq_Latn taq_Tfng tat_Cyrl tel_Telu tgk_Cyrl
tgl_Latn tha_Thai tir_Ethi tpi_Latn tsn_Latn tso_Latn tuk_Latn tum_Latn tur_Latn twi_Latn tzm_Tfng
uig_Arab ukr_Cyrl umb_Latn urd_Arab uzn_Latn vec_Latn vie_Latn war_Latn wol_Latn xho_Latn ydd_Hebr
yor_Latn yue_Hant zho_Hans zho_Hant zsm_Latn zul_Latn
"""


def test_flores_200_codes_are_distinct() -> None:
    codes = FLORES_200.split()
    languages = [Language.of(code) for code in codes]
    assert len(languages) == 204
    for code, language in zip(codes, languages, strict=True):
        assert language.matches(Language.of(code.partition("_")[0])), code
        assert language.matches(Language.of(code.lower().replace("_", "-"))), code
    for first, second in combinations(languages, 2):
        assert first != second
        assert first.canonical != second.canonical, (first, second)
        assert not first.matches(second), (first, second)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("zh-Hant", "zh-TW"),
        ("zho_Hant", "zh-Hant-TW"),
        ("zh-HK", "zh_Hant"),
        ("zh", "zh-TW"),
        ("zh-CN", "zho_Hans"),
        ("zh-SG", "zh-Hans"),
        ("cmn_Hant", "zh-TW"),
        ("sr-Latn", "sr-Latn-RS"),
        ("sr-RS", "sr-Cyrl"),
        ("sr", "sr-Latn"),
        ("az", "azj_Latn"),
        ("nb", "no"),
        ("nob_Latn", "nor"),
        ("nb-NO", "no"),
        ("kor_Hang", "ko-KR"),
        ("de", "de-AT"),
        ("deu_Latn", "de-AT"),
        ("de-CH-1901", "de-CH"),
        ("fa", "prs_Arab"),
        ("pes_Arab", "fa-IR"),
        ("ory_Orya", "or"),
        ("ar", "arb_Arab"),
        ("swh_Latn", "sw-KE"),
    ],
)
def test_more_general_tags_match(one: str, other: str) -> None:
    assert Language.of(one).matches(Language.of(other))
    assert Language.of(other).matches(Language.of(one))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("zh-Hans", "zh-TW"),
        ("zh-CN", "zh-Hant"),
        ("zh-HK", "zh-TW"),
        ("yue", "zh-HK"),
        ("pt-BR", "pt-PT"),
        ("sr-Latn", "sr-Cyrl"),
        ("sr-RS", "sr-Latn"),
        ("en-US", "en-GB"),
        ("nb", "nn"),
        ("no", "nn"),
        ("id", "ms"),
        ("ary", "ar"),
        ("pes", "prs"),
        ("hr", "sr-Latn"),
        ("de-AT", "de-CH"),
        ("arb_Latn", "arb_Arab"),
        ("tw", "ak"),
    ],
)
def test_other_variants_do_not_match(one: str, other: str) -> None:
    assert not Language.of(one).matches(Language.of(other))
    assert not Language.of(other).matches(Language.of(one))


@pytest.mark.parametrize(
    ("name", "tag"),
    [
        ("German", "de"),
        ("deutsch", "de"),
        (" DEUTSCH ", "de"),
        ("Русский", "ru"),
        ("日本語", "ja"),
        ("हिन्दी", "hi"),
        ("한국어", "ko"),
        ("עברית", "he"),
        ("Türkçe", "tr"),
        ("Norwegian", "no"),
        ("norsk bokmål", "nb"),
        ("Bahasa Indonesia", "id"),
        ("ID", "id"),
        ("French (Canada)", "fr-CA"),
        ("français (Canada)", "fr-CA"),
        ("Flemish", "nl-BE"),
        ("Portuguese (Brazil)", "pt-BR"),
        ("Brazilian Portuguese", "pt-BR"),
        ("Chinese (Traditional)", "zh-Hant"),
        ("Simplified Chinese", "zh-Hans"),
        ("中文\uff08香港\uff09", "zh-HK"),
        ("Serbian (Latin)", "sr-Latn"),
        ("Bengali", "bn"),
    ],
)
def test_named_exact(name: str, tag: str) -> None:
    found = Language.from_name(name)
    assert found == Language.of(tag)
    assert found.subtags == Language.of(tag).subtags


@pytest.mark.parametrize(
    "name",
    [
        "German comment",
        "English text",
        "Germa",
        "Germanic text",
        "my German",
        "German2",
        "text_de",
        "de text",
        "de,en",
        "Source (de)",
        "French (Frenchland)",
        "(German)",
        "German ()",
        "Language",
        "Source",
        "Target text",
        "Kommentar",
        "",
        "Deutsch: x",
        "e\0",
        "de\udcff",
        "Englisch",
        "x" * 5_000,
        "German(",
        "Nynorsk-ish",
        "\u202ede",
    ],
)
def test_named_nothing_else(name: str) -> None:
    assert Language.from_name(name) is None


def test_named_in_english_and_natively() -> None:
    codes = "ar cs de en es fi fr hi id is it ja ko nl no pl pt ru sv tr uk vi zh"
    for code in codes.split():
        language = langcodes.Language.get(code)
        for name in (language.display_name("en"), language.autonym()):
            assert Language.from_name(name.upper()) == Language.of(code)


@given(st.text(), st.text(min_size=1))
def test_named_any_text(before: str, after: str) -> None:
    """A name inside other text is not found, and no text raises an error."""
    Language.from_name(before)
    for text in (f"{before}-German.{after}", f"German: {after}"):
        assert Language.from_name(text) is None
