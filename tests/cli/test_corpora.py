"""What `nmtkit corpora` tells of the catalog, and that it leaves nothing behind."""

import hashlib
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

from nmtkit import cli
from nmtkit.cli.corpora import entry as entry_of
from nmtkit.config.settings import Settings
from nmtkit.sources.catalog import RemoteFile, data_dir, load_catalog
from nmtkit.utils.language import Language


def settings(tmp_path: Path, mirror: Path | None = None) -> Settings:
    return Settings(tmp_path / "runs", mirror, device="cpu", workers=1)


def entry(name: str, tmp_path: Path, mirror: Path | None = None) -> dict[str, Any]:
    return entry_of(name, settings(tmp_path, mirror))


def remote_file(name: str, pair: str) -> RemoteFile:
    file = load_catalog().corpus(name, *Language.pair_of(pair)).sides[0][0]
    assert isinstance(file, RemoteFile)
    return file


def test_every_corpus_is_told_once_with_all_its_files_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = json.loads(CliRunner().invoke(cli.app, ["corpora", "--json"]).stdout)["corpora"]
    assert not list(tmp_path.iterdir())
    assert [one["name"] for one in told] == list(load_catalog().corpora)
    for one in told:
        assert one["licence"]
        pairs = ["-".join(map(str, pair)) for pair in load_catalog().pairs(one["name"])]
        assert set(one["n_pairs"]) == set(pairs)
        places = [place for file in one["files"] for place in file["urls"] or [file["path"]]]
        assert len(set(places)) == len(places) > 0


def test_a_file_that_is_not_here_is_told_with_all_that_was_published(tmp_path: Path) -> None:
    europarl = entry("europarl-v7", tmp_path)
    assert europarl["n_pairs"] == {"de-en": 1_920_209, "fr-en": 2_007_723}
    (file,) = europarl["files"]
    assert "https://www.statmt.org/wmt13/training-parallel-europarl-v7.tgz" in file["urls"]
    assert (file["hosts"], len(file["others"])) == (2, 1)
    assert (file["path"], file["n_bytes"], file["md5"]) == (None, 657_632_379, None)
    assert file["state"] == "to download"
    (filtered,) = entry("newstest2014-filtered", tmp_path)["files"]
    assert (filtered["n_bytes"], filtered["sha256"], filtered["hosts"]) == (None, None, 1)


def test_the_demo_is_here(tmp_path: Path) -> None:
    demo = entry("demo-dev", tmp_path)
    for file, lang in zip(demo["files"], ("en", "de"), strict=True):
        path = data_dir() / "demo" / f"dev.{lang}"
        assert (file["path"], file["n_bytes"]) == (str(path), path.stat().st_size)
        assert (file["urls"], file["state"]) == ([], "part of nmtkit")


def test_files_in_the_mirror_are_told_so(shared_data: Path, tmp_path: Path) -> None:
    mirror = shared_data / "mirror"
    for file in entry("multi30k-val", tmp_path, mirror)["files"]:
        assert file["state"] == "in the mirror"
        url = urlsplit(file["urls"][0])
        assert file["path"] == str(mirror / url.netloc / url.path.strip("/"))


@pytest.mark.parametrize(
    ("name", "suffix", "n_bytes", "state"),
    [
        ("multi30k-val", ".part", 21_650, "part: 12 %"),
        ("newstest2014-filtered", ".part", None, "part: 2,700 bytes"),
        ("newstest2014-filtered", "", 2_700, "here"),
    ],
)
def test_what_has_arrived_is_told(
    tmp_path: Path, name: str, suffix: str, n_bytes: int | None, state: str
) -> None:
    url = remote_file(name, "en-de").url
    folder = tmp_path / "runs" / "downloads" / hashlib.sha256(url.encode()).hexdigest()[:16]
    folder.mkdir(parents=True)
    (folder / f"{url.rsplit('/', 1)[-1]}{suffix}").write_bytes(bytes(2_700))
    told = entry(name, tmp_path)["files"][0]
    assert (told["n_bytes"], told["state"]) == (n_bytes, state)
