"""A web server on this machine that has some files."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server(ThreadingHTTPServer):
    """Sends files or the rest of them, or half of each that is asked for from its start."""

    daemon_threads = True
    bodies: Mapping[str, bytes]  # by their paths
    cuts: bool
    requests: list[tuple[str, str]]  # paths and ranges


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        body = self.server.bodies[self.path]
        asked = self.headers.get("Range", "bytes=0-")
        self.server.requests.append((self.path, asked))
        start = int(asked.removeprefix("bytes=").removesuffix("-"))
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        self.send_header("Content-Length", str(len(body) - start))
        self.send_header("ETag", '"as ever"')
        self.end_headers()
        end = len(body) // 2 if self.server.cuts and not start else len(body)
        with suppress(ConnectionError):  # the client was killed
            self.wfile.write(body[start:end])

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(bodies: Mapping[str, bytes], *, cuts: bool = False) -> Iterator[Server]:
    with Server(("127.0.0.1", 0), _Handler) as server:
        server.bodies, server.cuts, server.requests = bodies, cuts, []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()
