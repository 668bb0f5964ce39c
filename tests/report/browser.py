"""A headless Chromium that a test drives: the DevTools protocol over two pipes, without a library."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

PATIENCE = 60.0
KEYS = {"Enter": 13, "Escape": 27, "ArrowDown": 40, "ArrowRight": 39}


class Browser:
    """One page in one browser. `said`: errors and warnings of its console, exceptions, and what its policy refused."""

    def __init__(self, program: str, profile: Path) -> None:
        into, self._out = os.pipe()
        self._in, out = os.pipe()
        flags = "--headless=new --no-sandbox --disable-gpu --no-first-run --remote-debugging-pipe --disable-extensions"
        self._child = subprocess.Popen(
            [
                "/bin/bash",
                "-c",
                f'exec "$@" 3<&{into} 4>&{out}',
                "bash",
                program,
                *flags.split(),
                f"--user-data-dir={profile}",
            ],
            pass_fds=(into, out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(into)
        os.close(out)
        self._rest, self._number, self._session = b"", 0, ""
        self.said: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._out)
        self._child.terminate()
        self._child.wait(20)
        os.close(self._in)

    def cost(self, file: Path) -> float:
        """Seconds of the processor that opening a page takes its main thread, until two frames were drawn."""
        self.call("Performance.enable", timeDomain="threadTicks")
        self.open(file.parent, width=1920)
        before = self._spent()
        self.open(file, width=1920)
        self.ask("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        after = self._spent()
        self.call("Performance.disable")
        return after - before

    def _spent(self) -> float:
        found = self.call("Performance.getMetrics")["metrics"]
        return float(next(part["value"] for part in found if part["name"] == "TaskDuration"))

    def call(self, method: str, **arguments: Any) -> Any:
        self._number += 1
        asked: dict[str, Any] = {"id": self._number, "method": method, "params": arguments}
        if self._session:
            asked["sessionId"] = self._session
        os.write(self._out, json.dumps(asked).encode() + b"\0")
        until = time.monotonic() + PATIENCE
        while True:
            told = self._next(until)
            if told.get("id") == self._number:
                assert "error" not in told, told
                return told["result"]
            self._note(told)

    def _next(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], max(0.0, until - time.monotonic()))
            assert ready, "the browser does not answer"
            self._rest += os.read(self._in, 1 << 20)
        one, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(one)
        return found

    def _note(self, told: dict[str, Any]) -> None:
        if told.get("method") == "Runtime.exceptionThrown":
            self.said.append(json.dumps(told["params"]["exceptionDetails"]))
        elif told.get("method") == "Log.entryAdded" and told["params"]["entry"]["level"] in ("error", "warning"):
            self.said.append(told["params"]["entry"]["text"])
        elif told.get("method") == "Runtime.consoleAPICalled":
            self.said.append(json.dumps(told["params"]["args"]))

    def open(self, page: Path, *, width: int = 1400, height: int = 1000, dark: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 640
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=page.as_uri())
        self.wait("document.readyState === 'complete' && location.protocol === 'file:'")

    def ask(self, expression: str) -> Any:
        told = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, userGesture=True
        )
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def wait(self, expression: str) -> None:
        until = time.monotonic() + PATIENCE
        while not self.ask(expression):
            assert time.monotonic() < until, expression
            time.sleep(0.05)

    def key(self, name: str) -> None:
        text = {"text": "\r"} if name == "Enter" else {"text": name} if len(name) == 1 else {}
        more = {"windowsVirtualKeyCode": KEYS[name]} if name in KEYS else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=name, **text, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=name, **more)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """In the middle of the first element that the selector means, with the mouse."""
        spot = self.ask(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: "
            f"'center'}});"
            " const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=spot[0], y=spot[1], button="left", clickCount=1)

    def shows(self, selector: str) -> str:
        """The text of an element as it is on the screen."""
        return str(self.ask(f"document.querySelector({json.dumps(selector)}).innerText"))
