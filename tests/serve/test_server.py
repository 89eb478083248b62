"""The server, over real connections."""

import http.client
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from bundles import LINES

from nmtkit import Translator
from nmtkit.decoding.text_translator import Translation
from nmtkit.serve.server import Server
from nmtkit.utils.errors import UserError

MAX_CHARACTERS = 90
PAIR = {"source": "en", "target": "de"}
FORM = "application/x-www-form-urlencoded"


@pytest.fixture(scope="module")
def server(translator: Translator) -> Iterator[Server]:
    server = Server(translator, "127.0.0.1", 0, MAX_CHARACTERS)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()
    server.api.close()


def connected(server: Server) -> closing[http.client.HTTPConnection]:
    port = server.server_address[1]
    return closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60))


Answer = tuple[int, Any]
Ask = Callable[..., Answer]


@pytest.fixture
def ask(server: Server) -> Ask:
    """Send a request; return the status and the JSON of the answer."""

    def ask(
        body: bytes | str = b"",
        content_type: str | None = FORM,
        path: str = "/translate",
        method: str = "POST",
        **headers: str,
    ) -> Answer:
        if content_type is not None:
            headers["Content-Type"] = content_type
        with connected(server) as connection:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            assert response.headers["Content-Type"] == "application/json"
            return response.status, json.loads(response.read())

    return ask


def ask_json(ask: Ask, q: object, **values: object) -> Answer:
    return ask(json.dumps({"q": q, **PAIR, **values}), "application/json; charset=utf-8")


def translated(translator: Translator, *lines: str) -> list[str]:
    return [translation.text for translation in translator.translate(lines)]


def multipart(**values: str) -> tuple[bytes, str]:
    parts = []
    for name, value in values.items():
        header = f'Content-Disposition: form-data; name="{name}"'
        parts.append(f"--limit\r\n{header}\r\n\r\n{value}\r\n")
    return f"{''.join(parts)}--limit--\r\n".encode(), "multipart/form-data; boundary=limit"


def test_bodies_are_equivalent(ask: Ask, translator: Translator) -> None:
    text = "A dög & a cat\nsat = 1 + 1."
    expected = 200, {"translatedText": "\n".join(translated(translator, *text.split("\n")))}
    values = {"q": text, **PAIR}
    assert ask(json.dumps(values), "application/json") == expected
    assert ask(json.dumps(values, ensure_ascii=False).encode(), "Application/JSON") == expected
    assert ask(urlencode(values)) == expected
    assert ask(*multipart(**values)) == expected
    assert ask(None, None, f"/translate?{urlencode(values)}") == expected
    # A browser sends the line ends of forms as \r\n.
    assert ask(urlencode(values | {"q": text.replace("\n", "\r\n")})) == expected


def test_list_is_answered_by_list(ask: Ask, translator: Translator) -> None:
    expected = translated(translator, *LINES[:2])
    assert ask_json(ask, LINES[:2]) == (200, {"translatedText": expected})
    assert ask_json(ask, LINES[:1]) == (200, {"translatedText": expected[:1]})
    assert ask_json(ask, [""]) == (200, {"translatedText": [""]})
    lines = f"\n{LINES[0]}\n\n"
    assert ask_json(ask, [lines, "cat!"]) == (
        200,
        {"translatedText": [f"\n{expected[0]}\n\n", *translated(translator, "cat!")]},
    )


def test_alternatives_are_n_best(ask: Ask, translator: Translator) -> None:
    first, second = translator.n_best(LINES[:2], 3)
    _, answer = ask_json(ask, "\n".join(LINES[:2]), alternatives=2)
    both = [f"{a.text}\n{b.text}" for a, b in zip(first, second, strict=True)]
    assert answer == {"translatedText": both[0], "alternatives": both[1:]}
    # There are not more than the beam holds.
    assert ask_json(ask, ["\n".join(LINES[:2])], alternatives="99") == (
        200,
        {"translatedText": both[:1], "alternatives": [both[1:]]},
    )


def test_unknown_source_is_the_models(ask: Ask) -> None:
    detected = {"language": "en", "confidence": 0.0}
    assert ask_json(ask, "cat!", source="auto")[1]["detectedLanguage"] == detected
    assert ask_json(ask, ["a", "b"], source="auto")[1]["detectedLanguage"] == [detected] * 2


