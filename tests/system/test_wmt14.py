"""`nmtkit prepare wmt14-en-de-base` from a mirror with small copies of WMT14's archives."""

import hashlib
import html
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from packed import tarred
from sacremoses import MosesTokenizer

from nmtkit.corpus.ids import Ids
from nmtkit.corpus.prepared import SIDES, PreparedCorpus
from nmtkit.corpus.subword import load_subword
from nmtkit.sources import catalog
from nmtkit.sources.catalog import data_dir
from nmtkit.store.artifacts import open_directory
from system.command import done, nmtkit, read_lines

RECIPE = "wmt14-en-de-base"
DEMO = data_dir() / "demo"
N_TRAIN = 1_000  # pairs of each corpus
BYTE_ORDER_MARK = "\ufeff"
Pairs = list[tuple[str, str]]  # English, German


def demo_pairs(split: str) -> Pairs:
    return list(zip(*(read_lines(DEMO / f"{split}.{lang}") for lang in ("en", "de")), strict=True))


def plain(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode("utf-8")


def sgml(lines: list[str], kind: str) -> bytes:
    """A test set as WMT ships it."""
    head = f'<{kind} setid="newstest2014" srclang="any">\n<doc docid="1" genre="news">\n<p>'
    texts = [html.escape(line, quote=False) for line in lines]
    segments = [f'<seg id="{i}">{text}</seg>' for i, text in enumerate(texts, start=1)]
    return plain([head, *segments, f"</p>\n</doc>\n</{kind}>"])


def archives() -> dict[str, bytes]:
    """The four archives of the recipe by URL path, with texts of other languages too."""

    def sides(stem: str, number: int) -> dict[str, bytes]:
        en, de = zip(*demo_pairs("train")[number * N_TRAIN :][:N_TRAIN], strict=True)
        return {
            f"{stem}.cs-en.cs": plain(["Dobrý den."] * 7),
            f"{stem}.cs-en.en": plain(["Good day."] * 7),
            f"{stem}.de-en.de": BYTE_ORDER_MARK.encode("utf-8") + plain(de),
            f"{stem}.de-en.en": plain(en),
        }

    dev = {
        "dev/newstest2013.de": (DEMO / "dev.de").read_bytes(),
        "dev/newstest2013.en": (DEMO / "dev.en").read_bytes(),
        "dev/newstest2014-deen-ref.en.sgm": sgml(read_lines(DEMO / "test.en"), "refset"),
        "dev/newstest2014-deen-src.de.sgm": sgml(read_lines(DEMO / "test.de"), "srcset"),
    }
    return {
        "/wmt13/training-parallel-europarl-v7.tgz": tarred(sides("training/europarl-v7", 0), "gz"),
        "/wmt13/training-parallel-commoncrawl.tgz": tarred(
            {**sides("commoncrawl", 1), "commoncrawl.de-en.annotation": b"de\ten\t1\n"}, "gz"
        ),
        "/wmt14/training-parallel-nc-v9.tgz": tarred(sides("training/news-commentary-v9", 2), "gz"),
        "/wmt19/translation-task/dev.tgz": tarred(dev, "gz"),
    }


def mirror(folder: Path) -> None:
    """Write a mirror of the archives, and a copy of the catalog with their sizes and hashes."""
    text = (DEMO.parent / "catalog.toml").read_text(encoding="utf-8")
    for path, body in archives().items():
        entry = re.compile(
            rf'("http://([^/]+){re.escape(path)}",\n\]\nn_bytes = )[\d_]+(\nsha256 = )"[0-9a-f]+"'
        )
        sha256 = hashlib.sha256(body).hexdigest()
        text, n_entries = entry.subn(rf'\g<1>{len(body)}\g<3>"{sha256}"', text)
        assert n_entries == 1, path
        host = next(entry.finditer(text))[2]
        file = folder / "mirror" / f"{host}{path}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(body)
    (folder / "catalog.toml").write_text(text, encoding="utf-8", newline="\n")


def test_wmt14_is_verified_cleaned_and_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "data_dir", lambda: tmp_path)
    mirror(tmp_path)
    prepare = ("prepare", RECIPE, "--mirror", "mirror", "--workers", "1")
    prepared = tmp_path / done(nmtkit(tmp_path, *prepare)).out.strip()
    # The dev set has every line of the archive, unchanged.
    corpus = PreparedCorpus(open_directory(prepared))
    assert list(zip(*map(corpus.dev_lines, SIDES), strict=True)) == demo_pairs("dev")

    # The ids decode to the training text as the original tools tokenize and clean it.
    counts = corpus.counts().train
    names = [count["corpus"] for count in counts]
    assert names == ["europarl-v7", "commoncrawl", "news-commentary-v9"]
    assert [count["pairs"] for count in counts] == [N_TRAIN] * 3
    subword = load_subword(open_directory(prepared))
    tokenizers = MosesTokenizer("en"), MosesTokenizer("de")
    expected = []
    for index, (en, de) in enumerate(demo_pairs("train")[: 3 * N_TRAIN]):
        # To the scripts, a byte order mark is a character of the first line.
        pair = (en, BYTE_ORDER_MARK + de if index % N_TRAIN == 0 else de)
        tokens = [
            " ".join(tokenizer.tokenize(line, return_str=True).split())
            for tokenizer, line in zip(tokenizers, pair, strict=True)
        ]
        lengths = [len(side.split()) for side in tokens]
        if min(lengths) > 0 and max(lengths) <= 80 and max(lengths) <= 9 * min(lengths):
            expected.append(tokens)
    src, tgt = (Ids.open(prepared / f"train.{side}") for side in ("src", "tgt"))
    assert len(src) == len(tgt) == len(expected) == sum(c["kept"] for c in counts)
    sides = [np.split(side.ids, side.offsets[1:-1]) for side in (src, tgt)]
    for *ids, tokens in zip(*sides, expected, strict=True):
        assert [subword.decode(side.tolist()) for side in ids] == tokens
