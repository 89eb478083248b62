"""The catalog that ships, and catalogs that are wrong."""

import gzip
import hashlib
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from nmtkit.errors import UserError
from nmtkit.languages import TREE, Language
from nmtkit.sources.catalog import Catalog, CatalogCorpus, RemoteFile, load_catalog

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

TINY = """
[files.a]
url = "http://localhost/a.tgz"
n_bytes = 7
sha256 = "{sha256}"

[corpora.tiny]
licence = "free"

[corpora.tiny.texts.de-en]
de = {{ file = "a", member = "a.de" }}
en = {{ path = "a.en" }}
""".format(sha256="0" * 64)


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
    files = {
        text.file
        for corpus in corpora()
        for text in (corpus.src, corpus.tgt)
        if isinstance(text.file, RemoteFile)
    }
    hashes = {file.sha256 or file.md5 for file in files}
    assert None not in hashes
    assert len({file.url for file in files}) == len(hashes) == len(files)


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


def test_an_md5_alone_may_be_published(tmp_path: Path) -> None:
    path = tmp_path / "catalog.toml"
    text = TINY.replace("n_bytes = 7\n", "").replace("sha256", "md5").replace("0" * 64, "f" * 32)
    path.write_text(text, encoding="utf-8")
    corpus = Catalog(path).corpus("tiny", DE, EN)
    assert corpus.src.file == RemoteFile(url="http://localhost/a.tgz", md5="f" * 32)


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


def test_a_catalog_of_ones_own_is_read(tmp_path: Path) -> None:
    path = tmp_path / "catalog.toml"
    path.write_text(TINY, encoding="utf-8")
    corpus = Catalog(path).corpus("tiny", EN, DE)
    assert corpus.src.file == tmp_path / "a.en"
    assert corpus.tgt.file == RemoteFile(url="http://localhost/a.tgz", n_bytes=7, sha256="0" * 64)
    assert corpus.tgt.member == "a.de"
    assert corpus.n_pairs is None


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("licence", "license", r"wrong at corpora\.tiny\.license: Extra inputs|licence: Field"),
        ("0" * 64, "0" * 63, r"files\.a\.sha256"),
        ("[corpora.tiny]", f'md5 = "{"0" * 32}"\n[corpora.tiny]', "either a `sha256` or an `md5`"),
        (f'sha256 = "{"0" * 64}"', "", "either a `sha256` or an `md5`"),
        ('"free"', '"free"\nn_pairs = { en-de = 3 }', "en-de has n_pairs, but no texts"),
        ("http://", "file://", r"files\.a\.url"),
        ('file = "a"', 'file = "b"', "tiny names the file b, which is not listed"),
        ('path = "a.en"', 'member = "a.en"', "either a `file` or a `path`"),
        ("de-en", "de-fr", "the texts of de-fr are de, en"),
        ("[files.a]", "[files.a", "not a TOML file"),
    ],
)
def test_a_wrong_catalog_is_refused(tmp_path: Path, right: str, wrong: str, message: str) -> None:
    path = tmp_path / "catalog.toml"
    assert right in TINY
    path.write_text(TINY.replace(right, wrong), encoding="utf-8")
    with pytest.raises(UserError, match=message):
        Catalog(path)


def test_a_missing_catalog_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"catalog\.toml: No such file"):
        Catalog(tmp_path / "catalog.toml")
