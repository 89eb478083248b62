"""A browser with a pointer, keys and a printer: Chromium, by its DevTools protocol.

The protocol is JSON with a NUL after every message, on the file descriptors 3 and 4 of Chromium.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

KEYS = {
    "Tab": 9,
    "Enter": 13,
    "Escape": 27,
    "End": 35,
    "Home": 36,
    "ArrowLeft": 37,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "ArrowDown": 40,
}
OPTIONS = "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --remote-debugging-pipe"
# Starts a program with two descriptors as 3 and 4.
LAUNCH = """
import os, sys
for descriptor, number in zip(sys.argv[1:3], (3, 4)):
    os.dup2(int(descriptor), number)
os.execv(sys.argv[3], sys.argv[3:])
"""


def chromium_path() -> str | None:
    return shutil.which("chromium") or shutil.which("google-chrome")


class Browser:
    """A browser with one page."""

    def __init__(self, folder: Path) -> None:
        """Start; `folder` gets the profile and the downloads."""
        self.downloads = folder / "downloads"
        commands, self._to = os.pipe()
        self._from, replies = os.pipe()
        # The descriptors must not be 3 or 4 themselves.
        ends = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (commands, replies)]
        profile = f"--user-data-dir={folder / 'profile'}"
        path = chromium_path()
        assert path is not None
        launch = [sys.executable, "-c", LAUNCH, *map(str, ends)]
        self._process = subprocess.Popen(
            [*launch, path, *OPTIONS.split(" "), profile, "about:blank"],
            pass_fds=ends,
            stderr=subprocess.DEVNULL,
        )
        for fd in (commands, replies, *ends):
            os.close(fd)
        self._received = b""
        self._n_sent = 0
        self._session: str | None = None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        behavior = {"behavior": "allow", "downloadPath": str(self.downloads)}
        self.send("Browser.setDownloadBehavior", **behavior)
        self._session = attached["sessionId"]
        self.send("Page.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._session = None
        with suppress(OSError):
            self.send("Browser.close")
        self._process.wait(30)
        os.close(self._to)
        os.close(self._from)

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command, and return its result."""
        self._n_sent += 1
        message: dict[str, Any] = {"id": self._n_sent, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._receive()
            if reply.get("id") == self._n_sent:
                assert "error" not in reply, reply
                result: dict[str, Any] = reply["result"]
                return result

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._received:
            received = os.read(self._from, 2**16)
            if not received:
                raise OSError("the browser has ended")
            self._received += received
        message, _, self._received = self._received.partition(b"\0")
        parsed: dict[str, Any] = json.loads(message)
        return parsed

    def open(self, page: Path, *, width: int = 1280, scripts: bool = True) -> None:
        """Open a page, and wait until it is loaded."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.send("Emulation.setDeviceMetricsOverride", **size)
        self.send("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.send("Page.navigate", url=page.as_uri())
        while self._receive().get("method") != "Page.loadEventFired":
            pass

    def run(self, code: str) -> Any:
        """Return the value of an expression on the page."""
        wait = {"returnByValue": True, "awaitPromise": True}
        result = self.send("Runtime.evaluate", expression=code, **wait)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def box(self, selector: str, number: int = 0) -> dict[str, float]:
        """Return the place of an element on the screen, after scrolling to it."""
        element = f"document.querySelectorAll({json.dumps(selector)})[{number}]"
        self.run(f"{element}.scrollIntoView({{ block: 'center', behavior: 'instant' }})")
        box: dict[str, float] = self.run(f"{element}.getBoundingClientRect().toJSON()")
        return box

    def move(self, selector: str, number: int = 0, *, share: float = 0.5) -> None:
        """Move the pointer to an element, at a share of its width."""
        self._mouse("mouseMoved", self.box(selector, number), share)

    def click(self, selector: str, number: int = 0) -> None:
        box = self.box(selector, number)
        for event in ("mouseMoved", "mousePressed", "mouseReleased"):
            self._mouse(event, box, 0.5)

    def _mouse(self, event: str, box: dict[str, float], share: float) -> None:
        at = {"x": box["x"] + share * box["width"], "y": box["y"] + box["height"] / 2}
        button = {} if event == "mouseMoved" else {"button": "left", "clickCount": 1}
        self.send("Input.dispatchMouseEvent", type=event, **at, **button)

    def press(self, *keys: str) -> None:
        for key in keys:
            text = {"text": "\r"} if key == "Enter" else {}
            for event in ("keyDown", "keyUp"):
                code = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key]}
                self.send("Input.dispatchKeyEvent", type=event, **code, **text)

    def use_paper(self) -> None:
        """Show the page as it is printed."""
        self.send("Emulation.setEmulatedMedia", media="print")
