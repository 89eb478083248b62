"""Data sets of the Hub, with a local server that is stopped later."""

import hashlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pytest
from pyarrow import parquet

REPOSITORY = "wmt/wmt14"
REVISION = "a1" * 20
OTHER_REVISION = "b2" * 20
Row = dict[str, str | None]


def rows_of(split: str, n_rows: int) -> list[Row]:
    return [{"de": f"{split} {i}\u2028\nja", "en": f"{split} {i}\u0085 yes"} for i in range(n_rows)]


EN_DE = ["en", "de"]
DE_EN = ["de", "en"]
ROWS: dict[str, list[Row]] = {"train": rows_of("train", 2_503), "test": rows_of("test", 7)}
TEST_PAIRS = [[f"test {i}\u0085 yes", f"test {i}\u2028 ja"] for i in range(7)]


def write_repository(folder: Path, splits: dict[str, list[Row]] = ROWS) -> Path:
    """Write the repository of a corpus: two Parquet files per split, and a card."""
    (folder / "de-en").mkdir(parents=True)
    kind = pa.struct([("de", pa.string()), ("en", pa.string())])
    for split, rows in splits.items():
        half = len(rows) // 2
        for number, part in enumerate((rows[:half], rows[half:])):
            table = pa.table({"translation": pa.array(part, kind)})
            parquet.write_table(table, folder / "de-en" / f"{split}-{number:05}-of-00002.parquet")
    files = [{"split": split, "path": f"de-en/{split}-*"} for split in splits]
    configs = json.dumps([{"config_name": "de-en", "data_files": files}])  # JSON is valid YAML
    card = f"---\nconfigs: {configs}\n---\n"
    (folder / "README.md").write_text(card, encoding="utf-8", newline="\n")
    return folder


class FakeHub(BaseHTTPRequestHandler):
    """The answers of the Hub that are needed to load a repository at one revision."""

    folder: Path  # contains OWNER/NAME of all repositories; set by the fixture

    def do_GET(self) -> None:
        """Send a file, a list of files, or the description of a repository."""
        path = unquote(urlsplit(self.path).path)
        found = re.fullmatch(
            rf"/(?:api/)?datasets/([^/]+/[^/]+)/(resolve|tree|revision)/{REVISION}(?:/(.*))?", path
        )
        if not found or not (repository := self.folder / found[1]).is_dir():
            known = f"/{REPOSITORY}/" in path
            self._send(404, {"X-Error-Code": "RevisionNotFound" if known else "RepoNotFound"})
        elif found[2] == "resolve":
            self._send_file(repository, found[3])
        elif found[2] == "tree":
            self._send_tree(repository, repository / (found[3] or ""))
        else:
            self._send_json({"id": found[1], "sha": REVISION, "siblings": []})

    do_HEAD = do_GET  # noqa: N815

    def _entry(self, repository: Path, path: Path) -> dict[str, object]:
        name = path.relative_to(repository).as_posix()
        if path.is_dir():
            return {"type": "directory", "path": name, "oid": "0" * 40, "size": 0}
        content = path.read_bytes()
        oid = hashlib.sha1(content).hexdigest()
        return {"type": "file", "path": name, "oid": oid, "size": len(content)}

    def _send_tree(self, repository: Path, folder: Path) -> None:
        if folder.is_dir():
            entries = [self._entry(repository, path) for path in sorted(folder.iterdir())]
            self._send_json(entries)
        else:
            self._send(404, {"X-Error-Code": "EntryNotFound"})

    def _send_file(self, repository: Path, name: str) -> None:
        headers = {"X-Repo-Commit": REVISION}
        path = repository / name
        if path.is_file():
            headers["ETag"] = f'"{self._entry(repository, path)["oid"]}"'
            self._send(200, headers, path.read_bytes())
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
        """Print nothing."""


READ = """
import json, sys
from nmtkit.utils.errors import UserError
from nmtkit.utils.language import Language
from nmtkit.sources.dataset import HubSource
from nmtkit.sources.sides import Variants
answers = []
for source in json.loads(sys.argv[1]):
    variants = Variants(*map(Language.of, source.pop("languages")))
    try:
        answers.append(list(HubSource(**source).rows([], variants)))
    except UserError as error:
        answers.append(str(error))
sys.stdout.write(json.dumps(answers))
"""
SOURCE = {
    "huggingface": REPOSITORY,
    "revision": REVISION,
    "subset": "de-en",
    "split": "test",
    "languages": EN_DE,
}


