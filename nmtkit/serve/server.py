"""The HTTP server: its address, the requests that it refuses, and its page."""

import ipaddress
import json
import re
import socket
import sys
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import urlsplit

from nmtkit import __version__
from nmtkit.decoding.text_translator import TextTranslator
from nmtkit.rendering.document import Script, templates
from nmtkit.serve.api import JSON, Api, RequestError, language_name, parse_parameters
from nmtkit.utils import progress
from nmtkit.utils.errors import UserError
from nmtkit.utils.processes import on_stop_signal

TIMEOUT_S = 60  # for a client to send its request, and between two requests of a connection
ANSWER_S = 2  # to send a finished translation when the server stops
FOLDER = Path(__file__).parent


class Server(ThreadingHTTPServer):
    """Translates for clients on one address. Every connection has a thread."""

    request_queue_size = 128  # connections that wait for a thread

    def __init__(
        self, translator: TextTranslator, host: str, port: int, max_characters: int
    ) -> None:
        """Listen on an address.

        Args:
            translator: Translates the texts.
            host: Name or address to listen on.
            port: The port; 0 for a free one.
            max_characters: Maximum number of characters of a request.

        Raises:
            UserError: The model is a parser, or the address cannot be used.
        """
        if translator.text.has_trees:
            raise UserError("`nmtkit serve` does not support parsers; use `nmtkit translate`")
        try:
            address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            self.address_family = address[0]
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise UserError(
                f"cannot listen on {host}, port {port} ({error.strerror}); pass another --port or "
                "--host"
            ) from None
        self.api = Api(translator, max_characters)
        self.unanswered: set[Event] = set()  # of the requests that have begun
        # The names of this server. A page of another site whose name an attacker has pointed to
        # this machine ("DNS rebinding") has that name in its requests, and is refused.
        self.names = {"localhost", host.lower()}
        if not is_loopback(host):
            self.names |= {socket.gethostname().lower(), socket.getfqdn().lower()}

    @property
    def url(self) -> str:
        """The address of the page."""
        host, port = self.server_address[:2]
        host = f"[{host!s}]" if self.address_family == socket.AF_INET6 else str(host)
        return f"http://{host}:{port}/"

    def serve_until_stopped(self) -> None:
        """Answer requests until Ctrl-C or another signal.

        Requests that have arrived are still answered. A second signal ends the process at once.
        """
        with on_stop_signal([], self.shutdown):
            progress.log(f"serve: {self.url} (press Ctrl-C to stop)")
            self.serve_forever()
            progress.log("serve: stopping; press Ctrl-C again to leave requests unanswered")
            self.server_close()
            self.api.close()
            for is_answered in list(self.unanswered):
                is_answered.wait(ANSWER_S)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """Report an error of a connection in one line; a client may leave at any time."""
        error = sys.exception()
        if not isinstance(error, ConnectionError):
            progress.warn(f"serve: a request failed ({error!r})")

    def is_own_name(self, host: str | None) -> bool:
        """Return whether a host (a name or an address, perhaps with a port) is this server."""
        try:
            name = urlsplit(f"//{host or ''}").hostname or ""
        except ValueError:
            return False
        if name in self.names:
            return True
        # No name leads to the site of an address, so it cannot be pointed elsewhere.
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


class _Handler(BaseHTTPRequestHandler):
    """Answers the requests of a connection."""

    protocol_version = "HTTP/1.1"  # several requests per connection
    server_version = f"nmtkit/{__version__}"
    sys_version = ""
    timeout = TIMEOUT_S
    server: Server

    def do_GET(self) -> None:
        """Answer a request for the page or for the languages."""
        path, _, _ = self.path.partition("?")
        if path == "/":
            self._answer(self._page)
        elif path == "/languages":
            self._answer(lambda: _json(self.server.api.languages()))
        elif path == "/translate":
            self.send_error(HTTPStatus.METHOD_NOT_ALLOWED, "send the text with POST")
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def do_POST(self) -> None:
        """Answer a request to translate."""
        if self.path.partition("?")[0] != "/translate":
            self.send_error(HTTPStatus.NOT_FOUND)
        else:
            self._answer(self._translate)

    def _answer(self, respond: Callable[[], tuple[str, bytes]]) -> None:
        """Send the content type and the body that a function returns, or an error."""
        is_answered = Event()
        self.server.unanswered.add(is_answered)
        try:
            # The browser names the host that it connected to, and the site that a page is of.
            host = self.headers.get("Host")
            if not self.server.is_own_name(host):
                problem = f"this server is not {host}" if host else "the header Host is missing"
                raise RequestError(HTTPStatus.FORBIDDEN, f"{problem}; use {self.server.url}")
            scheme, _, site = self.headers.get("Origin", "").partition("://")
            if scheme in ("http", "https", "null") and site != host:
                raise RequestError(HTTPStatus.FORBIDDEN, "pages of other sites are not answered")
            content_type, body = respond()
        except RequestError as error:
            self.send_error(error.status, str(error))
        else:
            self._send(HTTPStatus.OK, content_type, body)
        finally:
            self.server.unanswered.discard(is_answered)
            is_answered.set()

    def _translate(self) -> tuple[str, bytes]:
        """Read a request to translate, and return the content type and the body of its answer.

        Raises:
            RequestError: It is invalid or too large.
        """
        length = self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers or not re.fullmatch(r"[0-9]{1,18}", length):
            raise RequestError(HTTPStatus.LENGTH_REQUIRED, "the header Content-Length is missing")
        if int(length) > self.server.api.max_body_bytes:
            raise RequestError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"the request has {int(length):,} bytes, and the maximum is "
                f"{self.server.api.max_body_bytes:,}; send the text in parts",
            )
        body = self.rfile.read(int(length))
        content_type = self.headers.get("Content-Type", "")
        _, _, query = self.path.partition("?")
        parameters = parse_parameters(content_type, body, query)
        return _json(self.server.api.translate(parameters))

    def _page(self) -> tuple[str, bytes]:
        """Return the content type and the bytes of the page."""
        api = self.server.api
        langs = [api.src_lang, api.tgt_lang]
        page = templates(FOLDER).get_template("page.html.j2")
        html = page.render(
            langs=langs,
            names=[language_name(lang) for lang in langs],
            max_characters=api.max_characters,
            script=Script((FOLDER / "page.js").read_text(encoding="utf-8")),
        )
        return "text/html; charset=utf-8", html.encode("utf-8")

    def _send(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """Send an error as LibreTranslate does: JSON with the key "error"."""
        # The rest of the request may not have been read.
        self.close_connection = True
        content_type, body = _json({"error": message or HTTPStatus(code).phrase})
        self._send(code, content_type, body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Do not log requests."""


def is_loopback(host: str) -> bool:
    """Return whether only this machine can connect to a host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _json(value: object) -> tuple[str, bytes]:
    """Return the content type and the bytes of a JSON document."""
    return JSON, json.dumps(value, ensure_ascii=False).encode("utf-8")
