"""The SHA-1 that GluonNLP published of the development and test set of wmt16_en_de.sh.

Its run had BPE 0.2 and News Commentary v11; the 32,000 merges of the same run are in a public
repository. Source: src/gluonnlp/data/translation.py of dmlc/gluon-nlp at 3413f848, `WMT2016BPE`.
"""

import hashlib
from collections import Counter
from pathlib import Path

import pytest
from system.command import read_lines

from nmtkit.corpus.bpe_subword import BpeCodes, BpeSubword, read_codes
from nmtkit.corpus.moses import Tokenization

# By file and language: the SHA-1 of the subwords, and their number with end symbols.
PUBLISHED = [
    ("newstest2013", "en", "fa03fe189fe68cb25014c5e64096ac8daf2919fa", 78_082),
    ("newstest2013", "de", "7d10a884499d352c2fea6f1badafb40473737640", 83_688),
    ("newstest2014-deen", "en", "7b8ea824021cc5291e6a54bb32a1fc27c2955588", 82_649),
    ("newstest2014-deen", "de", "d84497d4c425fa4e9b2b6be4b62c763086410aad", 87_059),
]
MERGES_SHA1 = "e2d0adaad91a513b7c36e806d4e2e46404d1e920"


@pytest.fixture(scope="module")
def codes(shared_data: Path) -> BpeCodes:
    """Read the merges of GluonNLP's run."""
    path = shared_data / "goldens" / "wmt16-bpe" / "gluon-2018.bpe.32000"
    if not path.is_file():
        pytest.skip(f"{path} is missing")
    return read_codes(path)


def sha1(lines: list[str]) -> str:
    """Return the SHA-1 of lines as a file has them."""
    return hashlib.sha1("".join(f"{line}\n" for line in lines).encode("utf-8")).hexdigest()


def test_codes_have_published_sha1(codes: BpeCodes) -> None:
    assert sha1(codes.lines()) == MERGES_SHA1


@pytest.mark.parametrize(("name", "lang", "expected_sha1", "n_tokens"), PUBLISHED)
def test_subwords_have_published_sha1(
    name: str, lang: str, expected_sha1: str, n_tokens: int, codes: BpeCodes, shared_data: Path
) -> None:
    tokenization = Tokenization(lang, False, False, "moses", False)
    raw_lines = read_lines(shared_data / "newstest" / f"{name}.{lang}")
    token_lines = [tokenization.script_output(line) for line in raw_lines]
    # The vocabulary is that of the text, since apply_bpe.py had none.
    words = Counter[str]()
    for line in token_lines:
        words.update(line.split())
    subword = BpeSubword.from_words(codes, words)

    piece_lines = []
    n_pieces = 0
    for line in token_lines:
        pieces = subword.pieces(subword.encode(line))
        n_pieces += len(pieces)
        # apply_bpe.py copies the space that tokenizer.perl leaves after a final .'
        piece_lines.append(" ".join(pieces) + " " * line.endswith(" "))
    assert n_pieces + len(raw_lines) == n_tokens
    assert sha1(piece_lines) == expected_sha1