@pytest.mark.parametrize("change", [{"source": "eng"}, {"target": "de-AT"}, {"target": "deu_Latn"}])
def test_other_tags_of_a_language(ask: Ask, change: dict[str, str]) -> None:
    assert ask_json(ask, "cat!", **change)[0] == 200


def test_languages(ask: Ask) -> None:
    assert ask(None, None, "/languages", "GET") == (
        200,
        [
            {"code": "en", "name": "English", "targets": ["de"]},
            {"code": "de", "name": "German", "targets": []},
        ],
    )


@pytest.mark.parametrize(
    ("status", "body", "content_type"),
    [
        (400, urlencode(PAIR), FORM),
        (400, urlencode({"q": "", **PAIR}), FORM),
        (400, urlencode({"q": "cat", "source": "en"}), FORM),
        (400, urlencode({"q": "cat", **PAIR, "source": "de"}), FORM),
        (400, urlencode({"q": "cat", **PAIR, "target": "en"}), FORM),
        (400, urlencode({"q": "cat", **PAIR, "format": "html"}), FORM),
        (400, urlencode({"q": "cat", **PAIR, "alternatives": "two"}), FORM),
        (400, urlencode({"q": "x" * (MAX_CHARACTERS + 1), **PAIR}), FORM),
        (400, json.dumps({"q": ["x" * MAX_CHARACTERS, "x"], **PAIR}), "application/json"),
        (400, json.dumps({"q": {"text": "cat"}, **PAIR}), "application/json"),
        (400, json.dumps({"q": ["cat", None], **PAIR}), "application/json"),
        (400, json.dumps({"q": "cat", **PAIR, "source": ["en"]}), "application/json"),
        (400, json.dumps({"q": "\ud800", **PAIR}), "application/json"),
        (400, '{"q": "cat"', "application/json"),
        (400, "[]", "application/json"),
        (400, "[" * 60_000, "application/json"),
        (400, b"q=%ff&source=en&target=de", FORM),
        (400, b"q=\xff&source=en&target=de", FORM),
        (400, b"--limit", "multipart/form-data; boundary=limit"),
        (400, "q=cat", "multipart/form-data"),
        (400, urlencode({"q": "cat", **PAIR}), "text/plain"),
        (413, b"x" * 70_000, FORM),
    ],
)
def test_invalid_request_is_refused(
    ask: Ask, status: int, body: bytes | str, content_type: str
) -> None:
    answer = ask(body, content_type)
    assert (answer[0], list(answer[1])) == (status, ["error"])
    assert ask_json(ask, "x" * MAX_CHARACTERS)[0] == 200


def test_body_of_other_kind_is_named(ask: Ask) -> None:
    _, answer = ask("cat", "text/plain")
    assert "text/plain: send JSON or a form" in answer["error"]


@pytest.mark.parametrize(
    ("status", "method", "path"),
    [(405, "GET", "/translate"), (404, "POST", "/"), (404, "GET", "/x"), (501, "DELETE", "/")],
)
def test_other_addresses_are_errors(ask: Ask, status: int, method: str, path: str) -> None:
    assert ask(urlencode({"q": "cat!", **PAIR}), FORM, path, method)[0] == status


@pytest.mark.parametrize(
    ("header", "value", "status"),
    [
        ("Host", "localhost:5000", 200),
        ("Host", "127.0.0.1", 200),
        ("Host", "[::1]:5000", 200),
        ("Host", "LOCALHOST", 200),
        ("Host", "attacker.example:5000", 403),
        ("Host", "localhost.attacker.example", 403),
        ("Host", "127.0.0.1.attacker.example", 403),
        ("Host", "localhost@attacker.example", 403),
        ("Host", "[", 403),
        ("Host", "", 403),
        ("Origin", "http://127.0.0.1:PORT", 200),
        ("Origin", "http://127.0.0.1:1", 403),
        ("Origin", "http://192.0.2.1", 403),
        ("Origin", "chrome-extension://abcdef", 200),
        ("Origin", "https://attacker.example", 403),
        ("Origin", "http://[", 403),
        ("Origin", "null", 403),
    ],
)
def test_other_sites_are_refused(
    server: Server, ask: Ask, header: str, value: str, status: int
) -> None:
    value = value.replace("PORT", str(server.server_address[1]))
    body = urlencode({"q": "cat!", **PAIR})
    assert ask(body, **{header: value})[0] == status
    assert ask(None, None, "/languages", "GET", **{header: value})[0] == status


