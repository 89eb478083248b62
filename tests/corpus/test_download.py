"""Downloads from a real server that cuts, stalls, lies and changes its mind."""

import hashlib
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import pytest

from nmtkit.corpus.catalog import RemoteFile
from nmtkit.corpus.download import MAX_ATTEMPTS, obtain
from nmtkit.errors import UserError

BODY = bytes(i * i % 251 for i in range(300_000))
OTHER = bytes(i * i % 241 for i in range(300_000))


class Handler(BaseHTTPRequestHandler):
    """Answers each request with the next of the server's behaviours, the last one for ever."""

    server: "Server"

    def do_GET(self) -> None:
        asked = dict(self.headers)
        self.server.requests.append(asked)
        behaviours = self.server.behaviours
        (behaviours.pop(0) if len(behaviours) > 1 else behaviours[0])(self)

    def log_message(self, *_: object) -> None:
        pass

    def head(self, status: int, **headers: object) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()


class Server(ThreadingHTTPServer):
    daemon_threads = True
    behaviours: list[Callable[[Handler], None]]
    requests: list[dict[str, str]]

    def handle_error(self, *_: object) -> None:
        """Say nothing of clients that hang up."""


def honest(
    handler: Handler, body: bytes = BODY, etag: str = '"one"', end: int | None = None
) -> None:
    """Serve as RFC 9110 says, closing the connection after `end` bytes of the file."""
    start = 0
    if handler.headers.get("If-Range") == etag:
        start = int(handler.headers["Range"].removeprefix("bytes=").removesuffix("-"))
    if start:
        content_range = f"bytes {start}-{len(body) - 1}/{len(body)}"
        handler.head(206, ETag=etag, Content_Length=len(body) - start, Content_Range=content_range)
    else:
        handler.head(200, ETag=etag, Content_Length=len(body))
    handler.wfile.write(body[start:end])


def cut(end: int) -> Callable[[Handler], None]:
    return lambda handler: honest(handler, end=end)


def altered(handler: Handler) -> None:
    honest(handler, body=OTHER)


def changed(handler: Handler) -> None:
    honest(handler, etag='"two"')


def stalls(handler: Handler) -> None:
    honest(handler, end=100_000)
    handler.wfile.flush()
    time.sleep(0.5)


def ignores_range(handler: Handler) -> None:
    handler.head(200, ETag='"one"', Content_Length=len(BODY))
    handler.wfile.write(BODY)


def sends_the_wrong_range(handler: Handler) -> None:
    handler.head(206, Content_Length=5, Content_Range=f"bytes 0-4/{len(BODY)}")
    handler.wfile.write(BODY[:5])


def html(handler: Handler) -> None:
    handler.head(200, Content_Type="text/html")
    handler.wfile.write(b"<html>This domain is for sale</html>")


def endless(handler: Handler) -> None:
    handler.head(200)
    while True:
        handler.wfile.write(BODY)


def status(code: int) -> Callable[[Handler], None]:
    return lambda handler: handler.head(code, Content_Length=0)


def wrong_length(handler: Handler) -> None:
    handler.head(200, Content_Length=len(BODY) + 1)
    handler.wfile.write(BODY + b"!")


def redirect(handler: Handler) -> None:
    handler.head(302, Location="/elsewhere", Content_Length=0)


class Site(NamedTuple):
    server: Server
    file: RemoteFile
    downloads: Path
    slept: list[float]

    def serve(self, *behaviours: Callable[[Handler], None]) -> None:
        self.server.behaviours = list(behaviours)

    def obtain(
        self, mirror: Path | None = None, progress: Callable[[int], None] | None = None
    ) -> Path:
        return obtain(
            self.file, self.downloads, mirror, progress, timeout_s=0.2, sleep=self.slept.append
        )

    @property
    def requests(self) -> list[dict[str, str]]:
        return self.server.requests

    @property
    def kept(self) -> dict[str, int]:
        """Return names and sizes of what lies in the downloads, the lock left out."""
        files = [path for path in self.downloads.rglob("*") if path.is_file()]
        return {path.name: path.stat().st_size for path in files if path.name != "lock"}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server(("127.0.0.1", 0), Handler) as server:
        server.requests = []
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/wmt/corpus.tgz"
        sha256 = hashlib.sha256(BODY).hexdigest()
        file = RemoteFile(url=url, n_bytes=len(BODY), sha256=sha256)
        yield Site(server, file, tmp_path / "downloads", [])
        server.shutdown()
        thread.join()


