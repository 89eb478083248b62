"""Exported models: the model card has their provenance, and uploads are complete."""

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from nmtkit.sources.parallel import find_corpus
from nmtkit.store.manifests import MEASUREMENTS, write_manifest
from nmtkit.store.records import SEAL, sealed, write_json
from nmtkit.utils.language import Language
from system.command import artifact, contents, done, environment, nmtkit, sentence
from system.conftest import Finished

HUGGING_FACE = ("exported", "--format", "huggingface")
# A recipe name that would break YAML, Markdown or a template if it were not escaped.
HOSTILE = "---\n\u2028\x85\x7f---\n: '\" | - [x](y) `a` {{ 1 }} {% x %} 🐈"


@pytest.mark.parametrize(("name", "licence"), [("tiny", None), (HOSTILE, "apache-2.0")])
def test_card_has_scores_and_licence(name: str, licence: str | None, complete: Path) -> None:
    bundle, prepared = artifact(complete, "average"), artifact(complete, "prepare")
    measured = json.loads((bundle / MEASUREMENTS).read_bytes())
    measured["run"]["name"] = name
    del measured[SEAL]
    write_json(bundle / MEASUREMENTS, sealed(measured))
    counts = json.loads((prepared / "counts.json").read_bytes())
    counts["train"][0]["corpus"] = "demo-train"  # the licence does not depend on the name
    (prepared / "counts.json").write_text(json.dumps(counts), encoding="utf-8")
    manifest = json.loads((prepared / "manifest.json").read_bytes())
    if licence:
        corpus = find_corpus("demo-train", Language.of("en"), Language.of("de"))
        manifest["depends_on"]["inputs"]["train"] = [corpus.identity()]
    kept = {key: manifest[key] for key in ("kind", "fingerprint", "depends_on")}
    write_manifest(prepared, kept, [MEASUREMENTS])
    done(nmtkit(complete, "export", str(bundle), *HUGGING_FACE))
    text = (complete / "exported" / "README.md").read_text(encoding="utf-8")
    _, front_matter, body = text.split("---\n", 2)
    front = yaml.safe_load(front_matter)
    assert (front["language"], front.get("license")) == (["en", "de"], licence)
    (index,) = front["model-index"]
    (result,) = index["results"]
    metric, other = result["metrics"]
    assert other["name"] == "chrF2"
    scores = json.loads((artifact(complete, "score") / "scores.json").read_bytes())["test"]
    assert index["name"] == name
    assert result["dataset"]["revision"] == scores["test_set"]["sha256"]
    assert metric["value"] == round(scores["sacrebleu"]["score"], 2)
    assert metric["args"]["signature"] == scores["sacrebleu"]["signature"]
    provenance = json.loads(body.split("```json\n")[1].removesuffix("```\n"))
    for stage in ("prepare", "train", "average"):
        assert provenance[stage]["fingerprint"] == artifact(complete, stage).name
    assert str(complete) not in body
    # A run of one of the paper's recipes has the paper's kinds of BLEU, too.
    scored = artifact(complete, "score")
    measured = json.loads((scored / MEASUREMENTS).read_bytes())
    measured["run"]["overrides"] = ["scoring.paper_bleu=true"]
    del measured[SEAL]
    write_json(scored / MEASUREMENTS, sealed(measured))
    rmtree(complete / "exported")
    done(nmtkit(complete, "export", str(bundle), *HUGGING_FACE))
    card = (complete / "exported" / "README.md").read_text(encoding="utf-8")
    assert "tokenized BLEU" not in text
    assert "tokenized BLEU" in card


