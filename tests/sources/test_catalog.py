"""The shipped catalog: its entries are consistent and agree with the published files."""

import gzip
import hashlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest

from nmtkit.sources.catalog import RemoteFile, Selection, load_catalog
from nmtkit.sources.file_pair import FilePair, read_parallel
from nmtkit.sources.parallel import find_corpus
from nmtkit.sources.text_file import TextFile
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import TREE, Language

EN, DE, FR = map(Language.of, ("en", "de", "fr"))
CATALOG = load_catalog()
PAIRS = [(name, *pair) for name in CATALOG.corpora for pair in CATALOG.pairs(name)]


def test_texts_have_their_languages() -> None:
    for name, *pair in PAIRS:
        if TREE in pair:
            continue
        for src, tgt in (pair, pair[::-1]):
            source = CATALOG.text(name, src, tgt).source
            assert source.warnings(src, tgt) == []
            if not isinstance(source, FilePair):
                continue  # the languages are in the entry, or in the file
            for path, lang in zip(source.paths(), (src, tgt), strict=True):
                file, member = CATALOG.file(path)
                place = file.url if isinstance(file, RemoteFile) else file.name
                last = (member or place).rpartition("/")[2]
                assert lang in map(Language.from_name, last.split(".")), name


def test_treebanks_have_one_direction() -> None:
    treebanks = [name for name, *pair in PAIRS if TREE in pair]
    assert treebanks
    for name in treebanks:
        with pytest.raises(UserError, match=f"{name} has no tree-en; it has en-tree"):
            CATALOG.text(name, TREE, EN)


def test_files_have_unique_urls_and_hashes() -> None:
    files: set[RemoteFile] = set()
    for key in PAIRS:
        files.update(find_corpus(*key).downloads)
    archives: list[RemoteFile] = []
    for file in files:
        archives += file.archives
    assert {file.url for file in files} == {file.url for file in CATALOG.files.values()}
    urls: list[str] = []
    for archive in archives:
        # No hash of the talks is published: the first download is trusted and recorded.
        n_hashes = (archive.sha256 is not None) + (archive.md5 is not None)
        assert n_hashes == (0 if "iwslt14" in archive.url else 1)
        assert archive.url.startswith("https://"), "the first URL must be https"
        urls += archive.urls
    assert len({archive.digest for archive in archives}) == len(archives)
    assert len(set(urls)) == len(urls)
    for file in files:  # the archives of a file are identified by their names
        names = [{Path(url).name for url in archive.urls} for archive in file.archives]
        assert len(set.union(*names)) == sum(map(len, names))


def published_sizes() -> Iterator[tuple[str, int | None]]:
    """The URLs of the catalog and the published sizes of their files."""
    for file in CATALOG.files.values():
        for archive in file.archives:
            for url in archive.urls:
                yield url, archive.n_bytes


@pytest.mark.network
@pytest.mark.parametrize(("url", "n_bytes"), list(published_sizes()))
def test_urls_have_published_sizes(url: str, n_bytes: int | None) -> None:
    headers = {"User-Agent": "nmtkit", "Range": "bytes=0-0"}
    with urlopen(Request(url, headers=headers), timeout=30) as response:
        size = response.headers["Content-Range"] or f"/{response.headers['Content-Length']}"
    assert n_bytes is None or size.endswith(f"/{n_bytes}")


def test_published_numbers_of_pairs() -> None:
    """The sums are published: 40,842,333 lines of English-French; 4,520,620 of English-German."""
    training = ("europarl-v7", "commoncrawl", "news-commentary-v9")
    de = [find_corpus(name, EN, DE).n_pairs or 0 for name in training]
    fr = [find_corpus(name, EN, FR).n_pairs or 0 for name in (*training, "un", "giga-fren")]
    assert (sum(de), sum(fr)) == (4_520_620, 40_842_333)


def test_local_texts_match_catalog(shared_data: Path) -> None:
    for name in CATALOG.corpora:
        if not name.startswith(("multi30k", "demo")):
            continue
        corpus = find_corpus(name, EN, DE)
        assert len(corpus.shipped) + len(corpus.remote) == 2
        for text in corpus.shipped:
            assert text.path.read_bytes().count(b"\n") == corpus.n_pairs
        for file in corpus.downloads:
            url = urlsplit(file.url)
            content = (shared_data / "mirror" / url.netloc / url.path.strip("/")).read_bytes()
            assert len(content) == file.n_bytes
            assert hashlib.sha256(content).hexdigest() == file.sha256
            assert gzip.decompress(content).count(b"\n") == corpus.n_pairs


def test_filtered_test_set_has_published_sha1(shared_data: Path) -> None:
    corpus = find_corpus("newstest2014-filtered", EN, DE)
    assert corpus.selection is not None
    texts = []
    for lang in ("en", "de"):
        texts.append(TextFile(shared_data / "newstest" / f"newstest2014-deen.{lang}"))
    pairs = list(read_parallel("newstest2014", *texts))
    rows = list(corpus.selection.select(pairs, (EN, DE), "newstest2014"))
    assert len(rows) == corpus.n_pairs == 2_737
    published = shared_data / "newstest" / "wmt14-2737.lines"
    numbers = [int(number) for number in published.read_text(encoding="utf-8").split()]
    assert rows == [pairs[number - 1] for number in numbers]

    # Texts that differ in one line are refused.
    src, tgt = pairs[2_222]
    pairs[2_222] = (src, f"{tgt} ")
    with pytest.raises(UserError, match=r"in de have .* not the published 03b02c7f"):
        list(corpus.selection.select(pairs, (EN, DE), "newstest2014"))


def test_filtered_set_of_other_directions() -> None:
    for src, tgt in ((DE, EN), (EN, FR)):
        assert find_corpus("newstest2014-filtered", src, tgt).n_pairs == 3_003


def test_parse_line_numbers() -> None:
    assert Selection(lines="7-9, 3,\n12", sha1={}).numbers() == [7, 8, 9, 3, 12]


def test_misspelled_name_has_suggestion() -> None:
    with pytest.raises(
        UserError, match=r"'news-comentary-v9' \(did you mean 'news-commentary-v9'\?"
    ):
        CATALOG.text("news-comentary-v9", EN, DE)


@pytest.mark.parametrize("pair", ["en-cs", "de-de"])
def test_missing_pair_lists_pairs(pair: str) -> None:
    with pytest.raises(UserError, match=f"{pair}; it has de-en, fr-en"):
        CATALOG.text("europarl-v7", *Language.parse_pair(pair))
