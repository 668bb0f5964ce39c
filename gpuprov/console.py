"""The only module that writes to the terminal: results to stdout, progress to stderr, all of it cleaned (`gpuprov.shown`).

A reader that went away (`| head`) never disturbs the work: what would be said is dropped from then on.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

from gpuprov.errors import GpuprovError
from gpuprov.shown import cleaned, painted

if TYPE_CHECKING:
    import threading
    from types import TracebackType

    from rich.live import Live

RED, YELLOW = "31", "33"


def on_terminal(stream: TextIO | None) -> bool:
    """Whether a person is at the other end of a standard stream (None: it was closed before the start)."""
    return stream is not None and stream.isatty()


def can_ask() -> bool:
    """Whether a question would be seen and could be answered."""
    return on_terminal(sys.stdin) and on_terminal(sys.stderr)


def coloured(stream: TextIO | None) -> bool:
    """Colour only on a terminal, and not where NO_COLOR is set. https://no-color.org"""
    return on_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def width() -> int:
    """How wide lines may be: the terminal's width, 100 elsewhere."""
    from shutil import get_terminal_size

    return get_terminal_size((100, 24)).columns


def paint(text: str, code: str, stream: TextIO | None) -> str:
    """Text in a colour, if the stream is to be coloured."""
    return f"\x1b[{code}m{text}\x1b[0m" if coloured(stream) else text


def result(text: str, *, in_colour: bool = False) -> None:
    """A result, to standard output. Raises GpuprovError where it cannot be written (a full disk).

    in_colour: made with `paint`, of parts that were cleaned before.
    """
    try:
        _write(text, sys.stdout, in_colour=in_colour)
    except OSError as problem:
        raise GpuprovError(
            f"standard output cannot be written: {problem.strerror}", "send it where there is space"
        ) from problem


def progress(text: str) -> None:
    """What is under way, to standard error; dropped where that cannot be written."""
    with suppress(OSError):
        _write(text, sys.stderr)


def _write(text: str, stream: TextIO | None, *, in_colour: bool = False) -> None:
    if stream is None:
        return
    clean = painted if in_colour and coloured(stream) else cleaned
    try:
        print(clean(text, getattr(stream, "encoding", "") or ""), file=stream, flush=True)
    except BrokenPipeError:
        _silence(stream)
    except OSError:
        _silence(stream)
        raise


def _silence(stream: TextIO) -> None:
    """Nothing more leaves the stream, and neither do the bytes that it still holds: Python flushes them at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


def warning(text: str) -> None:
    """A warning, to standard error."""
    _told("warning:", YELLOW, text)


def hint(text: str) -> None:
    """A way out, to standard error."""
    progress(f"hint: {text}")


def error(problem: GpuprovError) -> None:
    """An error and its way out, to standard error."""
    _told("error:", RED, problem.message)
    if problem.hint:
        hint(problem.hint)


def _told(kind: str, colour: str, text: str) -> None:
    with suppress(OSError):
        _write(f"{paint(kind, colour, sys.stderr)} {cleaned(text)}", sys.stderr, in_colour=True)


def crash(kind: type[BaseException], problem: BaseException, trace: TracebackType | None) -> None:
    """A traceback, to standard error; its message may come from a host. For `sys.excepthook`."""
    from traceback import format_exception

    progress("".join(format_exception(kind, problem, trace)).rstrip())


def confirm(question: str) -> bool:
    """Ask on the terminal; no is the default."""
    import click

    return bool(click.confirm(cleaned(question), default=False, err=True))


def ask(question: str, default: str, judge: Callable[[str], str]) -> str:
    """Ask on the terminal until `judge` takes the answer; it raises GpuprovError for what is none, and may write it better."""
    import click

    def judged(answer: str) -> str:
        try:
            return judge(answer.strip())
        except GpuprovError as problem:
            raise click.UsageError(cleaned("; ".join(filter(None, (problem.message, problem.hint))))) from problem

    return str(
        click.prompt(cleaned(question), default=default, value_proc=judged, err=True, show_default=bool(default))
    )


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
        if on_terminal(sys.stderr) and os.environ.get("TERM") != "dumb":
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
                    with suppress(OSError):
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
                with suppress(OSError):
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
        # Text takes no markup; escape sequences it would pass on.
        return Text(cleaned("\n".join(lines)), no_wrap=True, overflow="ellipsis")
