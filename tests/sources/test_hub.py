"""Data sets of the Hub: from a local folder, and from a hub on this machine that goes away."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import datasets
import pyarrow as pa
import pytest
from pyarrow import parquet

from nmtkit.errors import UserError
from nmtkit.sources.text import HubDataset, read_pairs

REPOSITORY = "wmt/wmt14"
REVISION, OTHER_REVISION = "a1" * 20, "b2" * 20
Row = dict[str, str | None]


def rows_of(split: str, n_rows: int) -> list[Row]:
    return [{"de": f"{split} {i}\u2028\nja", "en": f"{split} {i}\u0085 yes"} for i in range(n_rows)]


ROWS: dict[str, list[Row]] = {"train": rows_of("train", 2_503), "test": rows_of("test", 7)}
TEST_PAIRS = [(f"test {i}\u0085 yes", f"test {i}\u2028 ja") for i in range(7)]


def make_repository(folder: Path, splits: dict[str, list[Row]] = ROWS) -> Path:
    """Write what the repository of a corpus holds: two parquet files a split, and a card."""
    (folder / "de-en").mkdir(parents=True)
    kind = pa.struct([("de", pa.string()), ("en", pa.string())])
    for split, rows in splits.items():
        half = len(rows) // 2
        for number, part in enumerate((rows[:half], rows[half:])):
            table = pa.table({"translation": pa.array(part, kind)})
            parquet.write_table(table, folder / "de-en" / f"{split}-{number:05}-of-00002.parquet")
    files = [{"split": split, "path": f"de-en/{split}-*"} for split in splits]
    configs = json.dumps([{"config_name": "de-en", "data_files": files}])  # YAML holds JSON
    card = f"---\nconfigs: {configs}\n---\n"
    (folder / "README.md").write_text(card, encoding="utf-8", newline="\n")
    return folder


# A local folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return tmp_path / "wmt14"


def local(folder: Path, **changes: Any) -> HubDataset:
    fields = {"subset": "de-en", "split": "test", "src_lang": "en", "tgt_lang": "de"} | changes
    return HubDataset("tiny", str(folder), revision=None, **fields)


def test_rows_are_read_in_order_over_files_and_batches(folder: Path) -> None:
    make_repository(folder)
    pairs = list(read_pairs(local(folder, split="train", src_lang="de", tgt_lang="en")))
    assert pairs == [(f"train {i}\u2028 ja", f"train {i}\u0085 yes") for i in range(2_503)]


def test_a_line_feed_in_a_text_is_a_space(folder: Path) -> None:
    assert list(read_pairs(local(make_repository(folder)))) == TEST_PAIRS


def test_nothing_is_printed(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    list(read_pairs(local(make_repository(folder))))
    assert capfd.readouterr() == ("", "")


def test_a_folder_that_changes_is_read_anew(folder: Path) -> None:
    make_repository(folder)
    list(read_pairs(local(folder)))
    table = pa.table({"translation": [{"de": "neu", "en": "new"}]})
    for path in folder.glob("de-en/test-*"):
        parquet.write_table(table, path)
    assert list(read_pairs(local(folder))) == [("new", "neu")] * 2


def test_a_folder_of_the_same_name_is_another_one(folder: Path) -> None:
    for parent, german in (("a", "eins"), ("b", "zwei")):
        twin = folder.parent / parent / "wmt14"
        make_repository(twin, {"test": [{"de": german, "en": "one"}] * 2})
        assert list(read_pairs(local(twin))) == [("one", german)] * 2


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"subset": "fr-en"}, r"cannot load fr-en of .*wmt14: .*Available: \['de-en'\]"),
        ({"split": "dev"}, r"de-en of .*wmt14 has no split dev; it has train, test"),
        ({"split": "train[:3]"}, r"has no split train\[:3\]; it has train, test"),
        (
            {"src_lang": "fr"},
            r"no texts in a column translation\.fr; it has translation\.de, translation\.en",
        ),
    ],
)
def test_what_there_is_not_is_answered_with_what_there_is(
    folder: Path, changes: dict[str, str], reason: str
) -> None:
    make_repository(folder)
    with pytest.raises(UserError, match=reason):
        list(read_pairs(local(folder, **changes)))


def test_rows_without_the_column_are_refused(folder: Path) -> None:
    folder.mkdir()
    parquet.write_table(pa.table({"text": ["ja"], "label": [3]}), folder / "test.parquet")
    with pytest.raises(UserError, match=r"no texts in a column translation\.en; it has text$"):
        list(read_pairs(local(folder, subset="default")))


def test_a_row_without_a_text_is_named(folder: Path) -> None:
    rows: list[Row] = [{"de": "eins", "en": "one"}, {"de": "zwei", "en": None}]
    make_repository(folder, {"test": rows})
    with pytest.raises(UserError, match=r"row 2 of test has no translation\.en"):
        list(read_pairs(local(folder)))


def test_a_damaged_file_is_refused(folder: Path) -> None:
    make_repository(folder)
    path = folder / "de-en" / "test-00000-of-00002.parquet"
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(UserError, match=r"cannot load de-en of .*wmt14: .*Parquet magic bytes"):
        list(read_pairs(local(folder)))


def test_a_name_without_revision_is_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"wmt14 is no folder; .* give the revision too"):
        list(read_pairs(local(tmp_path / "wmt14")))


# A hub that goes away


class FakeHub(BaseHTTPRequestHandler):
    """The few answers of the Hub that loading one repository at one revision takes."""

    folder: Path  # of the repository; set by the fixture

    def do_GET(self) -> None:
        """Answer a file, a list of files or what is known of the repository."""
        path = unquote(urlsplit(self.path).path)
        if (name := path.removeprefix(f"/datasets/{REPOSITORY}/resolve/{REVISION}/")) != path:
            self._send_file(self.folder / name)
        elif (name := path.removeprefix(f"/api/datasets/{REPOSITORY}/tree/{REVISION}")) != path:
            names = sorted((self.folder / name.strip("/")).iterdir())
            self._send_json([self._entry(path) for path in names])
        elif path == f"/api/datasets/{REPOSITORY}/revision/{REVISION}":
            self._send_json({"id": REPOSITORY, "sha": REVISION, "siblings": []})
        else:
            known = f"/{REPOSITORY}/" in path
            self._send(404, {"X-Error-Code": "RevisionNotFound" if known else "RepoNotFound"})

    do_HEAD = do_GET  # noqa: N815

    def do_POST(self) -> None:
        """Answer what is known of some files."""
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        paths = json.loads(body)["paths"] if body.startswith("{") else parse_qs(body)["paths"]
        self._send_json([self._entry(self.folder / path) for path in paths])

    def _entry(self, path: Path) -> dict[str, object]:
        name = path.relative_to(self.folder).as_posix()
        if path.is_dir():
            return {"type": "directory", "path": name, "oid": "0" * 40, "size": 0}
        content = path.read_bytes()
        oid = hashlib.sha1(content).hexdigest()
        return {"type": "file", "path": name, "oid": oid, "size": len(content)}

    def _send_file(self, path: Path) -> None:
        headers = {"X-Repo-Commit": REVISION}
        if path.is_file():
            self._send(200, headers | {"ETag": f'"{self._entry(path)["oid"]}"'}, path.read_bytes())
        else:
            self._send(404, headers | {"X-Error-Code": "EntryNotFound"})

    def _send_json(self, value: object) -> None:
        self._send(200, {"Content-Type": "application/json"}, json.dumps(value).encode())

    def _send(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


READ = """
import json, sys
from nmtkit.sources.text import HubDataset, read_pairs
from nmtkit.errors import UserError
answers = []
for changes in json.loads(sys.argv[1]):
    try:
        answers.append(list(read_pairs(HubDataset(name="tiny", **changes))))
    except UserError as error:
        answers.append(str(error))
