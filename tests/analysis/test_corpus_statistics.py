"""Statistics of a prepared corpus, compared with counts of its sentences."""

import json
import math
import random
from collections import Counter
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmtkit.analysis.corpus import N_BINS, QUANTILES, Statistics, corpus_statistics
from nmtkit.analysis.corpus_page import corpus_grids, corpus_notes
from nmtkit.config.loading import load_recipe
from nmtkit.corpus import ids as store
from nmtkit.corpus import prepared
from nmtkit.corpus.bpe_subword import BpeCodes, BpeSubword
from nmtkit.corpus.ids import Ids
from nmtkit.corpus.moses import Tokenization, Tokenizations
from nmtkit.corpus.prepared import SIDES, SPLITS, PreparedCorpus
from nmtkit.corpus.sentencepiece_subword import SentencePieceSubword, learn_sentencepieces
from nmtkit.corpus.special_tokens import EOS_ID, SPECIALS, UNK_ID
from nmtkit.corpus.subword import Subword
from nmtkit.rendering.grid import as_csv
from nmtkit.store.artifacts import open_directory, publish_directory
from nmtkit.training.batches import Pairs, updates

MERGES = [("t", "h"), ("th", "e</w>"), ("h", "o"), ("ho", "u"), ("hou", "s"), ("hous", "e</w>")]
LETTERS = list("abehorstu")
PIECES = ["the", "house", "hous@@", "th@@", *LETTERS, *map("{}@@".format, LETTERS), "."]
WORDS = ["the", "house", "boats", "other", "shouts", "a", "."]
MAX_POSITIONS = 24
WEIGHTED = "corpus.train=[{ corpus='demo-train', weight=2.5 }, 'demo-dev']"
RECIPE = load_recipe("demo", [f"model.max_positions={MAX_POSITIONS}", WEIGHTED])

Sentences = list[list[str]]


def sentences(seed: int, n: int) -> Sentences:
    generator = random.Random(seed)
    lengths = [min(30, int(generator.lognormvariate(1.2, 0.7)) + 1) for _ in range(n)]
    return [generator.choices(WORDS, k=length) for length in lengths]


class Corpus:
    """A prepared corpus, and the text that it was prepared from."""

    def __init__(self, folder: Path, subword: Subword) -> None:
        self.folder = folder
        self.subword = subword
        self.text: dict[tuple[str, str], Sentences] = {}
        for split, n in zip(SPLITS, (301, 41), strict=True):
            for side in SIDES:
                self.text[split, side] = sentences(seed=len(self.text), n=n)
        self.samples: dict[str, list[dict[str, Any]]] = {"kept": [], "dropped": []}
        self.steps = {"normalize_punctuation": False, "lowercase": False, "tokenizer": "none"}

    def statistics(self) -> Statistics:
        """Write the corpus, and return its statistics."""
        draft = self.folder.with_suffix(".partial")
        draft.mkdir()
        self.subword.save(draft)
        n_tokens = self.subword.n_tokens
        for side in SIDES:
            for split in SPLITS:
                with store.ids_writer(prepared.ids_place(draft, split, side), n_tokens) as writer:
                    writer.append(store.pack(self.ids(split, side), n_tokens))
            lines = [" ".join(line) for line in self.text["dev", side]]
            prepared.write_dev_lines(draft, side, lines)
        src, tgt = (
            Tokenization(lang, aggressive_hyphens=False, **self.steps)  # type: ignore[arg-type]
            for lang in ("en", "de")
        )
        Tokenizations(src=src, tgt=tgt).save(draft)
        counts = [
            {"corpus": "one", "pairs": 300, "kept": 280, "dropped": {"too_long": 13, "empty": 7}},
            {"corpus": "two", "pairs": 21, "kept": 21, "dropped": {}},
        ]
        prepared.write_counts(draft, counts, n_tokens)
        prepared.write_samples(draft, self.samples["kept"], self.samples["dropped"])
        publish_directory(draft, self.folder, {"kind": "prepare"})
        return corpus_statistics(RECIPE, PreparedCorpus(open_directory(self.folder)))

    def ids(self, split: str, side: str) -> list[list[int]]:
        return [[*self.subword.encode(" ".join(line)), EOS_ID] for line in self.text[split, side]]

    def lengths(self, split: str, side: str) -> Any:
        """The lengths of one side, or their ratios."""
        if side == "ratio":
            return self.lengths(split, "tgt") / self.lengths(split, "src")
        return np.array([len(sentence) for sentence in self.ids(split, side)])


