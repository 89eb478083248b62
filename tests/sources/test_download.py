"""Downloads from a local server that disconnects, stalls, and sends wrong data."""

import hashlib
import itertools
import shutil
import socket
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packed import tarred, zipped

from nmtkit.sources.catalog import RemoteFile
from nmtkit.sources.download import Downloads
from nmtkit.sources.transfer import MAX_ATTEMPTS
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError

BODY = b"\x1f\x8b" + bytes(i * i % 251 for i in range(299_998))
OTHER = b"\x1f\x8b" + bytes(i * i % 241 for i in range(299_998))
SHA256 = hashlib.sha256(BODY).hexdigest()
MD5 = hashlib.md5(BODY).hexdigest()
KINDS = ("sha256", "md5")  # the published facts: length and sha256, or only the md5


class Handler(BaseHTTPRequestHandler):
    """Answers every request with the next of the server's behaviours; the last one is repeated."""

    server: "Server"

    def do_GET(self) -> None:
        self.server.requests.append(dict(self.headers))
        behaviours = self.server.behaviours
        (behaviours.pop(0) if len(behaviours) > 1 else behaviours[0])(self)

    def log_message(self, *_: object) -> None:
        pass

    def head(self, status: int, **headers: object) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()

    def send(self, body: bytes) -> None:
        self.server.n_sent += len(body)
        self.wfile.write(body)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    behaviours: list[Callable[[Handler], None]]
    requests: list[dict[str, str]]
    n_sent: int  # bytes of all bodies

    def handle_error(self, *_: object) -> None:
        """Print nothing if a client disconnects."""


Behaviour = Callable[[Handler], None]


def start_of(handler: Handler) -> int:
    """The first requested byte."""
    return int(handler.headers.get("Range", "bytes=0-").removeprefix("bytes=").removesuffix("-"))


def honest(handler: Handler, body: bytes = BODY, end: int | None = None) -> None:
    """Serve according to RFC 9110; close the connection after `end` bytes of the file."""
    start = start_of(handler)
    if start >= len(body):
        handler.head(416, Content_Range=f"bytes */{len(body)}", Content_Length=0)
    elif start:
        content_range = f"bytes {start}-{len(body) - 1}/{len(body)}"
        handler.head(206, Content_Length=len(body) - start, Content_Range=content_range)
        handler.send(body[start:end])
    else:
        handler.head(200, Content_Length=len(body))
        handler.send(body[start:end])


def cut(end: int) -> Behaviour:
    return partial(honest, end=end)


altered = partial(honest, body=OTHER)
altered_and_cut = partial(honest, body=OTHER, end=90_000)


def stalls(handler: Handler) -> None:
    honest(handler, end=100_000)
    handler.wfile.flush()
    time.sleep(0.6)


def sends_the_wrong_range(handler: Handler) -> None:
    handler.head(206, Content_Length=5, Content_Range=f"bytes 0-4/{len(BODY)}")
    handler.send(BODY[:5])


