"""prepare keeps both sides parallel, counts dropped pairs, and resumes after a kill."""

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from system.kills import BeforeOperation, attempt, find_problem, run_uninterrupted

from nmtkit.config.loading import read_toml, recipes_dir
from nmtkit.config.recipe import Recipe, SentencePieceConfig
from nmtkit.config.settings import Settings
from nmtkit.corpus import tokenized
from nmtkit.corpus.long_lines import MAX_CHARACTERS
from nmtkit.corpus.prepared import SIDES, PreparedCorpus
from nmtkit.corpus.sentencepiece_subword import SentencePieceSubword, learn_sentencepieces
from nmtkit.stages import prepare
from nmtkit.stages.pipeline import Pipeline
from nmtkit.store.journal import Journal
from nmtkit.store.manifests import TEMPORARY
from nmtkit.utils.errors import UserError

Pair = tuple[str, str]

HELD_OUT = [("a b c", "x y z"), ("q", "q q"), ("", "")]


def write_pairs(folder: Path, name: str, pairs: list[Pair]) -> dict[str, str]:
    for side, lang in enumerate(("en", "de")):
        text = "".join(f"{pair[side]}\n" for pair in pairs)
        (folder / f"{name}.{lang}").write_text(text, encoding="utf-8", newline="\n")
    return {"src": str(folder / f"{name}.en"), "tgt": str(folder / f"{name}.de")}


def load_pipeline(
    folder: Path, train: list[list[Pair]], /, runs: str = "runs", **corpus: object
) -> Pipeline:
    document = read_toml(recipes_dir() / "demo.toml")
    held_out = write_pairs(folder, "held-out", HELD_OUT)
    document["corpus"] |= {
        "train": [write_pairs(folder, f"train{i}", pairs) for i, pairs in enumerate(train)],
        "dev": held_out,
        "max_tokens": 50,
        **corpus,
    }
    document["subword"]["n_merges"] = 3
    document["test"]["sets"] = [{**held_out, "name": "test"}]
    settings = Settings(folder / runs, device="cpu", workers=1)
    return Pipeline(Recipe.model_validate(document), settings, "test")


def test_dropped_pairs_are_counted(tmp_path: Path) -> None:
    pairs = [("a b c", "x y z")] * 5 + [("", "x"), ("a", ""), ("a", "x " * 12), ("a " * 99, "x")]
    prepared = PreparedCorpus(prepare.run(load_pipeline(tmp_path, [pairs])))

    counts = prepared.counts()
    [corpus] = counts.train
    assert corpus["dropped"] == {"empty": 2, "ratio": 1, "too_long": 1}
    assert (corpus["pairs"], corpus["kept"]) == (9, 5)
    assert len(prepared.ids("train", "src")) == len(prepared.ids("train", "tgt")) == 5
    # Nothing is dropped from the development set.
    assert counts.sizes["dev"].pairs == 3
    assert prepared.dev_lines("src") == ["a b c", "q", ""]


def test_long_dev_line_is_split(tmp_path: Path) -> None:
    pipeline = load_pipeline(tmp_path, [[("a b c", "x y z")] * 5])
    giant = "abc" * 4_000
    write_pairs(tmp_path, "held-out", [("a b c", "x y z"), (f"c {giant}", f"{giant} z")])
    prepared = PreparedCorpus(prepare.run(pipeline))
    for side, lang in zip(SIDES, ("en", "de"), strict=True):
        held_out = (tmp_path / f"held-out.{lang}").read_text(encoding="utf-8")
        assert "".join(f"{line}\n" for line in prepared.dev_lines(side)) == held_out
    ids = prepared.ids("dev", "src")
    words = prepared.subword().decode(ids.ids[slice(*ids.offsets[1:3])].tolist())
    assert words.replace(" ", "") == f"c{giant}"
    assert max(map(len, words.split(" "))) <= MAX_CHARACTERS


def test_repeated_and_held_out_pairs(tmp_path: Path) -> None:
    first = [("a b", "x"), ("a b", "y"), ("a b", "x"), ("q", "w"), ("d", " x  y z"), ("e", "v")]
    second = [("e", "v"), ("f", "u"), ("", ""), ("", "")]
    held_out = [write_pairs(tmp_path, "set", [("q", "q q")]), write_pairs(tmp_path, "b", HELD_OUT)]
    pipeline = load_pipeline(
        tmp_path, [first, second], drop_duplicates=True, drop_held_out=held_out
    )
    counts = PreparedCorpus(prepare.run(pipeline)).counts().train
    assert counts[0]["dropped"] == {"duplicate": 1, "held_out": 2}
    assert counts[1]["dropped"] == {"duplicate": 2, "empty": 1}
    assert [count["kept"] for count in counts] == [3, 1]

    plain = PreparedCorpus(prepare.run(load_pipeline(tmp_path, [first, second]))).counts().train
    assert [count["dropped"] for count in plain] == [{}, {"empty": 2}]


