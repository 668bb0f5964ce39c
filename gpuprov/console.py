"""The only module besides the reports that writes to the terminal: results to stdout, progress to stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

from gpuprov.errors import GpuprovError

if TYPE_CHECKING:
    import threading
    from types import TracebackType

    from rich.live import Live

RED, YELLOW = "31", "33"


def coloured(stream: TextIO) -> bool:
    """Colour only on a terminal, and not where NO_COLOR is set. https://no-color.org"""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def width() -> int:
    """How wide lines may be: the terminal's width, 100 elsewhere."""
    from shutil import get_terminal_size

    return get_terminal_size((100, 24)).columns


def paint(text: str, code: str, stream: TextIO) -> str:
    """Text in a colour, if the stream is to be coloured."""
    return f"\x1b[{code}m{text}\x1b[0m" if coloured(stream) else text


def result(text: str) -> None:
    """A result, to standard output."""
    print(text, flush=True)


def progress(text: str) -> None:
    """What is under way, to standard error."""
    print(text, file=sys.stderr, flush=True)


def warning(text: str) -> None:
    """A warning, to standard error."""
    progress(f"{paint('warning:', YELLOW, sys.stderr)} {text}")


def hint(text: str) -> None:
    """A way out, to standard error."""
    progress(f"hint: {text}")


def error(problem: GpuprovError) -> None:
    """An error and its way out, to standard error."""
    progress(f"{paint('error:', RED, sys.stderr)} {problem.message}")
    if problem.hint:
        hint(problem.hint)


class Progress:
    """What each host is doing: live on a terminal, a line per event elsewhere.

    On a terminal nothing is shown (and rich is not imported) before DELAY seconds, so that what is quick stays quiet.
    `quiet` keeps plain lines back; the live view stays.
    """

    DELAY = 0.5

    def __init__(self, hosts: Sequence[str], doing: str, *, quiet: bool = False) -> None:
        self._doing, self._quiet, self._count = doing, quiet, len(hosts)
        self._waiting = dict.fromkeys(hosts, doing)
        self._live: Live | None = None
        self._timer: threading.Timer | None = None
        self._closed = False
        self._lock: Any = None

    def __enter__(self) -> Progress:
        if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
            import threading

            self._lock = threading.Lock()
            self._timer = threading.Timer(self.DELAY, self._go_live)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._timer:
            self._timer.cancel()
            with self._lock:
                self._closed = True
                if self._live:
                    self._live.stop()

    def update(self, host: str, text: str) -> None:
        """The host is doing something else now."""
        self._waiting[host] = text
        self._say(host, text)

    def done(self, host: str, text: str = "done") -> None:
        """The host is finished."""
        self._waiting.pop(host, None)
        self._say(host, text)

    def _say(self, host: str, text: str) -> None:
        if not self._timer and not self._quiet:
            progress(f"{host}: {text}")

    def _go_live(self) -> None:
        from rich.console import Console
        from rich.live import Live

        with self._lock:
            if not self._closed:
                screen = Console(stderr=True, no_color=not coloured(sys.stderr))
                self._live = Live(get_renderable=self._picture, console=screen, transient=True, refresh_per_second=5)
                self._live.start()

    def _picture(self) -> Any:
        from shutil import get_terminal_size

        from rich.text import Text

        waiting = list(self._waiting.items())
        room = max(get_terminal_size().lines - 4, 1)
        lines = [f"{self._doing}: {self._count - len(waiting)} of {self._count} hosts done"]
        lines += [f"  {host}: {text}" for host, text in waiting[:room]]
        if len(waiting) > room:
            lines.append(f"  and {len(waiting) - room} more")
        return Text("\n".join(lines), no_wrap=True, overflow="ellipsis")
