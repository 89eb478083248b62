"""The corpora that a recipe names: their identity, their rows and their errors."""

import gzip
from pathlib import Path

import pytest
from packed import tarred, zipped
from texts import DE, EN, NO_DOWNLOADS, DownloadsTo, rows_of, write_file

from nmtkit.config.loading import bundled_recipes, load_recipe
from nmtkit.sources.catalog import RemoteFile
from nmtkit.sources.download import Downloads
from nmtkit.sources.file_pair import FilePair
from nmtkit.sources.parallel import Corpus, find_corpus
from nmtkit.sources.source import Source
from nmtkit.sources.table import Tsv
from nmtkit.sources.treebank import Treebank
from nmtkit.sources.xml import Tmx
from nmtkit.store.records import file_sha256
from nmtkit.utils.errors import UserError


def found(source: str | Source) -> Corpus:
    return find_corpus(source, EN, DE)


# Identity


def test_identity_is_content_of_files(tmp_path: Path) -> None:
    names = ("a.en", "a.de", "b.tsv", "c.tmx")
    a_en, a_de, tsv, tmx = (write_file(tmp_path / name, f"text of {name}\n") for name in names)
    pair = found(FilePair(src=str(a_en), tgt=str(a_de)))
    table = found(Tsv(tsv=str(tsv), columns=("de", "en")))
    headed = found(Tsv(tsv=str(tsv), columns=("de", "en"), header=True))
    memory = found(Tmx(tmx=str(tmx)))

    assert pair.identity() == [file_sha256(a_en), file_sha256(a_de)]
    assert table.identity() == ["tsv", file_sha256(tsv), "de", "en"]
    assert headed.identity() == ["tsv with header", file_sha256(tsv), "de", "en"]
    assert memory.identity() == ["tmx", file_sha256(tmx)]

    tsv.unlink()
    with pytest.raises(UserError, match=r"b\.tsv does not exist"):
        found(Tsv(tsv=str(tsv), columns=("de", "en"))).identity()
    tsv.mkdir()
    with pytest.raises(UserError, match=r"b\.tsv is a folder"):
        found(Tsv(tsv=str(tsv), columns=("de", "en"))).identity()


def test_identity_of_sgml_and_plain_text(tmp_path: Path) -> None:
    plain, sgml = (write_file(tmp_path / name, "x <seg>a</seg>\n") for name in ("a.en", "a.SGM"))
    pair = FilePair(src=str(plain), tgt=str(sgml))
    assert rows_of(pair) == [("x <seg>a</seg>", "a")]
    assert found(pair).identity() == [file_sha256(plain), f"{file_sha256(plain)}:sgml"]


@pytest.mark.parametrize("suffix", ["", ".gz", ".sgm"])
def test_file_changed_during_use_is_refused(suffix: str, tmp_path: Path) -> None:
    def write(path: Path, word: str) -> None:
        text = f"x <seg>{word}</seg>\n".encode()
        path.write_bytes(gzip.compress(text, mtime=0) if suffix == ".gz" else text)

    paths = tmp_path / f"a.en{suffix}", tmp_path / f"a.de{suffix}"
    for path in paths:
        write(path, "one")
    pair = found(FilePair(src=str(paths[0]), tgt=str(paths[1])))
    before = pair.identity()
    assert len(list(pair.pairs(NO_DOWNLOADS))) == 1
    write(paths[1], "two")
    with pytest.raises(UserError, match=r"a\.de.* was changed while it was in use"):
        list(pair.pairs(NO_DOWNLOADS))
    assert pair.identity() == before


def test_path_with_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "src").write_text("a\n", encoding="utf-8")
    (tmp_path / "tgt").write_text("b\n", encoding="utf-8")
    monkeypatch.setenv("OWN_TEXT", str(tmp_path))
    assert rows_of(FilePair(src="$OWN_TEXT/src", tgt="$OWN_TEXT/tgt")) == [("a", "b")]


