"""What is told of a prepared corpus, against counts made from the sentences themselves."""

import json
import math
import random
from collections import Counter
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmtkit.cli.inspect import N_BINS, QUANTILES, Facts, facts_of, grids, notes
from nmtkit.config.loading import load_recipe
from nmtkit.corpus import ids as store
from nmtkit.corpus import prepared
from nmtkit.corpus.ids import Ids
from nmtkit.corpus.moses import Tokenization, Tokenizations
from nmtkit.corpus.prepared import SIDES, SPLITS, PreparedCorpus
from nmtkit.corpus.sentencepieces import learn_sentencepieces
from nmtkit.corpus.special_tokens import EOS_ID, SPECIALS, UNK_ID
from nmtkit.corpus.subword import BpeSubword, SentencePieceSubword, Subword
from nmtkit.reporting.grid import as_csv
from nmtkit.store.artifacts import open_directory, publish_directory
from nmtkit.training.batches import Pairs, updates

MERGES = [("t", "h"), ("th", "e</w>"), ("h", "o"), ("ho", "u"), ("hou", "s"), ("hous", "e</w>")]
PIECES = ("the", "house", "hous@@", "th@@", *"abehorstu", *(f"{c}@@" for c in "abehorstu"), ".")
WORDS = ["the", "house", "boats", "other", "shouts", "a", "."]
MAX_POSITIONS = 24
WEIGHED = "corpus.train=[{ corpus='demo-train', weight=2.5 }, 'demo-dev']"
RECIPE = load_recipe("demo", [f"model.max_positions={MAX_POSITIONS}", WEIGHED])

Sentences = list[list[str]]


def sentences(seed: int, n: int) -> Sentences:
    generator = random.Random(seed)
    lengths = [min(30, int(generator.lognormvariate(1.2, 0.7)) + 1) for _ in range(n)]
    return [generator.choices(WORDS, k=length) for length in lengths]


class Corpus:
    """A prepared folder, and the text that it was made from."""

    def __init__(self, folder: Path, subword: Subword) -> None:
        self.folder, self.subword = folder, subword
        sizes = [
            (split, side, n) for split, n in zip(SPLITS, (301, 41), strict=True) for side in SIDES
        ]
        self.text: dict[tuple[str, str], Sentences] = {
            (split, side): sentences(i, n) for i, (split, side, n) in enumerate(sizes)
        }
        self.samples: dict[str, list[dict[str, Any]]] = {"kept": [], "dropped": []}
        self.how = {"normalize_punctuation": False, "lowercase": False, "tokenizer": "none"}

    def facts(self) -> Facts:
        """What is told of it, once written."""
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
            Tokenization(lang, aggressive_hyphens=False, **self.how)  # type: ignore[arg-type]
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
        return facts_of(RECIPE, PreparedCorpus(open_directory(self.folder)))

    def ids(self, split: str, side: str) -> list[list[int]]:
        return [[*self.subword.encode(" ".join(line)), EOS_ID] for line in self.text[split, side]]

    def lengths(self, split: str, side: str) -> Any:
        """The lengths of one side, or their ratios."""
        if side == "ratio":
            return self.lengths(split, "tgt") / self.lengths(split, "src")
        return np.array([len(sentence) for sentence in self.ids(split, side)])


@pytest.fixture
def bpe_corpus(tmp_path: Path) -> Corpus:
    return Corpus(tmp_path / "prepared", BpeSubword(MERGES, dict.fromkeys(PIECES, 0)))


@pytest.fixture(params=["bpe", "sentencepiece"])
def corpus(request: pytest.FixtureRequest, bpe_corpus: Corpus) -> Corpus:
    if request.param == "sentencepiece":
        pieces = learn_sentencepieces(dict.fromkeys(WORDS, 9), 286)
        bpe_corpus.subword = SentencePieceSubword(pieces)
    return bpe_corpus


def test_lengths_and_ratios_are_those_of_the_sentences(corpus: Corpus) -> None:
    corpus.text["dev", "tgt"][5] = ["other"] * 200  # far beyond what train has
    facts = corpus.facts()
    assert len(facts["histograms"]["tgt"]["train"]) <= N_BINS + 2
    for row in facts["lengths"]:
        split, side = row["split"], row["of"]
        values = corpus.lengths(split, side)
        assert row["pairs"] == len(values)
        assert row["mean"] == pytest.approx(values.mean())
        ordered = sorted(values)
        for name, share in QUANTILES.items():
            assert row[name] == ordered[math.ceil(share * len(values)) - 1]
        assert side == "ratio" or row["tokens"] == values.sum()
        middles, shares = zip(*facts["histograms"][side][split], strict=True)
        ends = [0, *((a + b) / 2 for a, b in pairwise(middles)), 10**9]
        expected, _ = np.histogram(values, ends)
        assert shares == pytest.approx(100 * expected / len(values))


def test_pairs_that_are_too_long_are_those_that_training_leaves_out(corpus: Corpus) -> None:
    n_too_long = corpus.facts()["n_too_long"]
    src, tgt = (Ids.open(corpus.folder / f"train.{side}") for side in SIDES)
    pairs = Pairs(src.ids, src.offsets, tgt.ids, tgt.offsets)
    read: set[int] = set()
    for update in updates(pairs, seed=1, max_length=MAX_POSITIONS, src_tokens=100, tgt_tokens=100):
        if update.epoch > 0:
            break
        read.update(update.pairs.tolist())
    assert 0 < n_too_long == len(src) - len(read)