def test_every_nth_clean_pair_is_dev(tmp_path: Path) -> None:
    first = [("A1", "x"), ("", "y"), ("A2", "x"), ("only Ж", "here Ю"), ("A4", "x")]
    second = [("A5", "x"), ("A6", "z  z"), ("A7", "x")]
    pipeline = load_pipeline(
        tmp_path, [first, second], dev=None, dev_every=3, lowercase="tokens", min_tokens=1
    )
    prepared = PreparedCorpus(prepare.run(pipeline))
    assert prepared.dev_lines("src") == ["only Ж", "A6"]
    assert prepared.dev_lines("tgt") == ["here Ю", "z  z"]
    counts = prepared.counts()
    assert [count["dropped"] for count in counts.train] == [
        {"empty": 1, "dev_set": 1},
        {"dev_set": 1},
    ]
    assert [count["kept"] for count in counts.train] == [3, 2]
    assert counts.sizes["dev"].pairs == 2
    # The vocabulary is not learned from them.
    subword = prepared.subword()
    assert subword.decode(subword.encode("ж a5")) == "a5"  # no other word has the first letter
    ids = prepared.ids("train", "src")
    assert len(ids) == 5
    sentences = [subword.decode(ids.ids[slice(*ids.offsets[i : i + 2])].tolist()) for i in range(5)]
    assert sentences == ["a1", "a2", "a4", "a5", "a7"]


def test_too_few_pairs_for_dev(tmp_path: Path) -> None:
    pairs = [("a", "x"), ("b", "y")]
    with pytest.raises(UserError, match=r"2 training pairs, too few to hold out one in .* = 3"):
        prepare.run(load_pipeline(tmp_path, [pairs], dev=None, dev_every=3))
    with pytest.raises(ValueError, match="set either dev or dev_every"):
        load_pipeline(tmp_path, [pairs], dev_every=3)


def test_several_translations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = write_pairs(tmp_path, "a", [("a", "x"), ("b", "y"), ("c", "z")])
    other = write_pairs(tmp_path, "b", [("q", "w"), ("r", "v"), ("s", "u")])
    both = {"src": text["src"], "tgt": (text["tgt"], other["tgt"])}
    pipeline = load_pipeline(tmp_path, [], train=[both])
    prepare.run(pipeline)
    printed = capsys.readouterr().err
    assert printed.count("only the first of 2 translations is used") == 1

    # A training pair is held out for any of the translations.
    held_out = {"src": other["src"], "tgt": (other["tgt"], text["tgt"])}
    train = [[("a", "x"), ("d", "y"), ("e", "w"), ("f", "t")]]
    pipeline = load_pipeline(tmp_path, train, drop_held_out=[held_out])
    [count] = PreparedCorpus(prepare.run(pipeline)).counts().train
    assert (count["kept"], count["dropped"]) == (1, {"held_out": 3})


def test_warning_of_a_text_that_is_read_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ["en\tde", "a\tx", "b\t", "c\tz"]
    (tmp_path / "own.tsv").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    own = {"tsv": str(tmp_path / "own.tsv"), "columns": ["en", "de"], "header": True}
    pairs = [("a b c", "x y z")] * 5
    prepare.run(load_pipeline(tmp_path, [pairs], dev=own, drop_held_out=[own]))
    messages = capsys.readouterr().err.split("\n")
    assert [message for message in messages if "skipped" in message] == [
        "warning: prepare: own.tsv: skipped 1 unit: 1 with a blank de"
    ]
    # The other messages have the name of the command, too, and have it once.
    assert messages[-1] == ""
    for message in messages[:-1]:
        assert message.removeprefix("warning: ").startswith("prepare: "), message
        assert message.count("prepare: ") == 1, message


def test_samples_hold_lines_and_raw_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_parts(monkeypatch)
    pairs = [(f"a{i}", f'"x{i}"') for i in range(40)]
    pairs[1] = ("", "b")
    pairs[8:14] = [("c " * 60, "x")] * 6
    samples = PreparedCorpus(prepare.run(load_pipeline(tmp_path, [pairs]))).samples()
    assert [(kept["line"], kept["src"]) for kept in samples["kept"]] == [
        # from the first chunk of 5 lines
        (1, "a0"),
        (3, "a2"),
        (4, "a3"),
        (5, "a4"),
        # from chunks 2, 4 and 8
        (6, "a5"),
        (16, "a15"),
        (36, "a35"),
    ]
    assert samples["kept"][1]["tgt"] == '"x2"'
    assert [(dropped["line"], dropped["reason"]) for dropped in samples["dropped"]] == [
        (2, "empty"),
        (9, "too_long"),
        (10, "too_long"),
        (11, "too_long"),
    ]