@pytest.fixture
def bpe_corpus(tmp_path: Path) -> Corpus:
    return Corpus(tmp_path / "prepared", BpeSubword(BpeCodes(MERGES), dict.fromkeys(PIECES, 0)))


@pytest.fixture(params=["bpe", "sentencepiece"])
def corpus(request: pytest.FixtureRequest, bpe_corpus: Corpus) -> Corpus:
    if request.param == "sentencepiece":
        pieces = learn_sentencepieces(dict.fromkeys(WORDS, 9), 286)
        bpe_corpus.subword = SentencePieceSubword(pieces)
    return bpe_corpus


def test_lengths_and_ratios(corpus: Corpus) -> None:
    corpus.text["dev", "tgt"][5] = ["other"] * 200  # far longer than any sentence of train
    statistics = corpus.statistics()
    assert len(statistics["histograms"]["tgt"]["train"]) <= N_BINS + 2
    for row in statistics["lengths"]:
        split = row["split"]
        side = row["of"]
        values = corpus.lengths(split, side)
        assert row["pairs"] == len(values)
        assert row["mean"] == pytest.approx(values.mean())
        ordered = sorted(values)
        for name, share in QUANTILES.items():
            assert row[name] == ordered[math.ceil(share * len(values)) - 1]
        assert side == "ratio" or row["tokens"] == values.sum()
        middles, shares = zip(*statistics["histograms"][side][split], strict=True)
        between = [(a + b) / 2 for a, b in pairwise(middles)]
        ends = [0, *between, 10**9]
        expected, _ = np.histogram(values, ends)
        assert shares == pytest.approx(100 * expected / len(values))


def test_too_long_pairs_match_training(corpus: Corpus) -> None:
    n_too_long = corpus.statistics()["n_too_long"]
    src, tgt = (Ids.open(corpus.folder / f"train.{side}") for side in SIDES)
    pairs = Pairs(src.ids, src.offsets, tgt.ids, tgt.offsets)
    read: set[int] = set()
    for update in updates(pairs, seed=1, max_length=MAX_POSITIONS, src_tokens=100, tgt_tokens=100):
        if update.epoch > 0:
            break
        read.update(update.pairs.tolist())
    assert 0 < n_too_long == len(src) - len(read)


def test_vocabulary_counts_both_sides(corpus: Corpus) -> None:
    vocabulary = corpus.statistics()["vocabulary"]
    ids = chain.from_iterable(sentence for side in SIDES for sentence in corpus.ids("train", side))
    counts = Counter(ids)
    subwords = range(len(SPECIALS), corpus.subword.n_tokens)
    assert vocabulary["tokens"] == corpus.subword.n_tokens == len(subwords) + len(SPECIALS)
    assert vocabulary["rows"] == RECIPE.model.embedding_rows(vocabulary["tokens"])
    for n, maximum in zip(vocabulary["rare"].values(), (0, 9, 99), strict=True):
        assert n == sum(counts[token] <= maximum for token in subwords)


