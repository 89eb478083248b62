"""Text in pieces equals what others published of the same script."""

import hashlib
import shutil
from pathlib import Path

import pytest

from nmtkit.corpus.bpe_subword import CODES
from nmtkit.corpus.ids import ids_writer, pack
from nmtkit.corpus.moses import Tokenization, Tokenizations
from nmtkit.corpus.prepared import PreparedCorpus
from nmtkit.corpus.special_tokens import EOS_ID, SPECIALS
from nmtkit.corpus.subword import read_subword
from nmtkit.corpus.vocabulary import VOCABULARY
from nmtkit.interchange.text_export import (
    count_pieces,
    piece_splitter,
    sentence_bytes,
    split_lines,
)
from nmtkit.store.artifacts import open_directory
from nmtkit.store.manifests import write_manifest
from nmtkit.store.records import write_lines
from nmtkit.utils.errors import UserError

# SHA-1 and numbers of tokens with end symbols: src/gluonnlp/data/translation.py of dmlc/gluon-nlp
# at 3413f848, WMT2016BPE. newstest2014.en is left out: the script leaves spaces at ends of lines.
PUBLISHED = {
    "newstest2013.en": ("fa03fe189fe68cb25014c5e64096ac8daf2919fa", 78_082),
    "newstest2013.de": ("7d10a884499d352c2fea6f1badafb40473737640", 83_688),
    "newstest2014-deen.en": ("7b8ea824021cc5291e6a54bb32a1fc27c2955588", 82_649),
    "newstest2014-deen.de": ("d84497d4c425fa4e9b2b6be4b62c763086410aad", 87_059),
}


@pytest.fixture(scope="module")
def golden_corpus(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    """A prepared corpus that has only the merges that others learned on WMT16."""
    folder = tmp_path_factory.mktemp("golden")
    shutil.copyfile(shared_data / "goldens" / "wmt16-bpe" / "gluon-2018.bpe.32000", folder / CODES)
    write_lines(folder / VOCABULARY, (f"{piece}\t1" for piece in SPECIALS))
    write_manifest(folder, {"kind": "prepare"})
    return PreparedCorpus(open_directory(folder))


@pytest.mark.parametrize("name", PUBLISHED)
def test_newstest_has_published_sha1(
    name: str, golden_corpus: PreparedCorpus, shared_data: Path
) -> None:
    text = (shared_data / "newstest" / name).read_bytes().decode("utf-8")
    tokenization = Tokenization(name[-2:], False, False, "moses", False)
    lines = text.removesuffix("\n").split("\n")
    pieces = list(split_lines(lines, tokenization, piece_splitter(golden_corpus)))
    content = "".join(f"{line}\n" for line in pieces).encode("utf-8")
    sha1, n_tokens = PUBLISHED[name]
    assert hashlib.sha1(content, usedforsecurity=False).hexdigest() == sha1
    assert sum(len(line.split()) + 1 for line in pieces) == n_tokens


MERGES = ["#version: 0.2", "a b</w>", "< s", "<s ></w>"]
PIECES = [*SPECIALS, "ab", "c", "ü", "a@@", "b@@", "<s>"]


def write_corpus(folder: Path, sentences: list[str]) -> PreparedCorpus:
    """Write a corpus with the same sentences on both sides; unknown words become <unk>."""
    write_lines(folder / CODES, MERGES)
    write_lines(folder / VOCABULARY, (f"{piece}\t1" for piece in PIECES))
    subword = read_subword(folder, {CODES, VOCABULARY})
    sides = Tokenization("en", False, False, "none", False)
    Tokenizations(src=sides, tgt=sides).save(folder)
    ids = [[*subword.encode(sentence), EOS_ID] for sentence in sentences]
    for side in ("src", "tgt"):
        with ids_writer(folder / f"train.{side}", subword.n_tokens) as writer:
            writer.append(pack(ids, subword.n_tokens))
    write_manifest(folder, {"kind": "prepare"})
    return PreparedCorpus(open_directory(folder))


@pytest.mark.parametrize("start", range(5))
def test_sentences_of_any_range(
    start: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nmtkit.interchange.text_export.SENTENCES_PER_CHUNK", 2)
    corpus = write_corpus(tmp_path, ["abc c", "", "ü", "猫 ü"])
    expected = ["a@@ b@@ c c", "", "ü", "<unk> ü"]
    for stop in range(start, 5):
        ids = corpus.ids("train", "src")
        text = b"".join(sentence_bytes(ids, corpus.subword(), start, stop)).decode("utf-8")
        assert text == "".join(f"{line}\n" for line in expected[start:stop])


def test_counts_are_without_special_tokens(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path, ["ab c", "猫 ü", "ü"])
    assert count_pieces(corpus, corpus.subword()) == {"ü": 4, "ab": 2, "c": 2}


def test_piece_named_like_special_token_is_refused(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path, ["ab <s>"])
    with pytest.raises(UserError, match="the subword '<s>'"):
        count_pieces(corpus, corpus.subword())
