"""Training processes that cannot be started."""

import errno
import os
import signal
import socket
import subprocess
import sys
from typing import Any

import pytest

from nmtkit.training import launch
from nmtkit.utils.errors import Stopped, UserError

genuine = subprocess.Popen


def test_failed_start_stops_others(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def start_one(*_: object, **__: object) -> subprocess.Popen[bytes]:
        if started:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        started.append(genuine([sys.executable, "-c", "import time; time.sleep(60)"]))
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", start_one)
    with pytest.raises(UserError, match=r"process 1 .*Resource temporarily"):
        launch.launch(2, ["train"])
    assert started[0].poll() is not None


@pytest.mark.parametrize(
    "error", [OSError(errno.ENETUNREACH, os.strerror(errno.ENETUNREACH)), TimeoutError("timed out")]
)
def test_unreachable_loopback_starts_nothing(
    error: OSError, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(socket, "create_connection", fail)
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("was started"))
    with pytest.raises(UserError, match=r"127\.0\.0\.1"):
        launch.launch(2, ["train"])


@pytest.mark.parametrize("code", [0, -signal.SIGTERM])
def test_signal_outside_of_training_is_reported(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes have finished, or are killed before they handle signals: they print nothing."""

    class Process:
        def __init__(self, *_: object, **__: object) -> None:
            pass

        def poll(self) -> int:
            signal.raise_signal(signal.SIGTERM)
            return code

        def send_signal(self, _number: int) -> None:
            pass

    monkeypatch.setattr(subprocess, "Popen", Process)
    with pytest.raises(Stopped, match="stopped by SIGTERM; to resume") as stopped:
        launch.launch(2, ["train"])
    assert stopped.value.exit_code == 128 + signal.SIGTERM


def test_unknown_loopback_interface_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a known name, gloo and NCCL choose an interface themselves."""
    variables: list[dict[str, str]] = []

    class Process:
        def __init__(self, _command: list[str], *, env: dict[str, str], **_: Any) -> None:
            variables.append(dict(env))

        def poll(self) -> int:
            return 0

    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    monkeypatch.setattr(subprocess, "Popen", Process)
    for interface, is_named in (("lo", True), ("loop7", False)):
        monkeypatch.setattr(socket, "if_nameindex", lambda name=interface: [(1, name)])
        launch.launch(2, ["train"])
        names = [process.get("GLOO_SOCKET_IFNAME") for process in variables]
        assert names == 2 * [interface if is_named else None]
        assert [process["RANK"] for process in variables] == ["0", "1"]
        variables.clear()
