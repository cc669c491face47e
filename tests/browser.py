"""A headless Chromium that does what a reader does: opens pages, presses keys. Over its debugging pipe, so that no package and
no port are needed."""

import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE_S = 120.0
KEYS = {"Tab": 9, "Enter": 13, " ": 32}


def find_browser() -> str | None:
    """Where Chromium lies; None without one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One tab. `errors` holds what went wrong in its pages: exceptions, console errors, what could not be loaded."""

    def __init__(self, program: str, profile: Path) -> None:
        here_reads, there_writes = _pipe()
        there_reads, self._write = _pipe()
        self._read, self._buffer, self._ids = here_reads, b"", 0
        self.errors: list[str] = []
        self.events: list[str] = []
        flags = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={profile}",
            "--remote-debugging-pipe",
        ]
        # The pipe's ends must be 3 and 4 over there.
        script = f'exec "$@" 3<&{there_reads} 4>&{there_writes}'
        self._process = subprocess.Popen(
            ["bash", "-c", script, "bash", program, *flags, "about:blank"],
            pass_fds=(there_reads, there_writes),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(there_reads)
        os.close(there_writes)
        self._session: str | None = None
        (target,) = [t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page"]
        self._session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def close(self) -> None:
        self._session = None
        self.call("Browser.close")
        self._process.wait(PATIENCE_S)
        os.close(self._read)
        os.close(self._write)

    def open(self, address: str) -> None:
        """Load a page and wait until it has loaded."""
        self.events.clear()
        self.call("Page.navigate", url=address)
        while "Page.loadEventFired" not in self.events:
            self._receive()

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait_for(self, expression: str) -> None:
        """Wait until it is true."""
        _until(lambda: bool(self.ask(expression)), expression)

    def press(self, key: str) -> None:
        """Press and release a key."""
        named = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": KEYS[key]}
        text = {"Enter": {"text": "\r"}, " ": {"text": " "}}.get(key, {})
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **named, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **named)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command of the DevTools protocol, and its answer."""
        self._ids += 1
        message: dict[str, Any] = {"id": self._ids, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._ids:
                assert "error" not in answer, answer
                return dict(answer["result"])

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], PATIENCE_S)
            assert ready, "the browser does not answer"
            data = os.read(self._read, 2**20)
            assert data, "the browser has ended"
            self._buffer += data
        text, _, self._buffer = self._buffer.partition(b"\0")
        message = dict(json.loads(text))
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, event: str, told: dict[str, Any]) -> None:
        self.events.append(event)
        bad = (
            event == "Runtime.exceptionThrown"
            or (event == "Runtime.consoleAPICalled" and told["type"] == "error")
            or (event == "Log.entryAdded" and told["entry"]["level"] == "error")
        )
        if bad:
            self.errors.append(json.dumps(told)[:500])


def _pipe() -> tuple[int, int]:
    """A pipe whose ends are beyond 9, out of the way of the numbers that the browser wants."""
    ends = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return high[0], high[1]


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