def test_several_requests_per_connection(server: Server, translator: Translator) -> None:
    with connected(server) as connection:
        for line in LINES:
            body = urlencode({"q": line, **PAIR})
            connection.request("POST", "/translate", body, {"Content-Type": FORM})
            answer = json.loads(connection.getresponse().read())
            assert answer == {"translatedText": translated(translator, line)[0]}


class SlowTranslator:
    """Records the batches that it translates; the first one waits for an event."""

    def __init__(self, translator: Translator) -> None:
        self.text = translator.text
        self.decoding = translator.decoding
        self.batches: list[list[str]] = []
        self.is_started = threading.Event()
        self.may_continue = threading.Event()

    def n_best(self, lines: list[str], _n: int) -> list[list[Translation]]:
        self.batches.append(sorted(lines))
        self.is_started.set()
        assert self.may_continue.wait(60)
        if "error" in lines:
            raise RuntimeError("secret text")
        return [[Translation(f"<{line}>", 0.0, 0.0, [], [])] for line in lines]


def test_waiting_requests_form_a_batch(translator: Translator) -> None:
    slow = SlowTranslator(translator)
    server = Server(slow, "127.0.0.1", 0, MAX_CHARACTERS)  # type: ignore[arg-type]
    try:
        with ThreadPoolExecutor() as pool:
            first = pool.submit(server.api.translate, {"q": "first", **PAIR})
            assert slow.is_started.wait(60)
            waiting = [pool.submit(server.api.translate, {"q": q, **PAIR}) for q in ("a", "b\nc")]
            while server.api._queue.qsize() < 2:
                pass
            slow.may_continue.set()
            assert first.result() == {"translatedText": "<first>"}
            results = [answer.result() for answer in waiting]
            assert results == [{"translatedText": "<a>"}, {"translatedText": "<b>\n<c>"}]
        assert slow.batches == [["first"], ["a", "b", "c"]]
        # The server survives an error of the model, and keeps its details to itself.
        with pytest.raises(Exception, match=r"failed$"):
            server.api.translate({"q": "error", **PAIR})
        assert server.api.translate({"q": "d", **PAIR}) == {"translatedText": "<d>"}
    finally:
        server.server_close()
        server.api.close()


def test_used_port_is_an_error(server: Server, translator: Translator) -> None:
    port = server.server_address[1]
    with pytest.raises(UserError, match=f"port {port} .*--port"):
        Server(translator, "127.0.0.1", port, MAX_CHARACTERS)


def test_client_of_libretranslate(server: Server, translator: Translator) -> None:
    client_library = pytest.importorskip("libretranslatepy")
    client = client_library.LibreTranslateAPI(server.url)
    assert client.translate(LINES[0], "en", "de") == translated(translator, LINES[0])[0]
    assert [language["code"] for language in client.languages()] == ["en", "de"]


@contextmanager
def started(bundle: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """Run the command; provide it and its messages, the last of which has its address."""
    command = [sys.executable, "-m", "nmtkit", "serve", "--bundle", str(bundle), "--port", "0"]
    with subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        messages = []
        for line in process.stderr:
            messages.append(line)
            if line.startswith("serve: http"):
                break
        yield process, messages


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_command(bundle: Path, number: signal.Signals) -> None:
    with started(bundle) as (process, messages):
        assert not any("authentication" in message for message in messages)
        process.send_signal(number)
        _, rest = process.communicate(timeout=60)
    assert process.returncode == 0
    assert rest.startswith("serve: stopping")
    assert rest.count("\n") == 1


def test_other_host_is_warned_of(bundle: Path) -> None:
    with started(bundle, "--host", "0.0.0.0") as (process, messages):
        assert any("authentication" in message for message in messages)
        assert messages[-1].startswith("serve: http://0.0.0.0:")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 0