def test_dev_words_by_subwords(bpe_corpus: Corpus) -> None:
    pieces = {"the": 1, "a": 1, ".": 1, "house": 1, "boats": 5, "other": 4, "shouts": 6}
    bpe_corpus.text["dev", "tgt"][3] = ["the", "X", "a", "X"]  # a capital is unknown
    statistics = bpe_corpus.statistics()
    for side, name in zip(statistics["words"], SIDES, strict=True):
        words = list(chain.from_iterable(bpe_corpus.text["dev", name]))
        assert side["words"] == len(words)
        assert side["whole"] == sum(pieces.get(word, 1) == 1 for word in words)
        assert side["subwords"] == sum(pieces.get(word, 1) for word in words)
    for row in statistics["lengths"]:
        if row["of"] != "ratio":
            assert row["unknown"] == (2 if (row["split"], row["of"]) == ("dev", "tgt") else 0)
    assert [side["unknown"] for side in statistics["words"]] == [{}, {"X": 2}]
    assert "Words of dev, de, with an unknown token: X" in corpus_notes(statistics)


def test_sample_steps(corpus: Corpus) -> None:
    corpus.steps = {"normalize_punctuation": True, "lowercase": True, "tokenizer": "moses"}
    corpus.text["dev", "tgt"][0] = ["The", "House"]  # lower-casing changes it
    line = "The  house\u2014a boat."
    corpus.samples["kept"] = [{"corpus": "one", "line": 3, "src": line, "tgt": "a other"}]
    statistics = corpus.statistics()
    [sample] = statistics["samples"]
    ids = [*corpus.subword.encode("the house - a boat ."), EOS_ID]
    words = sample["src"].pop("words")
    marked = sample["src"].pop("marked_subwords")
    assert words.startswith("the house ")
    assert marked.replace("·", "") == words
    assert marked.count("·") + len(words.split()) == len(ids)
    assert sample["src"] == {
        "raw": line,
        "tokens": "the house - a boat .",
        "subwords": " ".join(corpus.subword.pieces(ids)),
        "ids": " ".join(map(str, ids)),
    }
    assert sample["src"]["subwords"].endswith(" </s>")
    assert 50 < statistics["round_trip"] < 100


def test_huge_lines_are_cut(bpe_corpus: Corpus) -> None:
    huge = "the boats " * 1_000
    sample = {"corpus": "one", "line": 1, "src": huge, "tgt": "\U0001f600" * 9_000}
    bpe_corpus.samples["kept"] = [sample]
    bpe_corpus.samples["dropped"] = [{**sample, "reason": "too_long"}]
    bpe_corpus.text["dev", "src"][2] = ["boats" * 300]
    bpe_corpus.text["dev", "src"][3] = ["X" * 3_000]
    statistics = bpe_corpus.statistics()
    cut = statistics["samples"][0]
    assert cut["src"]["raw"] == f"{huge[:300]}... (9,700 more characters)"
    assert cut["tgt"]["ids"].startswith(f"{UNK_ID} {UNK_ID} ")
    assert len(json.dumps(statistics, ensure_ascii=False)) < 20_000


def test_tables_show_statistics(bpe_corpus: Corpus) -> None:
    bpe_corpus.samples["kept"] = [{"corpus": "one", "line": 3, "src": "the", "tgt": "house"}]
    statistics = bpe_corpus.statistics()
    src_lengths, _, ratios, *_ = statistics["lengths"]
    words = statistics["words"][1]
    vocabulary = statistics["vocabulary"]
    text = "\n".join(corpus_notes(statistics)) + "".join(map(as_csv, corpus_grids(statistics)))
    for fact in (
        f"max_positions = 24 tokens, which training skips: {statistics['n_too_long']}",
        "one,read,300,",
        "one,dropped: too long,13,4.33 %",
        'one,"sampled per epoch, about (weight 2.5)",700,233.33 %',
        f'"train, 301 pairs",en,{src_lengths["median"]},{src_lengths["p95"]},{src_lengths["p99"]},',
        f"de/en,{ratios['median']:.2f},{ratios['p95']:.2f},",
        f"rows of the embedding matrix,{vocabulary['rows']},",
        f'"subwords, never in train",{vocabulary["rare"]["never"]},',
        f"de words of dev that are one subword,{words['whole']},",
        f"subwords per de word of dev,{words['subwords'] / words['words']:.2f},",
        "raw,en,the",
    ):
        assert fact in text
