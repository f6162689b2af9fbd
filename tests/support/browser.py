"""Drives a headless Chromium through pipes, as its DevTools protocol describes."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
from victims import DEADLINE

# Chromium reads commands from 3 and writes answers to 4.
_LAUNCH = 'exec 3<&0 4>&1 </dev/null >/dev/null 2>&1; exec "$0" "$@"'
_OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe")


class Page:
    """One tab."""

    def __init__(self, commands: IO[bytes], answers: IO[bytes]) -> None:
        self._commands, self._answers = commands, answers
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Give one command and return its result; events that come first are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._commands.write(json.dumps(message).encode() + b"\0")
        self._commands.flush()
        while (answer := self._read()).get("id") != self._number:
            self.events.append(answer)
        assert "error" not in answer, answer["error"]
        result: dict[str, Any] = answer["result"]
        return result

    def _read(self) -> dict[str, Any]:
        raw = bytearray()
        while (byte := self._answers.read(1)) != b"\0":
            assert byte, "the browser went away"
            raw += byte
        message: dict[str, Any] = json.loads(raw)
        return message

    def open(self, path: Path) -> None:
        """Show a file and wait until it is loaded."""
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri())
        while all(event.get("method") != "Page.loadEventFired" for event in self.events):
            self.events.append(self._read())

    def run(self, script: str) -> Any:
        """Return what a JavaScript expression, or the promise it makes, is worth."""
        done = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def click(self, selector: str) -> None:
        """Click with the mouse into the middle of an element."""
        place = f"document.querySelector({json.dumps(selector)})"
        self.run(f"{place}.scrollIntoView({{block: 'center'}})")
        box = self.run(
            f"(r => [r.x + r.width / 2, r.y + r.height / 2])({place}.getBoundingClientRect())"
        )
        for kind in ("mousePressed", "mouseReleased"):
            at = {"x": box[0], "y": box[1], "button": "left", "clickCount": 1}
            self.call("Input.dispatchMouseEvent", type=kind, **at)

    def type(self, text: str) -> None:
        """Type into what has the focus."""
        self.call("Input.insertText", text=text)

    def resize(self, width: int, height: int = 900) -> None:
        """Set the size of the window, in pixels."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def prefer(self, scheme: str) -> None:
        """Prefer `light` or `dark`."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def screenshot(self, path: Path, whole: bool = False) -> None:
        """Save what is to be seen as PNG."""
        taken = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(taken["data"]))

    def complaints(self) -> list[str]:
        """Return what the browser complained about since the file was opened."""
        found = [e["params"] for e in self.events if e.get("method") == "Log.entryAdded"]
        thrown = [e["params"] for e in self.events if e.get("method") == "Runtime.exceptionThrown"]
        return [str(params) for params in (*found, *thrown)]

    def requests(self) -> list[str]:
        """Return the addresses that were asked for since the file was opened."""
        sent = [e for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]


@contextmanager
def chromium() -> Iterator[Page]:
    """Start a browser of its own, with a fresh profile."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if not program:
        pytest.skip("no browser to look at the page with: apt install chromium")
    profile = tempfile.mkdtemp()
    process = subprocess.Popen(
        ["bash", "-c", _LAUNCH, program, *_OPTIONS, f"--user-data-dir={profile}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "HOME": profile},
    )
    assert process.stdin and process.stdout
    try:
        page = Page(process.stdin, process.stdout)
        yield page
        page.call("Browser.close")
    finally:
        process.stdin.close()
        process.wait(timeout=DEADLINE)
        process.stdout.close()
        shutil.rmtree(profile, ignore_errors=True)