def test_use_of_the_vocabulary_is_counted_on_both_sides_of_train(corpus: Corpus) -> None:
    vocabulary = corpus.facts()["vocabulary"]
    ids = chain.from_iterable(sentence for side in SIDES for sentence in corpus.ids("train", side))
    counts = Counter(ids)
    subwords = range(len(SPECIALS), corpus.subword.n_tokens)
    assert vocabulary["tokens"] == corpus.subword.n_tokens == len(subwords) + len(SPECIALS)
    assert vocabulary["rows"] == RECIPE.model.rows_for(vocabulary["tokens"])
    for n, most in zip(vocabulary["rare"].values(), (0, 9, 99), strict=True):
        assert n == sum(counts[id_] <= most for id_ in subwords)


def test_words_of_dev_are_split_as_the_subword_model_splits_them(bpe_corpus: Corpus) -> None:
    pieces = {"the": 1, "a": 1, ".": 1, "house": 1, "boats": 5, "other": 4, "shouts": 6}
    bpe_corpus.text["dev", "tgt"][3] = ["the", "X", "a", "X"]  # a capital is unknown
    facts = bpe_corpus.facts()
    for side, name in zip(facts["words"], SIDES, strict=True):
        words = list(chain.from_iterable(bpe_corpus.text["dev", name]))
        assert side["words"] == len(words)
        assert side["whole"] == sum(pieces.get(word, 1) == 1 for word in words)
        assert side["subwords"] == sum(pieces.get(word, 1) for word in words)
    for row in facts["lengths"]:
        if row["of"] != "ratio":
            assert row["unknown"] == (2 if (row["split"], row["of"]) == ("dev", "tgt") else 0)
    assert [side["unknown"] for side in facts["words"]] == [{}, {"X": 2}]
    assert "Words of dev, de, with an unknown token: X" in notes(facts)


def test_steps_of_a_sample_lead_from_its_line_to_its_ids(corpus: Corpus) -> None:
    corpus.how = {"normalize_punctuation": True, "lowercase": True, "tokenizer": "moses"}
    corpus.text["dev", "tgt"][0] = ["The", "House"]  # which lower-casing loses
    line = "The  house\u2014a boat."
    corpus.samples["kept"] = [{"corpus": "one", "line": 3, "src": line, "tgt": "a other"}]
    facts = corpus.facts()
    [sample] = facts["samples"]
    ids = [*corpus.subword.encode("the house - a boat ."), EOS_ID]
    assert sample["src"] == {
        "raw": line,
        "tokens": "the house - a boat .",
        "subwords": " ".join(corpus.subword.pieces(ids)),
        "ids": " ".join(map(str, ids)),
    }
    assert sample["src"]["subwords"].endswith(" </s>")
    assert 50 < facts["round_trip"] < 100


def test_what_is_told_is_small_however_large_what_the_corpus_holds(bpe_corpus: Corpus) -> None:
    huge = "the boats " * 1_000
    sample = {"corpus": "one", "line": 1, "src": huge, "tgt": "\U0001f600" * 9_000}
    bpe_corpus.samples["kept"] = [sample]
    bpe_corpus.samples["dropped"] = [{**sample, "reason": "too_long"}]
    bpe_corpus.text["dev", "src"][2] = ["boats" * 300]
    bpe_corpus.text["dev", "src"][3] = ["X" * 3_000]
    facts = bpe_corpus.facts()
    shown = facts["samples"][0]
    assert shown["src"]["raw"] == f"{huge[:300]}... (9,700 more characters)"
    assert shown["tgt"]["ids"].startswith(f"{UNK_ID} {UNK_ID} ")
    assert len(json.dumps(facts, ensure_ascii=False)) < 20_000


def test_tables_tell_the_facts(bpe_corpus: Corpus) -> None:
    bpe_corpus.samples["kept"] = [{"corpus": "one", "line": 3, "src": "the", "tgt": "house"}]
    facts = bpe_corpus.facts()
    of_src, _, ratios, *_ = facts["lengths"]
    words, vocabulary = facts["words"][1], facts["vocabulary"]
    shown = "\n".join(notes(facts)) + "".join(map(as_csv, grids(facts)))
    for fact in (
        f"max_positions = 24 tokens, which training leaves out: {facts['n_too_long']}",
        "one,read,300,",
        "one,dropped: too long,13,4.33 %",
        'one,"drawn in an epoch, about (weight 2.5)",700,233.33 %',
        f'"train, 301 pairs",en,{of_src["median"]},{of_src["p95"]},{of_src["p99"]},',
        f"de/en,{ratios['median']:.2f},{ratios['p95']:.2f},",
        f"rows of the embedding matrix,{vocabulary['rows']},",
        f"subwords that occur never in train,{vocabulary['rare']['never']},",
        f"de words of dev that are one subword,{words['whole']},",
        f"subwords per de word of dev,{words['subwords'] / words['words']:.2f},",
        "raw,en,the",
    ):
        assert fact in shown
