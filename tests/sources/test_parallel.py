"""The corpora that a recipe names: what they are known by, and what is read."""

import gzip
import hashlib
import tomllib
from pathlib import Path

import pytest

from nmtkit.errors import UserError
from nmtkit.recipe import FilePair, HubSource, Recipe, Source, TmxFile, TsvFile, recipes_dir
from nmtkit.sources.catalog import RemoteFile
from nmtkit.sources.parallel import Corpus, find_corpus
from nmtkit.sources.text import (
    HubDataset,
    ParallelText,
    TextFile,
    TmxText,
    TsvText,
    read_pairs,
)

COMMIT = "b199e406369ec1b7634206d3ded5ba45de2fe696"


def no_download(file: RemoteFile) -> Path:
    raise AssertionError(file)


def found(source: Source) -> Corpus:
    return find_corpus(source, "en", "de")


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_own_files_are_known_by_what_they_hold(tmp_path: Path) -> None:
    names = "a.en", "a.de", "b.tsv", "c.tmx"
    a_en, a_de, tsv, tmx = (tmp_path / name for name in names)
    for path in (a_en, a_de, tsv, tmx):
        path.write_text(f"text of {path.name}\n", encoding="utf-8")
    pair = found(FilePair(src=str(a_en), tgt=str(a_de)))
    table = found(TsvFile(tsv=str(tsv), columns=("de", "en")))
    memory = found(TmxFile(tmx=str(tmx)))

    assert pair.identity(tmp_path) == [sha256(a_en), sha256(a_de)]
    assert table.identity(tmp_path) == ["tsv", sha256(tsv), "de", "en"]
    assert memory.identity(tmp_path) == ["tmx", sha256(tmx)]

    def file(path: Path) -> TextFile:
        return TextFile(path, sha256=sha256(path))

    assert pair.text(no_download) == ParallelText("a.en", file(a_en), file(a_de))
    assert table.text(no_download) == TsvText("b.tsv", file(tsv), src_column=1, tgt_column=0)
    assert memory.text(no_download) == TmxText("c.tmx", file(tmx), "en", "de")

    tsv.unlink()
    with pytest.raises(UserError, match=r"there is no file .*b\.tsv; correct \[corpus\]"):
        found(TsvFile(tsv=str(tsv), columns=("de", "en"))).identity(tmp_path)


@pytest.mark.parametrize("suffix", ["", ".gz", ".sgm"])
def test_a_file_that_changes_between_hashing_and_reading_is_refused(
    suffix: str, tmp_path: Path
) -> None:
    def write(path: Path, word: str) -> None:
        text = f"<seg>{word}</seg>\n".encode()
        path.write_bytes(gzip.compress(text, mtime=0) if suffix == ".gz" else text)

    paths = tmp_path / f"a.en{suffix}", tmp_path / f"a.de{suffix}"
    for path in paths:
        write(path, "one")
    pair = found(FilePair(src=str(paths[0]), tgt=str(paths[1])))
    before = pair.identity(tmp_path)
    assert len(list(read_pairs(pair.text(no_download)))) == 1
    write(paths[1], "two")
    with pytest.raises(UserError, match=r"a\.de.* was changed while it was used; run the same"):
        list(read_pairs(pair.text(no_download)))
    assert pair.identity(tmp_path) == before


def test_a_dataset_is_known_by_its_commit(tmp_path: Path) -> None:
    hub = HubSource(huggingface="wmt/wmt14", subset="de-en", split="train", revision=COMMIT)
    assert found(hub).identity(tmp_path) == ["huggingface", "wmt/wmt14", "de-en", "train", COMMIT]
    assert found(hub).text(no_download) == HubDataset(
        "wmt/wmt14 de-en train", "wmt/wmt14", "de-en", "train", COMMIT, "en", "de"
    )


def test_a_corpus_of_the_catalog_is_known_by_published_hashes_and_members(tmp_path: Path) -> None:
    europarl = found("europarl-v7")
    hashes = europarl.identity(tmp_path)
    assert [len(name.partition(":")[0]) for name in hashes] == [64, 64]
    members = [name.partition(":")[2] for name in hashes]
    assert members == ["training/europarl-v7.de-en.en", "training/europarl-v7.de-en.de"]
    assert europarl.downloads_of_unknown_hash(tmp_path) == []
    text = europarl.text(lambda file: tmp_path / file.url.rpartition("/")[2])
    assert isinstance(text, ParallelText)
    archive = tmp_path / "training-parallel-europarl-v7.tgz"
    assert text.tgt == TextFile(archive, "training/europarl-v7.de-en.de")


def test_what_nobody_published_a_hash_of_is_not_known_before_its_download(tmp_path: Path) -> None:
    filtered = found("newstest2014-filtered")
    urls = {file.url for file in filtered.downloads_of_unknown_hash(tmp_path)}
    assert [url.rpartition("/")[2] for url in urls] == ["test-filtered.tgz"]
    with pytest.raises(UserError, match=r"test-filtered\.tgz"):
        filtered.identity(tmp_path)


def test_every_corpus_of_every_recipe_is_in_the_catalog() -> None:
    for path in recipes_dir().glob("*.toml"):
        recipe = Recipe.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
        for source in (*recipe.corpus.train, recipe.corpus.dev, recipe.corpus.test):
            assert find_corpus(source, recipe.corpus.src_lang, recipe.corpus.tgt_lang).files