def test_a_file_is_downloaded_once(site: Site) -> None:
    site.serve(honest)
    done: list[int] = []
    path = site.obtain(progress=done.append)
    assert path.read_bytes() == BODY
    assert path == site.downloads / site.file.sha256[:16] / "corpus.tgz"
    assert sum(done) == len(BODY)
    assert site.obtain() == path
    assert len(site.requests) == 1
    assert site.kept == {"corpus.tgz": len(BODY)}


def test_a_cut_download_goes_on_where_it_was_cut(site: Site) -> None:
    site.serve(cut(70_000), cut(200_000), honest)
    assert site.obtain().read_bytes() == BODY
    assert [request.get("Range") for request in site.requests] == [
        None,
        "bytes=70000-",
        "bytes=200000-",
    ]
    assert site.requests[1]["If-Range"] == '"one"'
    assert site.kept == {"corpus.tgz": len(BODY)}


def test_a_later_run_goes_on_where_an_earlier_one_was_cut(site: Site) -> None:
    site.serve(cut(70_000))
    with pytest.raises(UserError, match="cut off after 70,000 of 300,000 bytes"):
        site.obtain()
    assert site.kept == {"corpus.tgz.part": 70_000, "corpus.tgz.version": 5}
    site.serve(honest)
    done: list[int] = []
    assert site.obtain(progress=done.append).read_bytes() == BODY
    assert done[0] == 70_000
    assert sum(done) == len(BODY)
    assert site.requests[-1]["Range"] == "bytes=70000-"


def test_a_stalled_connection_is_given_up_and_gone_on_with(site: Site) -> None:
    site.serve(stalls, honest)
    assert site.obtain().read_bytes() == BODY
    assert site.requests[1]["Range"] == "bytes=100000-"


@pytest.mark.parametrize("second", [ignores_range, changed, sends_the_wrong_range, status(416)])
def test_a_server_that_does_not_go_on_is_begun_with_again(
    site: Site, second: Callable[[Handler], None]
) -> None:
    site.serve(cut(70_000), second, honest)
    assert site.obtain().read_bytes() == BODY


def test_parts_of_two_versions_are_never_joined(site: Site) -> None:
    """The server changes the file and calls it by the old name."""
    site.serve(lambda handler: honest(handler, body=OTHER, end=70_000), honest)
    assert site.obtain().read_bytes() == BODY
    assert "Range" in site.requests[1]
    assert "Range" not in site.requests[2]


def test_without_a_name_for_the_version_no_rest_is_asked_for(site: Site) -> None:
    site.serve(lambda handler: honest(handler, etag="", end=70_000), honest)
    assert site.obtain().read_bytes() == BODY
    assert "Range" not in site.requests[1]


def test_other_bytes_are_refused_and_not_kept(site: Site) -> None:
    site.serve(altered)
    other = hashlib.sha256(OTHER).hexdigest()
    with pytest.raises(
        UserError, match=rf"{site.file.url} .*{other} instead of {site.file.sha256}"
    ):
        site.obtain()
    assert site.kept == {}
    assert len(site.requests) == 1


def test_another_length_is_refused_before_it_is_fetched(site: Site) -> None:
    site.serve(wrong_length)
    with pytest.raises(UserError, match="sends 300,001 bytes where 300,000 are expected"):
        site.obtain()
    assert site.kept == {}


def test_an_endless_answer_is_refused(site: Site) -> None:
    site.serve(endless)
    with pytest.raises(UserError, match="sends more than the 300,000 bytes"):
        site.obtain()
    assert site.kept == {}