def test_recipe_corpora_are_in_catalog() -> None:
    for recipe in (load_recipe(path.stem) for path in bundled_recipes()):
        for source in (*recipe.corpus.train, *recipe.corpus.dev_sources, *recipe.test.sets):
            corpus = find_corpus(source, recipe.corpus.src_lang, recipe.corpus.tgt_lang)
            assert corpus.remote or corpus.shipped or isinstance(source, Treebank)


# Rows


def test_both_sides_in_one_download(tmp_path: Path) -> None:
    side = "training/europarl-v7.de-en"
    members = {f"{side}.de": "\ufeffeins\nzwei\n".encode(), f"{side}.en": b"one\ntwo\n"}
    path = write_file(tmp_path / "europarl.tgz", tarred(members, "gz"))
    fetched: list[str] = []

    class Recorder(Downloads):
        def fetch(self, file: RemoteFile) -> Path:
            fetched.append(file.url.rpartition("/")[2])
            return path

    downloads = Recorder(tmp_path)

    corpus = found("europarl-v7")
    size = corpus.downloads[0].n_bytes or 0
    assert 0 < size <= corpus.prepared_bytes(downloads) < 4 * size  # the text of both sides, once
    pairs = corpus.pairs(downloads)
    assert fetched == ["training-parallel-europarl-v7.tgz"] * 2  # before the first pair is read
    assert list(pairs) == [("one", "\ufeffeins"), ("two", "zwei")]  # the mark is a character
    # Of another archive nobody published that it has the same lines.
    other = write_file(tmp_path / "training-parallel-europarl-v7.zip", zipped(members))
    with pytest.raises(UserError, match=r"2 pairs, .*1,920,209"):
        list(found("europarl-v7").pairs(DownloadsTo(other)))


def test_opus_corpus_has_both_directions(tmp_path: Path) -> None:
    members = {"README": b"", "TED2020.de-en.de": b"eins\n", "TED2020.de-en.en": b"one\n"}
    path = write_file(tmp_path / "de-en.txt.zip", zipped(members))
    folder = "https://object.pouta.csc.fi/OPUS-TED2020/v1/moses"
    for langs, pair in (((EN, DE), ("one", "eins")), ((DE, EN), ("eins", "one"))):
        corpus = find_corpus("opus:TED2020/v1", *langs)
        assert list(corpus.pairs(DownloadsTo(path))) == [pair]
        (file,) = corpus.downloads
        urls = [archive.url for archive in file.archives]
        assert urls == [f"{folder}/de-en.txt.zip", f"{folder}/en-de.txt.zip"]
        assert corpus.name == "opus-TED2020-v1"
    for name in ("opus:TED2020", "opus:../v1", "opus:a/b/c"):
        with pytest.raises(UserError, match="opus:TED2020/v1"):
            found(name)


# Errors


def test_sides_of_different_length(tmp_path: Path) -> None:
    src = str(write_file(tmp_path / "a.en", "1\n2\n3\n4\n5\n"))
    tgt = str(write_file(tmp_path / "a.de", "1\n2\n"))
    with pytest.raises(UserError, match=r"a\.en has 5 .*a\.de has 2"):
        rows_of(FilePair(src=src, tgt=tgt))
    with pytest.raises(UserError, match=r"a\.de has 2 .*a\.en has 5"):
        rows_of(FilePair(src=tgt, tgt=src))


def test_empty_corpus_is_refused(tmp_path: Path) -> None:
    empty = str(write_file(tmp_path / "a.en", ""))
    for source in (FilePair(src=empty, tgt=empty), Tsv(tsv=empty, columns=("en", "de"))):
        with pytest.raises(
            UserError, match=r"the corpus a\.en has no sentence pairs: it has no text"
        ):
            rows_of(source)
    unit = "<tu><tuv lang='en'><seg>a</seg></tuv></tu>"
    tmx = write_file(tmp_path / "a.tmx", f"<tmx><body>{unit}</body></tmx>")
    with pytest.raises(
        UserError,
        match=r"a\.tmx has no sentence pairs: .* both en and de; its texts are in .en.",
    ):
        rows_of(Tmx(tmx=str(tmx)))
