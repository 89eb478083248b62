"""A page in headless Chromium: what is clicked, typed and asked for, over a pair of pipes."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--proxy-server=127.0.0.1:9"),  # nobody listens there
    "--remote-debugging-pipe",
)


class Page:
    """A page that is open, in a window of a given width."""

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read, self._rest = write, read, b""
        self._n, self._session = 0, ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command of the DevTools protocol, and return its result."""
        self._n += 1
        message = {"id": self._n, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (answer := self._receive()).get("id") != self._n:
            self.events.append(answer)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            block = os.read(self._read, 2**16)
            assert block, "the browser has ended"
            self._rest += block
        message, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def open(self, html: Path, width: int = 1280) -> None:
        """Load a file."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self.events.clear()
        self.call("Page.navigate", url=html.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._receive())

    def value(self, script: str) -> Any:
        """Return the value of an expression of JavaScript."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def click(self, selector: str) -> None:
        """Click on the first element that a selector finds."""
        self.value(f"document.querySelector({json.dumps(selector)}).click()")

    def asked_for(self) -> list[str]:
        """Return the addresses that the page asked for, but for the data in itself."""
        requests = [e for e in self.events if e["method"] == "Network.requestWillBeSent"]
        urls = [event["params"]["request"]["url"] for event in requests]
        return [url for url in urls if not url.startswith("data:")]

    def complaints(self) -> list[str]:
        """Return what the browser complained of, such as breaches of the page's policy."""
        kinds = ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")
        return [json.dumps(e["params"]) for e in self.events if e["method"] in kinds]


@contextmanager
def browser(profile: Path) -> Iterator[Page]:
    """Provide an empty page of a browser of its own; skip the test where there is none."""
    names = ("chromium", "chromium-browser", "google-chrome")
    chromium = next(filter(None, map(shutil.which, names)), None)
    if chromium is None:
        pytest.skip("neither chromium nor google-chrome is installed")
    its_read, write = os.pipe()
    read, its_write = os.pipe()
    command = [chromium, *OPTIONS, f"--user-data-dir={profile}"]
    process = subprocess.Popen(
        # Chromium reads from descriptor 3, and writes to 4.
        ["bash", "-c", f'exec "$@" 3<&{its_read} 4>&{its_write}', "bash", *command],
        pass_fds=(its_read, its_write),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(its_read)
    os.close(its_write)
    try:
        yield Page(write, read)
    finally:
        process.kill()
        process.wait()
        os.close(write)
        os.close(read)