def test_a_page_with_status_200_is_refused(site: Site) -> None:
    site.serve(html)
    with pytest.raises(UserError, match="cut off after 36 of 300,000 bytes"):
        site.obtain()
    assert "corpus.tgz" not in site.kept
    site.serve(honest)
    assert site.obtain().read_bytes() == BODY


@pytest.mark.parametrize("code", [403, 404, 410])
def test_a_file_that_is_not_there_is_asked_for_once(site: Site, code: int) -> None:
    site.serve(status(code))
    with pytest.raises(UserError, match=rf"{site.file.url} is not to be had: HTTP {code}"):
        site.obtain()
    assert len(site.requests) == 1


def test_a_busy_server_is_asked_again_after_longer_and_longer_pauses(site: Site) -> None:
    site.serve(status(503), status(429), status(500), honest)
    assert site.obtain().read_bytes() == BODY
    assert site.slept == [2.0, 4.0, 8.0]


def test_a_dead_server_is_given_up_with_advice(site: Site) -> None:
    site.serve(status(503))
    host = f"127.0.0.1:{site.server.server_port}"
    with pytest.raises(
        UserError, match=rf"HTTP 503.* --mirror DIR where DIR/{host}/wmt/corpus.tgz"
    ):
        site.obtain()
    assert len(site.requests) == MAX_ATTEMPTS


def test_without_a_network_the_mirror_is_advised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    nobody_listens = "http://127.0.0.1:1/a.gz"
    file = RemoteFile(url=nobody_listens, n_bytes=1, sha256="0" * 64)
    with pytest.raises(UserError, match=rf"{nobody_listens} \(.*refused.*--mirror DIR"):
        obtain(file, tmp_path, sleep=lambda _: None)


def test_a_redirect_is_followed(site: Site) -> None:
    site.serve(redirect, cut(70_000), redirect, honest)
    path = site.obtain()
    assert path.read_bytes() == BODY
    assert path.name == "corpus.tgz"
    assert site.requests[3]["Range"] == "bytes=70000-"


def test_a_full_disk_is_told_before_anything_is_fetched(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage("/")._replace(free=299_999)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    site.serve(honest)
    with pytest.raises(UserError, match=r"needs 300,000 bytes in .*, where 299,999 are free"):
        site.obtain()
    assert site.requests == []


def test_two_at_once_download_once(site: Site) -> None:
    site.serve(honest)
    with ThreadPoolExecutor(4) as pool:
        paths = {future.result() for future in [pool.submit(site.obtain) for _ in range(4)]}
    assert len(paths) == len(site.requests) == 1


@pytest.mark.parametrize("content", [OTHER, BODY[:-1], b""])
def test_a_stored_file_is_verified_each_time(site: Site, content: bytes) -> None:
    site.serve(honest)
    site.obtain().write_bytes(content)
    with pytest.raises(UserError, match=r"corpus\.tgz has .* where .*; remove it"):
        site.obtain()


def test_a_mirror_is_used_without_a_network(site: Site, tmp_path: Path) -> None:
    mirrored = tmp_path / "mirror" / f"127.0.0.1:{site.server.server_port}" / "wmt" / "corpus.tgz"
    mirrored.parent.mkdir(parents=True)
    mirrored.write_bytes(BODY)
    assert site.obtain(mirror=tmp_path / "mirror") == mirrored
    mirrored.write_bytes(OTHER)
    with pytest.raises(UserError, match=r"mirror/.*corpus\.tgz has sha256"):
        site.obtain(mirror=tmp_path / "mirror")
    assert site.requests == []


def test_what_a_mirror_lacks_is_downloaded(site: Site, tmp_path: Path) -> None:
    site.serve(honest)
    (tmp_path / "mirror").mkdir()
    assert site.obtain(mirror=tmp_path / "mirror").is_relative_to(site.downloads)


def test_a_missing_mirror_is_named(site: Site, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere is not a folder"):
        site.obtain(mirror=tmp_path / "nowhere")