def chunks(handler: Handler) -> None:
    handler.head(200, Transfer_Encoding="chunked")
    for start in range(0, len(BODY), 70_000):
        chunk = BODY[start : start + 70_000]
        handler.send(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
    handler.send(b"0\r\n\r\n")


def html(handler: Handler) -> None:
    handler.head(200, Content_Type="text/html; charset=utf-8")
    handler.send(b"<html>This domain is for sale</html>")


def endless(handler: Handler) -> None:
    handler.head(200)
    while True:
        handler.send(BODY)


def without_length(handler: Handler) -> None:
    handler.head(200)
    handler.send(BODY)


def status(code: int) -> Behaviour:
    return lambda handler: handler.head(code, Content_Length=0)


def announces(n_bytes: int | str) -> Behaviour:
    def behaviour(handler: Handler) -> None:
        handler.head(200, Content_Length=n_bytes)
        handler.send(BODY)

    return behaviour


def nonsense(handler: Handler) -> None:
    handler.send(b"220 not HTTP\r\n\r\n")


def redirect(address: str) -> Behaviour:
    return lambda handler: handler.head(302, Location=address, Content_Length=0)


class Site(NamedTuple):
    server: Server
    file: RemoteFile
    folder: Path
    slept: list[float]
    messages: list[str]  # warnings
    advances: list[int]  # bytes that progress reported

    def serve(self, *behaviours: Behaviour) -> None:
        self.server.behaviours = list(behaviours)

    def with_file(self, **file: object) -> "Site":
        return self._replace(file=RemoteFile.model_validate(file))

    def knowing(self, kind: str) -> "Site":
        """The same site, if only these facts were published."""
        published: dict[str, dict[str, object]] = {
            "sha256": {"n_bytes": len(BODY), "sha256": SHA256},
            "md5": {"md5": MD5},
        }
        return self.with_file(urls=self.file.urls, **published[kind])

    def fetch(self, mirror: Path | None = None) -> Path:
        self.advances.clear()
        return Downloads(self.folder, mirror).fetch(self.file)

    @property
    def downloads(self) -> Downloads:
        return Downloads(self.folder)

    @property
    def requests(self) -> list[dict[str, str]]:
        return self.server.requests

    @property
    def kept(self) -> dict[str, int]:
        """The names and sizes of the downloaded files, without locks."""
        files = [path for path in self.folder.rglob("*") if path.is_file()]
        return {path.name: path.stat().st_size for path in files if path.suffix != ".lock"}

    def mirrored(self, folder: Path, content: bytes) -> Path:
        path = folder / f"127.0.0.1:{self.server.server_port}" / "wmt" / Path(self.file.url).name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path


@contextmanager
def serving(*behaviours: Behaviour) -> Iterator[tuple[Server, str]]:
    """Run a server, and yield it and its address."""
    with Server(("127.0.0.1", 0), Handler) as server:
        server.requests = []
        server.n_sent = 0
        server.behaviours = list(behaviours)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server, f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")
    with serving() as (server, address):
        file = RemoteFile(urls=(f"{address}/wmt/corpus.tgz",), n_bytes=len(BODY), sha256=SHA256)
        site = Site(server, file, tmp_path / "downloads", [], [], [])
        monkeypatch.setattr("nmtkit.sources.transfer.TIMEOUT_S", 0.5)
        monkeypatch.setattr("nmtkit.sources.transfer.sleep", site.slept.append)
        monkeypatch.setattr(progress, "warn", site.messages.append)
        monkeypatch.setattr(progress.Task, "advance", lambda _, n: site.advances.append(n))
        yield site


@pytest.mark.parametrize("kind", KINDS)
def test_file_is_downloaded_once(site: Site, kind: str) -> None:
    site = site.knowing(kind)
    site.serve(honest)
    assert site.downloads.find(site.file) is None
    for _ in range(2):
        path = site.fetch()
        assert path.read_bytes() == BODY
        assert sum(site.advances) == len(BODY)
        assert site.downloads.find(site.file) == path
    folder = hashlib.sha256(site.file.url.encode()).hexdigest()[:16]
    assert path == site.folder / folder / "corpus.tgz"
    assert len(site.requests) == 1
    assert site.kept == {"corpus.tgz": len(BODY)}


@pytest.mark.parametrize("kind", KINDS)
def test_cut_download_resumes(site: Site, kind: str) -> None:
    site = site.knowing(kind)
    ends = range(40_000, len(BODY), 40_000)  # more often than MAX_ATTEMPTS
    site.serve(*map(cut, ends), honest)
    assert site.fetch().read_bytes() == BODY
    assert site.server.n_sent == len(BODY)
    ranges = [request.get("Range") for request in site.requests]
    assert ranges == [None, *(f"bytes={end}-" for end in ends)]
    assert site.kept == {"corpus.tgz": len(BODY)}


@pytest.mark.parametrize("behaviour", [endless, without_length])
def test_unknown_length_is_refused(site: Site, behaviour: Behaviour) -> None:
    site = site.knowing("md5")
    site.serve(behaviour)
    with pytest.raises(UserError, match="--mirror DIR"):
        site.fetch()
    assert site.kept == {}


def test_failing_server_suggests_mirror(site: Site) -> None:
    site.serve(status(503))
    host = f"127.0.0.1:{site.server.server_port}"
    place = f"DIR/{host}/wmt/corpus.tgz"
    with pytest.raises(UserError, match=rf"HTTP 503.*{site.file.url} .*{place} .*--mirror DIR"):
        site.fetch()
    assert len(site.requests) == MAX_ATTEMPTS


def test_full_disk_is_reported_first(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")._replace(free=299_999)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    site.serve(honest)
    for kind in KINDS:
        with pytest.raises(UserError, match=r"300,000 bytes .*299,999"):
            site.knowing(kind).fetch()
        assert "corpus.tgz.part" not in site.kept


@pytest.mark.parametrize("content", [OTHER, BODY[:-1], b""])
def test_stored_file_is_verified(site: Site, content: bytes) -> None:
    site.serve(honest)
    site.fetch().write_bytes(content)
    with pytest.raises(UserError, match=r"corpus\.tgz has .* instead of"):
        site.fetch()


@pytest.mark.parametrize("kind", KINDS)
def test_mirror_needs_no_network(site: Site, tmp_path: Path, kind: str) -> None:
    site, mirror = site.knowing(kind), tmp_path / "mirror"
    mirrored = site.mirrored(mirror, BODY)
    for _ in range(2):
        assert (
            site.fetch(mirror=mirror) == Downloads(site.folder, mirror).find(site.file) == mirrored
        )
    mirrored.write_bytes(OTHER)
    with pytest.raises(UserError, match=rf"mirror/.*corpus\.tgz has {kind} "):
        site.fetch(mirror=mirror)
    assert site.requests == []
    assert site.kept == {}


# Several hosts


def refused() -> str:
    """The address of a host that refuses connections."""
    with Server(("127.0.0.1", 0), Handler) as server:
        return f"http://127.0.0.1:{server.server_port}"


FAILURES = {
    "refuses": None,
    "stalls": stalls,
    "cuts": cut(100_000),
    "error page": html,
    "other bytes": altered,
    "cut other bytes": altered_and_cut,
    "gone": status(404),
    "busy": status(503),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("failure", FAILURES)
def test_failing_host_leads_to_next(site: Site, failure: str, kind: str) -> None:
    behaviour = FAILURES[failure]
    if behaviour is None:
        first = f"{refused()}/wmt/corpus.tgz"
    else:
        site.serve(behaviour)
        first = site.file.url
    with serving(honest) as (second, address):
        urls = first, f"{address}/mirror/corpus.tgz"
        site = site.with_file(urls=urls, **site.knowing(kind).file.model_dump(exclude={"urls"}))
        assert site.fetch().read_bytes() == BODY
        assert sum(site.advances) == len(BODY)
        resumed = {"cut other bytes": ["bytes=90000-", None]}
        resumed |= {"stalls": ["bytes=100000-"], "cuts": ["bytes=100000-"]}
        ranges = [request.get("Range") for request in second.requests]
        assert ranges == resumed.get(failure, [None])
    assert site.kept == {"corpus.tgz": len(BODY)}
    (seen,) = site.messages
    assert seen.startswith(f"download {first}: ")
    assert site.slept == []


def endless_chunks(handler: Handler) -> None:
    handler.head(200, Transfer_Encoding="chunked")
    for _ in range(10_000):
        handler.send(f"{len(BODY):x}\r\n".encode() + BODY + b"\r\n")


def endless_redirect(handler: Handler) -> None:
    handler.head(302, Location="ftp://127.0.0.1/")
    for _ in range(10_000):
        handler.send(BODY)


def announces_range(handler: Handler) -> None:
    handler.head(206, Content_Length=5, Content_Range=f"bytes 0-4/{'9' * 5_000}")
    handler.send(BODY[:5])


@pytest.mark.parametrize(
    "behaviour",
    [
        announces("9" * 5_000),
        announces("\u00b2"),
        announces(999_999_999_999_999_999),
        announces(2**37),
        announces(-1),
        announces_range,
        endless,
        endless_chunks,
        endless_redirect,
        redirect("http://a..b/"),
        redirect("http://[::1/"),
        redirect("http://127.0.0.1:99999/"),
        redirect("http://127.0.0.1:port/"),
        redirect("http:///wmt"),
        redirect("file:///etc/passwd"),
        redirect("data:text/plain,a"),
        redirect(""),
        redirect("corpus.tgz"),  # for ever
        redirect("/a b\u00e9"),
    ],
)
def test_bad_answer_leads_to_next_host(
    site: Site, monkeypatch: pytest.MonkeyPatch, behaviour: Behaviour
) -> None:
    monkeypatch.setattr("nmtkit.sources.transfer.MAX_UNANNOUNCED_BYTES", 2 * len(BODY))
    site.serve(behaviour)
    with serving(honest) as (_, address):
        site = site.with_file(urls=(site.file.url, f"{address}/corpus.tgz"), md5=MD5)
        assert site.fetch().read_bytes() == BODY
    assert site.kept == {"corpus.tgz": len(BODY)}
    (seen,) = site.messages
    assert seen.startswith("download http://127.0.0.1:")
    assert len(seen) < 500


def test_redirect_to_ftp_is_not_contacted(site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, serving(honest) as (_, address):
        site.serve(redirect(f"ftp://127.0.0.1:{listener.getsockname()[1]}/corpus.tgz"))
        site = site.with_file(urls=(site.file.url, f"{address}/corpus.tgz"), md5=MD5)
        assert site.fetch().read_bytes() == BODY
        listener.settimeout(0.1)
        with pytest.raises(TimeoutError):
            listener.accept()


def test_unannounced_body_is_limited_by_disk(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")._replace(free=len(BODY))
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    site.serve(endless_chunks)
    with pytest.raises(UserError, match="more than 150,000 bytes"):
        site.with_file(urls=site.file.urls, md5=MD5).fetch()
    assert site.kept == {}


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2, zipfile.ZIP_DEFLATED])
def test_zip_bomb_is_not_decompressed(
    site: Site, monkeypatch: pytest.MonkeyPatch, method: int
) -> None:
    """Without a published hash, an archive is verified by the checksums of its members."""
    bomb = zipped({"a.txt": bytes(2**25)}, method)
    text = zipped({"a.txt": b"text\n"})
    site.serve(partial(honest, body=bomb))
    with serving(partial(honest, body=text)) as (_, address):
        url = site.file.url.replace(".tgz", ".zip")
        site = site.with_file(urls=(url, f"{address}/corpus.zip"))
        monkeypatch.setattr("zipfile.ZipFile.testzip", lambda _: None)
        assert site.fetch().read_bytes() == text
    (seen,) = site.messages
    assert "not a complete archive" in seen


def test_tar_without_hash_is_whole(site: Site) -> None:
    site = site.with_file(urls=site.file.urls)
    whole = tarred({"a.de": BODY}, "gz")
    flipped = bytearray(whole)
    flipped[-6] ^= 1  # of the checksum
    for body in (whole[:-9], bytes(flipped), b"<html>This domain is for sale</html>"):
        site.serve(partial(honest, body=body))
        with pytest.raises(UserError, match="not a complete archive"):
            site.fetch()
    site.serve(partial(honest, body=whole))
    assert site.fetch().read_bytes() == whole


def test_redirected_download_is_verified(site: Site) -> None:
    with serving(honest, altered) as (_, address):
        site.serve(redirect(address))
        site.fetch().unlink()
        with pytest.raises(UserError, match=r"\(sent other bytes than expected"):
            site.fetch()
    assert site.kept == {}
    assert len(site.requests) == 2


def test_unreachable_hosts_suggest_mirror(site: Site) -> None:
    site.serve(status(404))  # as a proxy may answer that blocks the network
    urls = f"{refused()}/a.tgz", site.file.url, f"{refused()}/a.tgz"
    hosts = r" \(.*".join(url.rpartition("/")[0] for url in (urls[0], urls[2]))
    with pytest.raises(UserError, match=rf"{hosts} \(.* pass --mirror DIR"):
        site.with_file(urls=urls, sha256=SHA256).fetch()
    assert site.slept == []


def test_archives_have_separate_drafts(site: Site, tmp_path: Path) -> None:
    site.serve(cut(80_000))
    with serving(altered_and_cut) as (second, address):
        other = RemoteFile(
            urls=(f"{address}/corpus.zip",), sha256=hashlib.sha256(OTHER).hexdigest()
        )
        site = site._replace(file=site.file.model_copy(update={"others": (other,)}))
        with pytest.raises(UserError):
            site.fetch()
        assert second.requests[0].get("Range") is None
        assert site.kept == {"corpus.tgz.part": 80_000, "corpus.zip.part": 90_000}
        site.serve(honest)  # but the draft of the other archive is longer
        second.behaviours[:] = [altered]
        path = site.fetch()
        assert second.requests[-1]["Range"] == "bytes=90000-"
    assert path.read_bytes() == OTHER
    assert sum(site.advances) == len(OTHER)
    assert site.kept == {"corpus.zip": len(OTHER)}
    assert site.fetch() == site.downloads.find(site.file) == path
    hashes = site.downloads.read_hashes([site.file])
    assert hashes == {other.url: f"sha256 {other.sha256}"}
    mirrored = tmp_path / "mirror" / address.removeprefix("http://") / "corpus.zip"
    mirrored.parent.mkdir(parents=True)
    mirrored.write_bytes(OTHER)  # any of the archives
    assert site.fetch(mirror=tmp_path / "mirror") == mirrored


def test_unpublished_hash_is_recorded(site: Site, tmp_path: Path) -> None:
    site = site.with_file(urls=(site.file.url.replace(".tgz", ".zip"),))
    first = zipped({"a.de": 9 * b"A"}, zipfile.ZIP_STORED)
    later = zipped({"a.de": 9 * b"B"}, zipfile.ZIP_STORED)
    damaged = first.replace(9 * b"A", b"B" + 8 * b"A")
    for body in (b"<html>This domain is for sale</html>", OTHER, damaged):
        site.serve(partial(honest, body=body))
        with pytest.raises(UserError, match="not a complete archive"):
            site.fetch()
    site.serve(partial(honest, body=first))
    site.fetch().unlink()
    site.serve(partial(honest, body=later))
    with pytest.raises(UserError, match="sent other bytes than expected: sha256"):
        site.fetch()
    site.mirrored(tmp_path / "mirror", later)
    with pytest.raises(UserError, match="first read"):
        site.fetch(mirror=tmp_path / "mirror")
    site.serve(partial(honest, body=first))
    path = site.fetch()
    hashes = site.downloads.read_hashes([site.file])
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    assert hashes == {site.file.url: f"sha256 {sha256}"}
    (record,) = site.folder.glob("*/*.sha256")
    content = record.read_bytes()
    for bit in (1, 128):  # 128 is not valid UTF-8
        record.write_bytes(bytes([content[0] ^ bit]) + content[1:])
        with pytest.raises(UserError, match=r"\.sha256"):
            site.downloads.read_hashes([site.file])


@pytest.mark.parametrize("name", ["", "corpus.tgz", "corpus.tgz.part", "corpus.tgz.lock"])
@pytest.mark.parametrize("exists", [True, False])
def test_link_in_folder_is_not_followed(
    site: Site, name: str, exists: bool, tmp_path: Path
) -> None:
    """Neither a file of the download, nor its folder, may lead to a file of the user."""
    mine = tmp_path / "mine"
    link = site.folder / hashlib.sha256(site.file.url.encode()).hexdigest()[:16] / name
    link.parent.mkdir(parents=True, exist_ok=True)
    if exists and name:
        mine.write_bytes(BODY[:1_000])
    elif exists:
        mine.mkdir()
    link.symlink_to(mine)
    site.serve(honest)
    # A complete file may be on another disk, and is verified.
    reason = "has 1,000 bytes" if exists and name == "corpus.tgz" else f"{link} is a link to {mine}"
    with pytest.raises(UserError, match=reason):
        site.fetch()
    assert link.is_symlink()
    assert not site.requests
    if exists and name:
        assert mine.read_bytes() == BODY[:1_000]
    else:
        assert mine.exists() == exists
        assert not list(mine.glob("*"))


OBTAIN = """
import sys
from pathlib import Path
from nmtkit.sources.catalog import RemoteFile
from nmtkit.sources.download import Downloads
print(Downloads(Path(sys.argv[2])).fetch(RemoteFile.model_validate_json(sys.argv[1])))
"""


def process_of(site: Site) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", OBTAIN, site.file.model_dump_json(), str(site.folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8")


@pytest.mark.parametrize("is_gone", [False, True])
def test_killed_download_resumes(site: Site, is_gone: bool) -> None:
    """It resumes from the same host or, if that is gone, from another one."""
    may_end = threading.Event()

    def holds(handler: Handler) -> None:
        honest(handler, end=100_000)
        handler.wfile.flush()
        may_end.wait(20)

    site.serve(holds, status(404) if is_gone else honest)
    with process_of(site) as process:
        while site.downloads.part_bytes(site.file) < 100_000:
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
    may_end.set()
    assert "corpus.tgz" not in site.kept
    with serving(honest) as (second, address):
        urls = (*site.file.urls, f"{address}/corpus.tgz")
        site = site._replace(file=site.file.model_copy(update={"urls": urls}))
        assert site.fetch().read_bytes() == BODY
    assert (second if is_gone else site.server).requests[-1]["Range"] == "bytes=100000-"
    assert len(second.requests) == is_gone
    assert site.kept == {"corpus.tgz": len(BODY)}


def test_two_processes_download_once(site: Site) -> None:
    site = site.knowing("md5")
    site.serve(honest)
    with process_of(site) as first, process_of(site) as second:
        paths = {process.communicate()[0].strip() for process in (first, second)}
    assert paths == {str(site.fetch())}
    assert len(site.requests) == 1


# Any sequence of behaviours

BEHAVIOURS: list[Behaviour] = [
    honest,
    altered,
    altered_and_cut,
    stalls,
    sends_the_wrong_range,
    *(announces(n_bytes) for n_bytes in (299_999, len(BODY), 300_001)),  # and ignores ranges
    cut(1),
    cut(70_000),
    cut(299_999),
    chunks,
    html,
    endless,
    without_length,
    nonsense,
    redirect("/elsewhere"),
    redirect(f"file://{__file__}"),
    *(status(code) for code in (200, 403, 404, 416, 429, 500, 503)),
]
FOLDERS = itertools.count()


@given(data=st.data(), kind=st.sampled_from(KINDS))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_download_from_any_server(site: Site, data: st.DataObject, kind: str) -> None:
    site = site.knowing(kind)._replace(folder=site.folder / str(next(FOLDERS)))
    site.serve(*data.draw(st.lists(st.sampled_from(BEHAVIOURS), max_size=6)), honest)
    for _ in range(12):
        try:
            path = site.fetch()
        except UserError as error:
            sentence = str(error)
            assert "\n" not in sentence
            assert "corpus.tgz" not in site.kept
            continue
        assert path.read_bytes() == BODY
        assert sum(site.advances) == len(BODY)
        return
    raise AssertionError("the server is honest by now")
