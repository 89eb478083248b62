"""A bundle with a vocabulary map: its candidates, and CTranslate2 with them."""

from pathlib import Path

import ctranslate2

from nmtkit.corpus.bpe_subword import BpeSubword
from nmtkit.corpus.vocabulary_map import VOCABULARY_MAP, VocabularyMap
from nmtkit.decoding.ctranslate2_engine import cache_folder
from system.command import RECIPE, artifact, done, nmtkit
from system.conftest import WORDS

WITH_MAP = ("--recipe", RECIPE, "--set", "averaging.n_target_candidates=3")
CT2 = ("--engine", "ctranslate2")


def test_vocabulary_map_of_a_recipe(complete: Path) -> None:
    without = artifact(complete, "average")
    # Without candidates, a bundle is what it was before there were any.
    assert not (without / VOCABULARY_MAP).exists()
    done(nmtkit(complete, "average", RECIPE, *WITH_MAP[2:]))
    (bundle,) = [path for path in without.parent.iterdir() if (path / VOCABULARY_MAP).exists()]

    subword = BpeSubword.load(bundle)
    candidates = VocabularyMap.read(bundle / VOCABULARY_MAP, subword.n_tokens).candidates
    for source, target in WORDS.items():
        (src_token,) = subword.encode(source)
        assert set(subword.encode(target)) <= set(candidates[src_token])

    text = complete / "test.en"
    plain = done(nmtkit(complete, "translate", "--recipe", RECIPE, "-i", str(text), *CT2)).out
    # The same weights are converted a second time, with the map.
    conversions = set(cache_folder().rglob(VOCABULARY_MAP))
    mapped = done(nmtkit(complete, "translate", *WITH_MAP, "-i", str(text), *CT2)).out
    assert mapped == plain  # of a small vocabulary, all tokens are frequent
    (converted,) = set(cache_folder().rglob(VOCABULARY_MAP)) - conversions
    assert converted.read_bytes() == (bundle / VOCABULARY_MAP).read_bytes()

    done(nmtkit(complete, "export", *WITH_MAP, "exported", "--format", "ctranslate2"))
    translator = ctranslate2.Translator(str(complete / "exported"))
    line = [*subword.pieces(subword.encode("a b")), "</s>"]
    (result,) = translator.translate_batch([line], use_vmap=True)
    pieces = subword.pieces(subword.encode("ein zwo"))
    assert result.hypotheses[0] == pieces
    # With a map of its own, it produces nothing else.
    (complete / "exported" / VOCABULARY_MAP).write_text(f"\t{pieces[0]}\n", encoding="utf-8")
    translator = ctranslate2.Translator(str(complete / "exported"))
    (result,) = translator.translate_batch([line], use_vmap=True)
    assert set(result.hypotheses[0]) <= {pieces[0]}