# Kills


def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of two chunks of five lines."""
    monkeypatch.setattr(tokenized, "LINES_PER_CHUNK", 5)
    monkeypatch.setattr(tokenized, "CHUNKS_PER_PART", 2)


@pytest.mark.parametrize("dev", [{}, {"dev": None, "dev_every": 7}], ids=["dev", "dev_every"])
def test_killed_and_rerun_bytes_are_same(
    dev: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_parts(monkeypatch)
    train = [
        [(f"w{i % 23} u{i}", f"x{i % 11} y{i * i}") for i in range(38)],
        [("", "gone"), ("w1", "x1"), ("w1", "x1")] + [(f"v{i}", f"z{i}") for i in range(9)],
    ]
    held_out = [write_pairs(tmp_path, "set", HELD_OUT)]
    options: dict[str, Any] = {"drop_duplicates": True, "drop_held_out": held_out, **dev}

    def work(folder: Path) -> None:
        prepare.run(load_pipeline(tmp_path, train, runs=f"{folder}/runs", **options))

    (tmp_path / "before").mkdir()
    reference = run_uninterrupted(work, tmp_path / "before", tmp_path / "after")
    assert reference.operations > 100
    for number in range(1, reference.operations + 1, 19):
        kill_at = BeforeOperation(number, power_fails=number % 2 == 0)
        assert find_problem(reference, [kill_at], tmp_path / "killed") == "", kill_at


def test_finished_parts_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_parts(monkeypatch)
    train = [[(f"w{i}", f"x{i}") for i in range(50)]]
    pipeline = load_pipeline(tmp_path, train)
    assert attempt(lambda _: prepare.run(pipeline), tmp_path, kill_at=BeforeOperation(60)).killed
    (draft,) = tmp_path.glob("runs/prepare/*.partial")
    n_finished = Journal(draft / TEMPORARY, draft)["tokenized"]["chunks"]
    assert n_finished >= 4
    seen: list[int] = []
    work = tokenized.ChunkTokenizer.__call__

    def tokenize(
        self: tokenized.ChunkTokenizer, chunk: tokenized.RawChunk
    ) -> tokenized.TokenizedChunk:
        seen.append(chunk.index)
        return work(self, chunk)

    monkeypatch.setattr(tokenized.ChunkTokenizer, "__call__", tokenize)
    prepare.run(pipeline)
    assert seen == list(range(n_finished, 10))


def test_vocabulary_ids_after_kill(tmp_path: Path) -> None:
    model = learn_sentencepieces(Counter({"a": 9, "ab": 8}), 264)
    pieces = SentencePieceSubword(model).pieces(range(4, 264))
    subword = SentencePieceSubword(model, dict.fromkeys(reversed(pieces), 1))  # fairseq's order
    draft = tmp_path / "draft"
    draft.mkdir()
    journal = Journal(draft / TEMPORARY, draft, {})
    journal.commit("learned", True, *subword.save(draft))
    read = prepare._learn_subword(load_pipeline(tmp_path, [HELD_OUT]), journal, draft, Counter())
    assert read.pieces(range(264)) == subword.pieces(range(264))


@pytest.mark.parametrize(
    ("corpus", "token", "message"),
    [
        ({}, "<b>", "turns into '&lt; b &gt;'"),
        ({"tokenizer": "none", "lowercase": True}, "{N}", r"turns into '\{n\}'"),
        ({"tokenizer": "none", "normalize_punctuation": True}, "„x", "turns into"),
        ({"tokenizer": "none"}, "</s>", "a special token"),
    ],
    ids=str,
)
def test_protected_token_survives(
    corpus: dict[str, Any], token: str, message: str, tmp_path: Path
) -> None:
    pipeline = load_pipeline(tmp_path, [[("a b c", "x y z")] * 5], **corpus)
    subword = SentencePieceConfig(method="sentencepiece", n_tokens=280, protected=(token,))
    pipeline.recipe = pipeline.recipe.model_copy(update={"subword": subword})
    with pytest.raises(UserError, match=message):
        prepare.run(pipeline)


def test_short_disk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = load_pipeline(tmp_path, [[("a b c", "x y z")] * 50])
    stored = sum((tmp_path / f"train0.{lang}").stat().st_size for lang in ("en", "de"))
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=2 * stored - 1))
    with pytest.raises(UserError, match=f"needs {2 * stored:,} bytes .* only {2 * stored - 1:,}"):
        prepare.run(pipeline)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=2 * stored))
    prepare.run(pipeline)
