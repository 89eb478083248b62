"""The corpora of the catalog, the state of their files, and `nmtkit corpora`."""

import csv
import hashlib
import io
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

from nmtkit.cli import app as cli
from nmtkit.sources import parallel
from nmtkit.sources.catalog import RemoteFile, data_dir, load_catalog
from nmtkit.sources.download import Downloads
from nmtkit.sources.parallel import corpus_facts, find_corpus
from nmtkit.utils.language import Language


def facts(name: str, tmp_path: Path, mirror: Path | None = None) -> dict[str, Any]:
    return corpus_facts(name, Downloads(tmp_path / "runs" / "downloads", mirror))


def remote_file(name: str, pair: str) -> RemoteFile:
    return find_corpus(name, *Language.parse_pair(pair)).downloads[0]


def test_corpora_lists_all_files_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    printed = CliRunner().invoke(cli.app, ["corpora", "--json"]).stdout
    corpora = json.loads(printed)["corpora"]
    assert not list(tmp_path.iterdir())
    assert [corpus["name"] for corpus in corpora] == list(load_catalog().corpora)
    for corpus in corpora:
        assert corpus["licence"]
        pairs = ["-".join(map(str, pair)) for pair in load_catalog().pairs(corpus["name"])]
        assert set(corpus["n_pairs"]) == set(pairs)
        places = [place for file in corpus["files"] for place in file["urls"] or [file["path"]]]
        assert len(set(places)) == len(places) > 0


def test_corpora_table_has_all_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = CliRunner().invoke(cli.app, ["corpora", "--table", "csv"]).stdout
    names = [row["corpus"] for row in csv.DictReader(io.StringIO(text))]
    assert sorted(names) == sorted(load_catalog().corpora)


def test_missing_file_has_published_facts(tmp_path: Path) -> None:
    europarl = facts("europarl-v7", tmp_path)
    assert europarl["n_pairs"] == {"de-en": 1_920_209, "fr-en": 2_007_723}
    (file,) = europarl["files"]
    assert "https://www.statmt.org/wmt13/training-parallel-europarl-v7.tgz" in file["urls"]
    assert (file["hosts"], len(file["others"])) == (2, 1)
    assert (file["path"], file["n_bytes"], file["md5"]) == (None, 657_632_379, None)
    assert file["state"] == "not downloaded"


def test_filtered_set_needs_no_download_of_its_own(tmp_path: Path) -> None:
    (full,) = facts("newstest2014", tmp_path)["files"]
    assert facts("newstest2014-filtered", tmp_path)["files"] == [full]


def test_demo_is_part_of_nmtkit(tmp_path: Path) -> None:
    demo = facts("demo-dev", tmp_path)
    for file, lang in zip(demo["files"], ("en", "de"), strict=True):
        path = data_dir() / "demo" / f"dev.{lang}"
        assert (file["path"], file["n_bytes"]) == (str(path), path.stat().st_size)
        assert (file["urls"], file["state"]) == ([], "part of nmtkit")


def test_file_in_mirror(shared_data: Path, tmp_path: Path) -> None:
    mirror = shared_data / "mirror"
    for file in facts("multi30k-val", tmp_path, mirror)["files"]:
        assert file["state"] == "in the mirror"
        url = urlsplit(file["urls"][0])
        assert file["path"] == str(mirror / url.netloc / url.path.strip("/"))


@pytest.fixture
def without_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalog, as if no length of a file were published."""
    catalog = load_catalog()
    files = {}
    for name, file in catalog.files.items():
        files[name] = file.model_copy(update={"n_bytes": None})
    changed = catalog.model_copy(update={"files": files})
    monkeypatch.setattr(parallel, "load_catalog", lambda: changed)


def write_download(folder: Path, name: str, suffix: str) -> None:
    """Write 2,700 bytes where the download of a corpus, or its unfinished part, has its place."""
    url = remote_file(name, "en-de").url
    place = folder / "runs" / "downloads" / hashlib.sha256(url.encode()).hexdigest()[:16]
    place.mkdir(parents=True)
    (place / f"{url.rsplit('/', 1)[-1]}{suffix}").write_bytes(bytes(2_700))


def test_partial_download_has_percentage(tmp_path: Path) -> None:
    write_download(tmp_path, "multi30k-val", ".part")
    file = facts("multi30k-val", tmp_path)["files"][0]
    assert (file["n_bytes"], file["state"]) == (21_650, "part: 12 %")


@pytest.mark.parametrize(
    ("suffix", "n_bytes", "state"),
    [(".part", None, "part: 2,700 bytes"), ("", 2_700, "downloaded")],
)
@pytest.mark.usefixtures("without_lengths")
def test_download_without_published_length(
    tmp_path: Path, suffix: str, n_bytes: int | None, state: str
) -> None:
    write_download(tmp_path, "multi30k-val", suffix)
    file = facts("multi30k-val", tmp_path)["files"][0]
    assert (file["n_bytes"], file["state"]) == (n_bytes, state)
