"""What is told of a prepared corpus, against counts made from the sentences themselves."""

import json
import random
import tracemalloc
from collections import Counter
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmtkit.cli import inspect as stage
from nmtkit.corpus import prepared, store
from nmtkit.corpus.moses import Tokenization
from nmtkit.corpus.prepared import SIDES, SPLITS, PreparedCorpus
from nmtkit.corpus.sentencepieces import SentencePieceSubword, learn_sentencepieces
from nmtkit.corpus.store import Ids, IdsWriter
from nmtkit.corpus.subword import BpeSubword, Subword
from nmtkit.corpus.tokenizations import Tokenizations
from nmtkit.recipe import Recipe
from nmtkit.recipe_file import load_recipe
from nmtkit.reporting.inspection import Inspection
from nmtkit.store import open_directory, publish_directory
from nmtkit.symbols import EOS_ID, SPECIALS, UNK_ID
from nmtkit.training.batches import Pairs, updates

MERGES = [("t", "h"), ("th", "e</w>"), ("h", "o"), ("ho", "u"), ("hou", "s"), ("hous", "e</w>")]
PIECES = ("the", "house", "hous@@", "th@@", *"abehorstu", *(f"{c}@@" for c in "abehorstu"), ".")
WORDS = ["the", "house", "boats", "other", "shouts", "a", "."]
MAX_POSITIONS = 24

Sentences = list[list[str]]


def recipe_of(*overrides: str) -> Recipe:
    return load_recipe("demo", [f"model.max_positions={MAX_POSITIONS}", *overrides])


def sentences(seed: int, n: int) -> Sentences:
    generator = random.Random(seed)
    lengths = [min(30, int(generator.lognormvariate(1.2, 0.7)) + 1) for _ in range(n)]
    return [generator.choices(WORDS, k=length) for length in lengths]


class Corpus:
    """A prepared folder, and the text that it was made from."""

    def __init__(self, folder: Path, subword: Subword) -> None:
        self.folder, self.subword = folder, subword
        self.text: dict[tuple[str, str], Sentences] = {
            (split, side): sentences(seed, n)
            for seed, (split, side, n) in enumerate(
                (split, side, n)
                for split, n in zip(SPLITS, (301, 41), strict=True)
                for side in SIDES
            )
        }
        self.samples: dict[str, list[dict[str, Any]]] = {"kept": [], "dropped": []}
        self.how = {"normalize_punctuation": False, "lowercase": False, "tokenizer": "none"}

    def write(self) -> PreparedCorpus:
        draft = self.folder.with_suffix(".partial")
        draft.mkdir()
        self.subword.save(draft)
        n_tokens = self.subword.n_tokens
        for side in SIDES:
            for split in SPLITS:
                with prepared.ids_writer(draft, split, side, n_tokens) as writer:
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
        return PreparedCorpus(open_directory(self.folder))

    def ids(self, split: str, side: str) -> list[list[int]]:
        return [[*self.subword.encode(" ".join(line)), EOS_ID] for line in self.text[split, side]]

    def lengths(self, split: str, side: str) -> list[int]:
        return [len(sentence) for sentence in self.ids(split, side)]


@pytest.fixture
def bpe_corpus(tmp_path: Path) -> Corpus:
    return Corpus(tmp_path / "prepared", BpeSubword(MERGES, dict.fromkeys(PIECES, 0)))


@pytest.fixture(params=["bpe", "sentencepiece"])
def corpus(request: pytest.FixtureRequest, bpe_corpus: Corpus) -> Corpus:
    if request.param == "sentencepiece":
        pieces = learn_sentencepieces(dict.fromkeys(WORDS, 9), 286)
        bpe_corpus.subword = SentencePieceSubword(pieces)
    return bpe_corpus


def inspect(corpus: Corpus) -> Inspection:
    return stage.gather(recipe_of(), corpus.write())


# Lengths


