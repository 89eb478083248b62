"""A prepared corpus as text for other toolkits has the bytes of the original tools."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from sacremoses import MosesTokenizer
from subword_nmt import apply_bpe
from typer.testing import CliRunner

from nmtkit.cli import app as cli
from nmtkit.config.loading import read_toml, recipes_dir
from nmtkit.config.recipe import Recipe
from nmtkit.config.settings import Settings
from nmtkit.corpus.ids import Ids
from nmtkit.export import exported_text as stage
from nmtkit.export.exported_text import export_text
from nmtkit.interchange.text_export import sentence_bytes
from nmtkit.sources.catalog import data_dir
from nmtkit.stages import prepare
from nmtkit.stages.pipeline import Pipeline
from nmtkit.store.journal import Journal
from nmtkit.utils.errors import UserError

LANGS = ("en", "de")
N_TRAIN, N_DEV, N_TEST = 90, 11, 7
SENTENCEPIECE = {"method": "sentencepiece", "n_tokens": 400}


def read_lines(path: Path) -> list[str]:
    return path.read_bytes().decode("utf-8").removesuffix("\n").split("\n")


def write_demo_text(folder: Path, split: str, n_pairs: int) -> dict[str, str]:
    """Write the first pairs of a split of the demo corpus, and return its table of a recipe."""
    for lang in LANGS:
        lines = read_lines(data_dir() / "demo" / f"{split}.{lang}")[:n_pairs]
        text = "".join(f"{line}\n" for line in lines)
        (folder / f"{split}.{lang}").write_text(text, encoding="utf-8", newline="\n")
    return {"src": str(folder / f"{split}.en"), "tgt": str(folder / f"{split}.de")}


def prepared_pipeline(
    folder: Path, sets: list[Any] | None = None, subword: dict[str, object] | None = None
) -> Pipeline:
    """Prepare a small part of the demo corpus."""
    document = read_toml(recipes_dir() / "demo.toml")
    document["corpus"]["train"] = [write_demo_text(folder, "train", N_TRAIN)]
    document["corpus"]["dev"] = write_demo_text(folder, "dev", N_DEV)
    test = write_demo_text(folder, "test", N_TEST)
    document["test"]["sets"] = [{**test, "name": "news"}] if sets is None else sets
    document["subword"] = subword or {"method": "bpe", "n_merges": 200}
    settings = Settings(folder / "runs", device="cpu", workers=1)
    pipeline = Pipeline(Recipe.model_validate(document), settings, "demo")
    prepare.run(pipeline)
    return pipeline


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("lang", LANGS)
def test_text_equals_original_tools(lang: str, tmp_path: Path) -> None:
    export_text(prepared_pipeline(tmp_path), tmp_path / "out")
    with (tmp_path / "out" / "codes.bpe").open(encoding="utf-8") as codes:
        bpe = apply_bpe.BPE(codes)
    tokenizer = MosesTokenizer(lang)
    for split, name in (("train", "train"), ("dev", "dev"), ("test", "news")):
        expected = []
        for line in read_lines(tmp_path / f"{split}.{lang}"):
            expected.append(bpe.process_line(tokenizer.tokenize(line, return_str=True)))
        assert read_lines(tmp_path / "out" / f"{name}.{lang}") == expected
        assert any("@@ " in line for line in expected)


def test_sentencepieces_equal_sentencepiece(tmp_path: Path) -> None:
    export_text(prepared_pipeline(tmp_path, subword=SENTENCEPIECE), tmp_path / "out")
    model = sentencepiece.SentencePieceProcessor(str(tmp_path / "out" / "sentencepiece.model"))
    tokenizer = MosesTokenizer("de")
    for split, name in (("train", "train"), ("dev", "dev"), ("test", "news")):
        expected = []
        for line in read_lines(tmp_path / f"{split}.de"):
            tokens = tokenizer.tokenize(line, return_str=True)
            expected.append(" ".join(model.encode(tokens, out_type=str)))
        assert read_lines(tmp_path / "out" / f"{name}.de") == expected


def test_vocabularies_count_training_text(tmp_path: Path) -> None:
    export_text(prepared_pipeline(tmp_path), tmp_path / "out")
    counts = Counter[str]()
    for lang in LANGS:
        for line in read_lines(tmp_path / "out" / f"train.{lang}"):
            counts.update(line.split(" "))
    expected = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    assert read_lines(tmp_path / "out" / "vocab.txt") == [piece for piece, _ in expected]
    rows = [line.split("\t") for line in read_lines(tmp_path / "out" / "vocab.tsv")]
    assert rows == [[piece, str(count)] for piece, count in expected]

    # fairseq adds four symbols, and fills up to a multiple of 8.
    dictionary = read_lines(tmp_path / "out" / "dict.en.txt")
    n_fillers = -(4 + len(expected)) % 8
    assert n_fillers > 0
    assert dictionary[: len(expected)] == [f"{piece} {count}" for piece, count in expected]
    assert dictionary[len(expected) :] == [f"madeupword{i:04} 0" for i in range(n_fillers)]
    assert read_lines(tmp_path / "out" / "dict.de.txt") == dictionary


def test_interrupted_export_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "PAIRS_PER_PART", 20)
    pipeline = prepared_pipeline(tmp_path)
    export_text(pipeline, tmp_path / "whole")
    starts: list[int] = []

    def interrupt(ids: Ids, subword: Any, start: int, stop: int) -> Any:
        starts.append(start)
        if len(starts) == 6:  # the second side of the third part
            raise KeyboardInterrupt
        return sentence_bytes(ids, subword, start, stop)

    monkeypatch.setattr(stage, "sentence_bytes", interrupt)
    with pytest.raises(KeyboardInterrupt):
        export_text(pipeline, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    export_text(pipeline, tmp_path / "out")
    assert starts == [0, 0, 20, 20, 40, 40, 40, 40, 60, 60, 80, 80]
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    assert not list(tmp_path.glob(".*"))


def test_draft_of_another_corpus_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "PAIRS_PER_PART", 20)
    bpe = prepared_pipeline(tmp_path)
    commit = Journal.commit

    def commit_and_stop(self: Journal, *args: Any) -> None:
        commit(self, *args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "commit", commit_and_stop)
        with pytest.raises(KeyboardInterrupt):
            export_text(bpe, tmp_path / "out")
    assert list(tmp_path.glob(".out.nmtkit/draft/train.*"))
    pieces = prepared_pipeline(tmp_path, subword=SENTENCEPIECE)
    export_text(pieces, tmp_path / "out")
    export_text(pieces, tmp_path / "whole")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_failed_export_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = prepared_pipeline(tmp_path)
    monkeypatch.setattr(stage, "piece_splitter", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        export_text(pipeline, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".*"))


def test_sets_without_or_with_several_references(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    test = write_demo_text(tmp_path, "test", N_TEST)
    (tmp_path / "second.de").write_bytes((tmp_path / "test.de").read_bytes())
    sets = [
        {"name": "two", "src": test["src"], "tgt": [test["tgt"], str(tmp_path / "second.de")]},
        {"name": "blind", "src": test["src"]},
    ]
    export_text(prepared_pipeline(tmp_path, sets), tmp_path / "out")
    assert "two: only the first of 2 references" in capsys.readouterr().err
    names = contents(tmp_path / "out")
    assert "two.de" in names
    assert "blind.en" in names
    assert "blind.de" not in names


@pytest.mark.parametrize("name", ["train", "dev", "Train", "DEV"])
def test_set_named_like_training_text_is_refused(name: str, tmp_path: Path) -> None:
    test = write_demo_text(tmp_path, "test", N_TEST)
    pipeline = prepared_pipeline(tmp_path, [{**test, "name": name}])
    with pytest.raises(UserError, match=f"the test set {name} would overwrite"):
        export_text(pipeline, tmp_path / "out")


def test_existing_folder_is_kept(tmp_path: Path) -> None:
    pipeline = prepared_pipeline(tmp_path)
    (tmp_path / "out").mkdir()
    with pytest.raises(UserError, match="out already exists"):
        export_text(pipeline, tmp_path / "out")
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["FOLDER", "out", "--format", "text"], "is a folder, but --format text"),
        (["demo", "out", "--format", "huggingface"], "demo does not exist"),
        (["demo", "out", "--format", "text", "--push", "me/text"], "--push cannot be used"),
        (["FOLDER", "out", "--format", "ctranslate2", "--mirror", "."], "--mirror cannot be used"),
        (
            ["FOLDER", "out", "--format", "huggingface", "--set", "a.b=1"],
            "--set and --runs-dir apply",
        ),
        (["demo", "out", "--format", "text"], "run `nmtkit prepare demo` first"),
    ],
)
def test_argument_must_suit_format(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "FOLDER").mkdir()
    result = CliRunner().invoke(cli.app, ["export", *arguments])
    assert isinstance(result.exception, UserError)
    assert message in str(result.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["FOLDER"]
