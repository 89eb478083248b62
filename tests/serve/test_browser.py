"""The page of the server in a real browser, which is driven through its debugging pipe."""

import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bundles import LINES

from nmtkit import Translator
from nmtkit.serve.server import Server

TIMEOUT_S = 60


class Browser:
    """A page in headless Chromium."""

    def __init__(self, path: str, profile: Path) -> None:
        """Start the browser. It reads commands at descriptor 3 and answers at 4: JSON, then NUL."""
        to_browser, commands = os.pipe()
        answers, from_browser = os.pipe()
        options = "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage"
        script = (
            f'exec "$0" {options} --remote-debugging-pipe "$@" 3<&{to_browser} 4>&{from_browser}'
        )
        self._process = subprocess.Popen(
            ["bash", "-c", script, path, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(to_browser, from_browser),
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._commands = os.fdopen(commands, "wb", buffering=0)
        self._answers = os.fdopen(answers, "rb")
        self._n_commands = 0
        self._session: str | None = None
        self.messages: list[object] = []  # of the console, and security errors
        targets = self.run("Target.getTargets")["targetInfos"]
        (page,) = (target["targetId"] for target in targets if target["type"] == "page")
        attached = self.run("Target.attachToTarget", targetId=page, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.run(f"{domain}.enable")

    def close(self) -> None:
        self._commands.close()
        self._answers.close()
        self._process.terminate()
        self._process.wait()

    def run(self, method: str, **parameters: object) -> dict[str, Any]:
        """Run a command of the DevTools protocol, and return its result."""
        self._n_commands += 1
        command = {"id": self._n_commands, "method": method, "params": parameters}
        if self._session is not None:
            command["sessionId"] = self._session
        self._commands.write(json.dumps(command).encode() + b"\0")
        while True:
            text = b""
            while not text.endswith(b"\0"):
                text += self._answers.read(1)
                assert text, "the browser has exited"
            answer = json.loads(text[:-1])
            if answer.get("method") in ("Runtime.consoleAPICalled", "Log.entryAdded"):
                self.messages.append(answer)
            if answer.get("id") == self._n_commands:
                result: dict[str, Any] = answer["result"]
                return result

    def evaluate(self, code: str) -> Any:
        """Return the value of an expression in the page."""
        answer = self.run("Runtime.evaluate", expression=code, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait_for(self, code: str) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + TIMEOUT_S
        while not self.evaluate(code):
            assert time.monotonic() < end, code
            time.sleep(0.02)


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("neither chromium nor google-chrome is installed")
    browser = Browser(path, tmp_path / "profile")
    yield browser
    browser.close()


def test_page_translates(browser: Browser, translator: Translator) -> None:
    server = Server(translator, "127.0.0.1", 0, max_characters=90)
    threading.Thread(target=server.serve_forever).start()
    try:
        browser.run("Page.navigate", url=server.url)
        browser.wait_for("document.activeElement?.id === 'source'")
        assert browser.evaluate("document.querySelector('h1').textContent") == "English to German"
        for width in (390, 1280):  # the button is below both texts
            size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
            browser.run("Emulation.setDeviceMetricsOverride", **size)
            edge = "document.querySelector('{}').getBoundingClientRect().{}"
            top = browser.evaluate(edge.format("button", "top"))
            assert top > browser.evaluate(edge.format("textarea", "bottom"))
            assert top > browser.evaluate(edge.format("output", "bottom"))
        for line in LINES[:2]:
            text = f"{line}\n\n<b>&amp;"
            expected = [translation.text for translation in translator.translate(text.split("\n"))]
            browser.evaluate("source.value = ''")
            browser.run("Input.insertText", text=text)
            browser.evaluate("document.querySelector('button').click()")
            browser.wait_for(f"target.textContent === {json.dumps(chr(10).join(expected))}")
        assert browser.evaluate("document.querySelector('[role=alert]').textContent") == ""
        assert browser.messages == []

        # Without the limit of the text field, the server refuses the text.
        browser.evaluate("source.removeAttribute('maxlength')")
        browser.run("Input.insertText", text="x" * 91)
        browser.evaluate("document.querySelector('button').click()")
        browser.wait_for("document.querySelector('[role=alert]').textContent.includes('maximum')")
    finally:
        server.shutdown()
        server.server_close()
        server.api.close()