class Hub(ThreadingHTTPServer):
    """A server with the API of the Hugging Face hub, which keeps uploads in memory.

    Large files are uploaded to its LFS.
    """

    def __init__(self, status: int) -> None:
        super().__init__(("127.0.0.1", 0), Request)
        self.status, self.url = status, f"http://127.0.0.1:{self.server_port}"
        self.created: list[dict[str, Any]] = []
        self.tokens: set[str] = set()
        self.large: dict[str, bytes] = {}
        self.files: dict[str, bytes] = {}

    def answer(self, path: str, body: bytes) -> dict[str, Any]:
        if path.startswith("/upload/"):
            self.large[sha256(body).hexdigest()] = body
        elif path.endswith("/repos/create"):
            self.created.append(json.loads(body))
            return {"url": f"{self.url}/me/model"}
        elif "/preupload/" in path:
            names = [file["path"] for file in json.loads(body)["files"]]
            files = []
            for name in names:
                mode = "lfs" if name.endswith(".safetensors") else "regular"
                files.append({"path": name, "uploadMode": mode, "shouldIgnore": False})
            return {"files": files}
        elif path.endswith("/objects/batch"):
            objects = json.loads(body)["objects"]
            for large_file in objects:
                url = f"{self.url}/upload/{large_file['oid']}"
                large_file["actions"] = {"upload": {"href": url}}
            return {"transfer": "basic", "objects": objects}
        elif "/commit/" in path:
            for line in map(json.loads, body.splitlines()):
                value = line["value"]
                if line["key"] == "file":
                    self.files[value["path"]] = base64.b64decode(value["content"])
                elif line["key"] == "lfsFile":
                    self.files[value["path"]] = self.large[value["oid"]]
            return {"commitUrl": f"{self.url}/me/model/commit/1", "commitOid": "1" * 40}
        return {}


class Request(BaseHTTPRequestHandler):
    server: Hub

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.server.tokens.add(self.headers.get("Authorization", ""))
        is_refused = self.server.status != 200 and "/api/" in self.path
        content = {"error": "refused"} if is_refused else self.server.answer(self.path, body)
        answer = json.dumps(content).encode()
        self.send_response(self.server.status if is_refused else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def do_GET(self) -> None:
        self.do_POST()

    def do_PUT(self) -> None:
        self.do_POST()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def hub(status: int = 200) -> Iterator[Hub]:
    with Hub(status) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def user(url: str, home: Path, **token: str) -> dict[str, str]:
    """The environment of a user of the hub at `url`, with nothing from this machine's user."""
    own = {name: value for name, value in environment().items() if not name.startswith("HF_")}
    return {**own, "HF_HOME": str(home), "HF_ENDPOINT": url, "HF_HUB_DISABLE_XET": "1", **token}


@pytest.mark.parametrize("format_name", ["huggingface", "ctranslate2"])
def test_pushed_files_arrive_complete(format_name: str, finished: Finished, tmp_path: Path) -> None:
    bundle = str(finished.artifact("average"))
    command = ("export", bundle, "exported", "--format", format_name, "--push", "me/model")
    with hub() as server:
        done(nmtkit(tmp_path, *command, env=user(server.url, tmp_path, HF_TOKEN="hf_a")))
    assert [repository["visibility"] for repository in server.created] == ["private"]
    assert "Bearer hf_a" in server.tokens
    kept = {path.name: path.read_bytes() for path in (tmp_path / "exported").iterdir()}
    assert server.files == kept


@pytest.mark.parametrize(
    ("status", "token"), [(401, "hf_a"), (403, "hf_a"), (404, "hf_a"), (200, ""), (0, "hf_a")]
)
def test_failed_push_keeps_files(
    status: int, token: str, finished: Finished, tmp_path: Path
) -> None:
    bundle = str(finished.artifact("average"))
    variables = {"HF_TOKEN": token} if token else {}
    with hub(status) as server:
        url = server.url if status else "http://127.0.0.1:1"
        ended = nmtkit(
            *(tmp_path, "export", bundle, *HUGGING_FACE, "--push", "me/model"),
            env=user(url, tmp_path, **variables),
        )
    assert "`hf upload me/model exported`" in sentence(ended)
    assert ended.out == "exported\n"
    assert "README.md" in contents(tmp_path / "exported")
    assert not server.files