def read_elsewhere(variables: dict[str, str], *changes: dict[str, Any]) -> list[Any]:
    """Read in a new process, because the libraries read the variables when they are imported."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    result = subprocess.run(
        [sys.executable, "-c", READ, json.dumps([SOURCE | change for change in changes])],
        capture_output=True,
        check=True,
        encoding="utf-8",
        env=inherited | {"HF_HUB_DISABLE_TELEMETRY": "1"} | variables,
    )
    assert result.stderr == ""
    answers: list[Any] = json.loads(result.stdout)  # fails if the libraries print anything
    return answers


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment variables for the local Hub and an empty cache."""
    FakeHub.folder = folder = tmp_path_factory.mktemp("hub") / "repositories"
    write_repository(folder / REPOSITORY)
    gap: list[Row] = [{"de": "eins", "en": "one"}, {"de": "zwei", "en": None}]
    write_repository(folder / "wmt/gap", {"test": gap})
    write_repository(folder / "wmt/damaged")
    damaged = folder / "wmt/damaged/de-en/test-00000-of-00002.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-30])
    (folder / "wmt/labels").mkdir()
    table = pa.table({"text": ["ja"], "label": [3]})
    parquet.write_table(table, folder / "wmt/labels/test.parquet")
    with ThreadingHTTPServer(("127.0.0.1", 0), FakeHub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield {
            "HF_HOME": str(tmp_path_factory.mktemp("hub") / "home"),
            "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
        }
        server.shutdown()


GOOD: list[tuple[dict[str, Any], list[list[str]]]] = [
    ({}, TEST_PAIRS),
    (
        {"split": "train", "languages": DE_EN},
        [[f"train {i}\u2028 ja", f"train {i}\u0085 yes"] for i in range(2_503)],
    ),
    ({"huggingface": "wmt/gap"}, [["one", "eins"]]),  # without the row that has no translation
]
BAD: list[tuple[dict[str, Any], str]] = [
    ({"revision": OTHER_REVISION}, f"Revision '{OTHER_REVISION}' doesn't exist"),
    (
        {"huggingface": "missing/nothing"},
        "'missing/nothing' doesn't exist on the Hub or cannot be accessed",
    ),
    ({"subset": "fr-en"}, r"cannot load fr-en of wmt/wmt14 at a1.*: .*Available: \['de-en'\]"),
    ({"split": "dev"}, r"de-en of wmt/wmt14 at a1\w* has no split dev; it has train, test"),
    ({"split": "train[:3]"}, r"has no split train\[:3\]; it has train, test"),
    (
        {"languages": ["fr", "de"]},
        r"both fr and de .*translation\.de, translation\.en",
    ),
    (
        {"huggingface": "wmt/labels", "subset": "default"},
        r"both en and de .*text",
    ),
    ({"huggingface": "wmt/damaged"}, r"cannot load de-en of wmt/damaged .*Parquet magic bytes"),
]


@pytest.fixture(scope="module")
def answers(hub: dict[str, str]) -> list[Any]:
    return read_elsewhere(hub, *(changes for changes, _ in [*GOOD, *BAD]))


def test_rows_are_in_order(answers: list[Any]) -> None:
    assert answers[: len(GOOD)] == [pairs for _, pairs in GOOD]


def test_missing_parts_are_named(answers: list[Any]) -> None:
    for answer, (_, reason) in zip(answers[len(GOOD) :], BAD, strict=True):
        assert re.search(reason, answer)


# After the server is stopped


@pytest.fixture(scope="module")
def gone(hub: dict[str, str], answers: list[Any]) -> dict[str, str]:
    """The environment variables for the same cache, and an address without a server."""
    assert answers
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    return hub | {"HF_ENDPOINT": f"http://127.0.0.1:{port}"}


def test_cache_is_used_without_hub(gone: dict[str, str]) -> None:
    assert read_elsewhere(gone, {}) == [TEST_PAIRS]
    other, nothing = read_elsewhere(
        gone | {"HF_HUB_OFFLINE": "1"},
        {"revision": OTHER_REVISION},
        {"huggingface": "missing/nothing"},
    )
    assert f"de-en of wmt/wmt14 at {OTHER_REVISION} is not in the cache" in other
    assert REVISION in other
    assert "is not in the cache" in nothing
    assert "unreachable" in nothing
