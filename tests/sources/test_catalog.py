"""The catalog that ships, and catalogs that are wrong."""

import gzip
import hashlib
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from nmtkit.errors import UserError
from nmtkit.languages import TREE, Language
from nmtkit.sources.catalog import CatalogCorpus, RemoteFile, data_dir, load_catalog

EN, DE, FR = map(Language.of, ("en", "de", "fr"))
PAIRS = {
    (EN, DE): [
        *("europarl-v7", "commoncrawl", "news-commentary-v9", "news-commentary-v11"),
        *("newstest2013", "newstest2014", "newstest2014-filtered"),
        *(
            "multi30k-train",
            "multi30k-val",
            "multi30k-test2016",
            "multi30k-test2017",
            "multi30k-test2017-mscoco",
        ),
        *("demo-train", "demo-dev", "demo-test"),
    ],
    (EN, FR): [
        *("europarl-v7", "commoncrawl", "news-commentary-v9", "un", "giga-fren"),
        *("newstest2013", "newstest2014", "newstest2014-filtered"),
    ],
}
TREEBANKS = [
    *("treebank-sample-01", "treebank-sample-00-first", "treebank-sample-00-second"),
    *("trees-demo-train", "trees-demo-dev", "trees-demo-test"),
]


def corpora() -> list[CatalogCorpus]:
    catalog = load_catalog()
    return [catalog.corpus(name, *pair) for pair, names in PAIRS.items() for name in names]


def test_every_corpus_is_there_in_both_directions() -> None:
    catalog = load_catalog()
    named = {name for names in (*PAIRS.values(), TREEBANKS) for name in names}
    assert sorted(named) == sorted(catalog.names)
    for corpus in corpora():
        assert corpus.src != corpus.tgt
    forth, back = (catalog.corpus("newstest2014", *pair) for pair in ((EN, FR), (FR, EN)))
    assert (forth.src, forth.tgt) == (back.tgt, back.src)


def test_a_treebank_is_both_sides_in_one_direction() -> None:
    catalog = load_catalog()
    for name in TREEBANKS:
        corpus = catalog.corpus(name, EN, TREE)
        assert corpus.src == corpus.tgt
        assert catalog.pairs(name) == [(EN, TREE)]
        with pytest.raises(UserError, match=f"{name} has no tree-en; it has en-tree"):
            catalog.corpus(name, TREE, EN)


def test_every_text_names_its_own_language() -> None:
    for (src_lang, tgt_lang), names in PAIRS.items():
        for name in names:
            corpus = load_catalog().corpus(name, src_lang, tgt_lang)
            for text, lang in ((corpus.src, src_lang), (corpus.tgt, tgt_lang)):
                place = text.file.url if isinstance(text.file, RemoteFile) else text.file.name
                name_of_text = text.member or place
                assert f".{lang}" in f"{name_of_text}."[-8:], name_of_text


def test_every_file_has_its_own_url_and_hash() -> None:
    texts = (text for corpus in corpora() for text in (corpus.src, corpus.tgt))
    files = {text.file for text in texts if isinstance(text.file, RemoteFile)}
    assert all((file.sha256 is None) != (file.md5 is None) for file in files)
    assert len({file.url for file in files}) == len({file.digest for file in files}) == len(files)


def test_names_in_the_catalog_are_of_what_it_lists() -> None:
    catalog = tomllib.loads((data_dir() / "catalog.toml").read_text(encoding="utf-8"))
    for corpus in catalog["corpora"].values():
        texts = corpus.get("texts", {})
        assert ("texts" in corpus) != ("trees" in corpus)
        assert all(sorted(sides) == sorted(pair.split("-")) for pair, sides in texts.items())
        pairs = set(texts) or {f"{corpus['trees']['lang']}-tree"}
        assert set(corpus.get("n_pairs", {})) <= pairs
        for text in [
            *(t for sides in texts.values() for t in sides.values()),
            *([corpus["trees"]] if "trees" in corpus else []),
        ]:
            assert ("file" in text) != ("path" in text)


def test_pairs_are_counted_for_each_pair_of_languages() -> None:
    """The sums are published: 40,842,333 lines of English-French; 4,520,620 of English-German."""
    catalog = load_catalog()
    training = ("europarl-v7", "commoncrawl", "news-commentary-v9")
    de = [catalog.corpus(name, EN, DE).n_pairs or 0 for name in training]
    fr = [catalog.corpus(name, EN, FR).n_pairs or 0 for name in (*training, "un", "giga-fren")]
    assert (sum(de), sum(fr)) == (4_520_620, 40_842_333)


def test_the_filtered_test_set_has_its_own_lines_in_each_direction() -> None:
    catalog = load_catalog()
    to_german, to_english = (
        catalog.corpus("newstest2014-filtered", *pair) for pair in ((EN, DE), (DE, EN))
    )
    assert (to_german.n_pairs, to_english.n_pairs) == (2_737, 3_003)
    assert to_german.src.member == "test/newstest2014-deen-src.en.sgm"
    assert to_german.tgt.member == "test/newstest2014-deen-ref.de.sgm"
    assert to_english.src.member == "test/newstest2014-deen-src.de.sgm"
    assert to_english.tgt.member == "test/newstest2014-deen-ref.en.sgm"
    assert catalog.pairs("newstest2014-filtered") == [(EN, DE), (DE, EN), (EN, FR)]


def test_demo_has_as_many_lines_as_the_catalog_says() -> None:
    for name in ("demo-train", "demo-dev", "demo-test"):
        corpus = load_catalog().corpus(name, EN, DE)
        for text in (corpus.src, corpus.tgt):
            assert isinstance(text.file, Path)
            assert text.file.read_bytes().count(b"\n") == corpus.n_pairs


def test_multi30k_has_the_hashes_of_its_original_files(shared_data: Path) -> None:
    catalog = load_catalog()
    for name in PAIRS[EN, DE]:
        if not name.startswith("multi30k"):
            continue
        corpus = catalog.corpus(name, EN, DE)
        for text in (corpus.src, corpus.tgt):
            assert isinstance(text.file, RemoteFile)
            url = urlsplit(text.file.url)
            content = (shared_data / "mirror" / url.netloc / url.path.strip("/")).read_bytes()
            assert len(content) == text.file.n_bytes
            assert hashlib.sha256(content).hexdigest() == text.file.sha256
            assert gzip.decompress(content).count(b"\n") == corpus.n_pairs


def test_a_misspelt_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UserError, match=r"'news-comentary-v9' \(did you mean news-commentary-v9\?"):
        load_catalog().corpus("news-comentary-v9", EN, DE)


@pytest.mark.parametrize("pair", ["en-cs", "de-fr", "de-de"])
def test_a_language_that_is_not_there_is_answered_with_the_pairs(pair: str) -> None:
    with pytest.raises(UserError, match=f"{pair}; it has de-en, fr-en"):
        load_catalog().corpus("europarl-v7", *Language.pair_of(pair))