def test_lengths_their_quantiles_and_bins_are_those_of_the_sentences(corpus: Corpus) -> None:
    corpus.text["dev", "tgt"][5] = ["other"] * 200  # far beyond what train has
    splits = inspect(corpus).splits
    starts = splits[0].sides[0].histogram.starts
    assert len(starts) <= stage.LENGTH_BINS
    assert starts[-1] < 200
    for split in splits:
        for side, name in zip(split.sides, SIDES, strict=True):
            lengths = corpus.lengths(split.name, name)
            assert split.n_pairs == len(lengths)
            assert side.n_tokens == sum(lengths)
            expected = np.quantile(lengths, [0.5, 0.95, 0.99, 1], method="inverted_cdf")
            assert list(asdict(side.lengths).values()) == expected.tolist()
            assert side.histogram.starts == starts
            assert side.histogram.counts == np.histogram(lengths, [*starts, 10**9])[0].tolist()


def test_ratios_are_those_of_the_pairs(corpus: Corpus) -> None:
    corpus.text["dev", "tgt"][0] = ["other"] * 300
    for split in inspect(corpus).splits:
        src, tgt = (np.array(corpus.lengths(split.name, side)) for side in SIDES)
        ratios = tgt / src
        expected = np.quantile(ratios, [0.5, 0.95, 0.99, 1], method="inverted_cdf")
        assert list(asdict(split.ratios).values()) == pytest.approx(expected.tolist(), rel=0.004)
        starts = split.ratio_histogram.starts
        assert starts[len(starts) // 2] < 1 < starts[len(starts) // 2 + 1]
        counted, _ = np.histogram(ratios, [0, *starts[1:], 10**9])
        assert split.ratio_histogram.counts == counted.tolist()


def test_pairs_that_are_too_long_are_those_that_training_leaves_out(corpus: Corpus) -> None:
    train = inspect(corpus).splits[0]
    src, tgt = (Ids.open(corpus.folder / f"train.{side}") for side in SIDES)
    read: set[int] = set()
    for update in updates(
        Pairs(src.ids, src.offsets, tgt.ids, tgt.offsets),
        seed=1,
        max_length=MAX_POSITIONS,
        src_tokens=100,
        tgt_tokens=100,
    ):
        if update.epoch > 0:
            break
        read.update(update.pairs.tolist())
    assert 0 < train.n_too_long == len(src) - len(read)


def test_size_of_chunks_makes_no_difference(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = inspect(corpus)
    monkeypatch.setattr(stage, "PAIRS_PER_CHUNK", 7)
    monkeypatch.setattr(store, "IDS_PER_CHUNK", 11)
    again = PreparedCorpus(open_directory(corpus.folder))
    assert stage.gather(recipe_of(), again) == whole


def test_ids_are_counted_in_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "IDS_PER_CHUNK", 2**14)
    with IdsWriter(tmp_path / "train.src", 9) as writer:
        writer.append(store.pack([[5, 6, EOS_ID] * 500_000], 9))
    side = Ids.open(tmp_path / "train.src")
    tracemalloc.start()
    try:
        counts = side.counts(9)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert counts.tolist() == [0, 0, 500_000, 0, 0, 500_000, 500_000, 0, 0]
    assert peak < 2**20


# Vocabulary


def test_use_of_the_vocabulary_is_counted_on_both_sides_of_train(corpus: Corpus) -> None:
    vocabulary = inspect(corpus).vocabulary
    ids = chain.from_iterable(sentence for side in SIDES for sentence in corpus.ids("train", side))
    counts = Counter(ids)
    subwords = range(len(SPECIALS), corpus.subword.n_tokens)
    assert vocabulary.n_tokens == corpus.subword.n_tokens == vocabulary.n_subwords + len(SPECIALS)
    assert vocabulary.n_rows == recipe_of().model.rows_for(vocabulary.n_tokens)
    for n, most in (
        (vocabulary.n_never, 0),
        (vocabulary.n_under_10, 9),
        (vocabulary.n_under_100, 99),
    ):
        assert n == sum(counts[id_] <= most for id_ in subwords)


def test_words_of_dev_are_split_as_the_subword_model_splits_them(bpe_corpus: Corpus) -> None:
    pieces = {"the": 1, "a": 1, ".": 1, "house": 1, "boats": 5, "other": 4, "shouts": 6}
    inspection = inspect(bpe_corpus)
    for side, name in zip(inspection.splitting, SIDES, strict=True):
        words = Counter(chain.from_iterable(bpe_corpus.text["dev", name]))
        assert side.n_words == words.total()
        assert side.n_whole == sum(n for word, n in words.items() if pieces[word] == 1)
        assert side.n_pieces == sum(n * pieces[word] for word, n in words.items())


def test_unknown_tokens_are_counted_and_their_words_told(bpe_corpus: Corpus) -> None:
    bpe_corpus.text["dev", "tgt"][3] = ["the", "Xhouse", "X", "a"]  # capitals are unknown
    bpe_corpus.text["dev", "tgt"][17] = ["X"]
    sides = {
        (split.name, number): side
        for split in inspect(bpe_corpus).splits
        for number, side in enumerate(split.sides)
    }
    for (split, number), side in sides.items():
        name = SIDES[number]
        n_unknown = sum(sentence.count(UNK_ID) for sentence in bpe_corpus.ids(split, name))
        assert side.n_unknown == n_unknown == (3 if (split, name) == ("dev", "tgt") else 0)
    words = {one.text: one.count for one in sides["dev", 1].unknown_words}
    assert words == {"X": 2, "Xhouse": 1}
    assert sides["dev", 0].unknown_words == []


# Samples


def test_steps_of_a_sample_lead_from_its_line_to_its_ids(corpus: Corpus) -> None:
    corpus.how = {"normalize_punctuation": True, "lowercase": True, "tokenizer": "moses"}
    corpus.samples["kept"] = [
        {"corpus": "one", "line": 3, "src": "The  house\u2014a boat.", "tgt": "a other"}
    ]
    inspection = inspect(corpus)
    assert inspection.normalizing == "normalized, lower-cased"
    [sample] = inspection.samples
    assert (sample.corpus, sample.line) == ("one", 3)
    steps = sample.src
    assert steps.raw == "The  house\u2014a boat."
    assert steps.normalized == "the house - a boat."
    assert steps.tokens == "the house - a boat ."
    assert steps.ids == [*corpus.subword.encode(steps.tokens), EOS_ID]
    assert steps.pieces == corpus.subword.pieces(steps.ids)
    assert steps.pieces[-1] == "</s>"
    assert steps.n_ids == len(steps.ids)
    assert sample.tgt.lang == "de"


def test_what_is_told_is_small_however_large_what_the_corpus_holds(bpe_corpus: Corpus) -> None:
    huge = "the boats " * 1_000
    names = [f"corpus-{i}" for i in range(60)]
    bpe_corpus.samples["kept"] = [
        {"corpus": name, "line": i, "src": huge, "tgt": "\U0001f600" * 9_000}
        for name in names
        for i in range(1, 3)
    ]
    bpe_corpus.samples["dropped"] = [
        {"corpus": "x", "line": i, "reason": f"reason-{i}", "src": huge, "tgt": huge}
        for i in range(1, 90)
    ]
    bpe_corpus.text["dev", "src"][2] = ["boats" * 300]
    inspection = inspect(bpe_corpus)
    [first, *_] = inspection.samples
    assert first.src.n_left_out == len(huge) - len(first.src.raw)
    assert huge.startswith(first.src.raw)
    assert first.tgt.ids == [UNK_ID] * len(first.tgt.ids)
    assert inspection.dropped[0].src.endswith("more characters)")
    assert len(json.dumps(asdict(inspection), ensure_ascii=False)) < 200_000
