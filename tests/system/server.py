"""A web server on this machine that has one file."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def serving(
    body: bytes,
    n_sent: int | None = None,
    is_released: threading.Event | None = None,
    starts: list[int] | None = None,
) -> Iterator[str]:
    """Serve `body`, or a range of it, under the URL that is returned; stop at byte `n_sent`.

    Args:
        is_released: Send the rest when this is set, and keep the connection open until then.
        starts: The first byte of each request is appended to it.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=")[:-1])
            if starts is not None:
                starts.append(start)
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
            self.send_header("Content-Length", str(len(body) - start))
            self.send_header("ETag", '"as ever"')
            self.end_headers()
            with suppress(ConnectionError):  # the client was killed
                self.wfile.write(body[start:n_sent])
                if is_released is not None:
                    is_released.wait()
                    self.wfile.write(body[max(start, n_sent or 0) :])

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/a.bin"
        server.shutdown()
