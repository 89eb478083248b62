"""Folders of Parquet files: the same splits as in `datasets`, and no code is run."""

import socket
from pathlib import Path
from typing import NoReturn

import datasets
import pyarrow as pa
import pytest
from pyarrow import parquet
from texts import DE, EN, NO_DOWNLOADS, rows_of

from nmtkit.sources.dataset import Dataset
from nmtkit.sources.parallel import find_corpus
from nmtkit.utils.errors import UserError

Pairs = list[tuple[str, str]]


def pairs(split: str, n: int = 4) -> Pairs:
    return [(f"{split} {i} yes", f"{split} {i} ja") for i in range(n)]


def write(path: Path, rows: Pairs) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = {"en": [src for src, _ in rows], "de": [tgt for _, tgt in rows]}
    parquet.write_table(pa.table(columns), path)


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if the network is used."""

    def refuse(*_: object) -> NoReturn:
        raise AssertionError("a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def test_blank_cells_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = pa.table({"en": ["a", "", None, "d", "e"], "de": ["A", "B", "C", " ", "E"]})
    parquet.write_table(table, tmp_path / "a.parquet")
    corpus = find_corpus(Dataset(dataset=str(tmp_path / "a.parquet")), EN, DE)
    rows = list(corpus.rows(NO_DOWNLOADS))
    assert rows == [("a", "A"), ("e", "E")]
    assert "skipped 3 units: 2 with a blank en, 1 with a blank de" in capsys.readouterr().err


LAYOUTS = {
    "shards": (
        "data/train-00000-of-00002",
        "data/train-00001-of-00002",
        "data/test-00000-of-00001",
    ),
    "files": ("train", "train-more", "test"),
    "folders": ("train/0", "train/1", "test/0"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_folder_splits(tmp_path: Path, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first, second, test = LAYOUTS[layout]
    folder = Path("parquet")  # also the name of a builder of `datasets`
    write(folder / f"{first}.parquet", pairs("a", 1_500))
    write(folder / f"{second}.parquet", pairs("b"))
    write(folder / f"{test}.parquet", pairs("test"))
    before = sorted(folder.rglob("*"))
    loaded = datasets.load_dataset(str(tmp_path / folder), streaming=True)
    for split in ("train", "test"):
        expected = [(row["en"], row["de"]) for row in loaded[split]]
        assert rows_of(Dataset(dataset=str(folder), split=split)) == expected
    assert len(rows_of(Dataset(dataset=str(folder)))) == 1_504
    with pytest.raises(UserError, match=r"no split dev \(it has train, test"):
        rows_of(Dataset(dataset=str(folder), split="dev"))
    assert sorted(folder.rglob("*")) == before


def test_folder_without_splits(tmp_path: Path) -> None:
    write(tmp_path / "0.parquet", pairs("a"))
    write(tmp_path / "1.parquet", pairs("b"))
    assert rows_of(Dataset(dataset=str(tmp_path))) == pairs("a") + pairs("b")
    with pytest.raises(UserError, match=r"no split test \(it has train"):
        rows_of(Dataset(dataset=str(tmp_path), split="test"))


def card(*configurations: str) -> str:
    return "---\nconfigs:\n" + "".join(configurations) + "---\n"


def configuration(name: str, pattern: str) -> str:
    return (
        f"- config_name: {name}\n  data_files:\n  - split: train\n    path: '{pattern}/train*'\n"
        f"  - split: test\n    path: '{pattern}/test*'\n"
    )


@pytest.mark.parametrize("has_card", [True, False])
def test_configurations_are_listed(tmp_path: Path, has_card: bool) -> None:
    for name in ("de-en", "fr-en"):
        for split in ("train", "test"):
            write(tmp_path / name / f"{split}.parquet", pairs(f"{name} {split}"))
    if has_card:
        both = [configuration(name, name) for name in ("de-en", "fr-en")]
        (tmp_path / "README.md").write_text(card(*both), encoding="utf-8")
    with pytest.raises(UserError, match=r'de-en, fr-en.*; set .*dataset = ".*-en"'):
        rows_of(Dataset(dataset=str(tmp_path)))
    one = Dataset(dataset=str(tmp_path / "de-en"), split="test")
    assert rows_of(one) == pairs("de-en test")


def test_card_declares_splits(tmp_path: Path) -> None:
    for split in ("train", "test"):
        write(tmp_path / "of" / f"{split}.parquet", pairs(split))
    write(tmp_path / "old" / "train.parquet", pairs("old"))
    (tmp_path / "README.md").write_text(card(configuration("de-en", "of")), encoding="utf-8")
    for split in ("train", "test"):
        assert rows_of(Dataset(dataset=str(tmp_path), split=split)) == pairs(split)


@pytest.mark.parametrize("place", ["https://localhost/x", "hf://datasets/a/b", "../elsewhere"])
@pytest.mark.parametrize("name", ["README.md", ".huggingface.yaml"])
def test_card_reads_nothing_elsewhere(tmp_path: Path, place: str, name: str) -> None:
    write(tmp_path / "elsewhere" / "train.parquet", pairs("elsewhere"))
    write(tmp_path / "elsewhere" / "test.parquet", pairs("elsewhere"))
    write(tmp_path / "d" / "train.parquet", pairs("train"))
    text = card(configuration("x", place))
    if name != "README.md":
        text = text.replace("---\n", "")
    (tmp_path / "d" / name).write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=r"the card of .* lists"):
        rows_of(Dataset(dataset=str(tmp_path / "d")))


@pytest.mark.parametrize("name", ["d.py", "other.py"])
def test_scripts_do_not_run(tmp_path: Path, name: str) -> None:
    write(tmp_path / "d" / "train.parquet", pairs("train"))
    (tmp_path / "d" / name).write_text(f"open({str(tmp_path / 'ran')!r}, 'w')", encoding="utf-8")
    assert rows_of(Dataset(dataset=str(tmp_path / "d"))) == pairs("train")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["train.parquet", "0.parquet", "a [1]*.parquet"])
def test_other_files_are_ignored(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, pairs("train"))
    for other in ("dev.en", "test.de", "LICENSE.txt", "a.json", "b.json", "train.csv"):
        (tmp_path / other).write_text("a", encoding="utf-8")
    assert rows_of(Dataset(dataset=str(tmp_path))) == pairs("train")
    with pytest.raises(UserError, match=r"no split test .*it has train"):
        rows_of(Dataset(dataset=str(tmp_path), split="test"))


def test_hidden_files_are_ignored(tmp_path: Path) -> None:
    write(tmp_path / "d" / "train.parquet", pairs("train"))
    source = Dataset(dataset=str(tmp_path / "d"))
    files = source.files()
    (tmp_path / "d" / ".cache").mkdir()
    (tmp_path / "d" / ".cache" / "x.lock").write_text("", encoding="utf-8")
    (tmp_path / "d" / "._train.parquet").write_bytes(b"\0\5\26\7")
    assert source.files() == files
    assert rows_of(source) == pairs("train")


def test_links_are_followed(tmp_path: Path) -> None:
    write(tmp_path / "blobs" / "1a2b", pairs("train"))
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "train.parquet").symlink_to(tmp_path / "blobs" / "1a2b")
    (tmp_path / "link").symlink_to(tmp_path / "d")
    assert rows_of(Dataset(dataset=str(tmp_path / "link"))) == pairs("train")


def test_split_of_one_table_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", pairs("a"))
    table = datasets.Dataset.from_list([{"en": src, "de": tgt} for src, tgt in pairs("a")])
    table.save_to_disk(str(tmp_path / "saved"))
    for name in ("a.parquet", "saved"):
        assert rows_of(Dataset(dataset=str(tmp_path / name))) == pairs("a")
        with pytest.raises(UserError, match=r"no split test \(it has train"):
            rows_of(Dataset(dataset=str(tmp_path / name), split="test"))