sys.stdout.write(json.dumps(answers))
"""
TEXT = {
    "repository": REPOSITORY,
    "subset": "de-en",
    "split": "test",
    "revision": REVISION,
    "src_lang": "en",
    "tgt_lang": "de",
}


def read_elsewhere(variables: dict[str, str], *changes: dict[str, str]) -> list[Any]:
    """Read in a new process, which sees the variables when it imports the libraries."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    result = subprocess.run(
        [sys.executable, "-c", READ, json.dumps([TEXT | change for change in changes])],
        capture_output=True,
        check=True,
        encoding="utf-8",
        env=inherited | {"HF_HUB_DISABLE_TELEMETRY": "1"} | variables,
    )
    assert result.stderr == ""
    answers: list[Any] = json.loads(result.stdout)
    return answers


@pytest.fixture(scope="module")
def visited(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], list[Any]]:
    """Where the Hub was and what its cache is, with what was read while there was a Hub."""
    FakeHub.folder = make_repository(tmp_path_factory.mktemp("hub") / "repository")
    with ThreadingHTTPServer(("127.0.0.1", 0), FakeHub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        variables = {
            "HF_HOME": str(tmp_path_factory.mktemp("hub") / "home"),
            "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
        }
        answers = read_elsewhere(
            variables,
            {},
            {"revision": OTHER_REVISION},
            {"repository": "nobody/nothing"},
            {"subset": "fr-en"},
        )
        server.shutdown()
    return variables, answers


Visited = tuple[dict[str, str], list[Any]]


def test_a_repository_is_read_at_its_revision(visited: Visited) -> None:
    assert visited[1][0] == [list(pair) for pair in TEST_PAIRS]


def test_what_the_hub_has_not_is_named(visited: Visited) -> None:
    other, nothing, subset = visited[1][1:]
    assert f"Revision '{OTHER_REVISION}' doesn't exist" in other
    assert "'nobody/nothing' doesn't exist on the Hub or cannot be accessed" in nothing
    assert "Available: ['de-en']" in subset


@pytest.mark.parametrize("offline", [{}, {"HF_HUB_OFFLINE": "1"}, {"HF_DATASETS_OFFLINE": "1"}])
def test_what_is_in_the_cache_needs_no_hub(visited: Visited, offline: dict[str, str]) -> None:
    assert read_elsewhere(visited[0] | offline, {}) == [visited[1][0]]


def test_the_cache_is_not_taken_for_another_revision(visited: Visited) -> None:
    offline = visited[0] | {"HF_HUB_OFFLINE": "1"}
    other, nothing = read_elsewhere(
        offline, {"revision": OTHER_REVISION}, {"repository": "nobody/nothing"}
    )
    assert f"de-en of wmt/wmt14 at {OTHER_REVISION} is not in the cache" in other
    assert f"what the cache has is revision {REVISION}" in other
    assert "is not in the cache, and the Hugging Face Hub is not reached" in nothing
