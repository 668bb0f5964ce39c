"""The only module that writes to the terminal: results to stdout, progress to stderr, all cleaned by core.sanitize.

A reader that goes away (`| head`) never disturbs the work: further output is dropped.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, TextIO

from gpuprov.core import sanitize as shown
from gpuprov.core.errors import GpuprovError
from gpuprov.core.sanitize import RED, YELLOW, apart, cleaned, cut_to, hanging, painted, wrapped

if TYPE_CHECKING:
    import threading
    from types import TracebackType

    from rich.live import Live


def on_terminal(stream: TextIO | None) -> bool:
    """Return whether a person is at the other end of a standard stream (None: it was closed before the start)."""
    return stream is not None and stream.isatty()


def blocking() -> None:
    """Make the standard streams blocking, which the parent may not have left them: Python silently drops what a slow
    reader does not take, and Ansible refuses to start (`check_blocking_io` in ansible/cli)."""
    for number in range(3):
        with suppress(OSError):
            os.set_blocking(number, True)


def can_ask() -> bool:
    """Return whether a question would be seen and could be answered."""
    return on_terminal(sys.stdin) and on_terminal(sys.stderr)


def coloured(stream: TextIO | None) -> bool:
    """Return whether to use colour: only on a terminal, and not if NO_COLOR is set. https://no-color.org"""
    return on_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def width() -> int:
    """Return the maximum width of lines: the terminal's width, 100 elsewhere."""
    from shutil import get_terminal_size

    return get_terminal_size((100, 24)).columns


def room(stream: TextIO | None) -> int:
    """Return the maximum width of a line that is broken between words: the terminal's width; 0 elsewhere, so that
    searchable output is not broken."""
    if stream is None or not on_terminal(stream):
        return 0
    with suppress(OSError, ValueError):
        if not os.environ.get("COLUMNS"):
            return os.get_terminal_size(stream.fileno()).columns or width()
    return width()


def paint(text: str, code: str, stream: TextIO | None) -> str:
    """Return text in a colour, if the stream is to be coloured."""
    return shown.paint(text, code) if coloured(stream) else text


def result(text: str, *, in_colour: bool = False, order: str = "", wrap: bool = False) -> None:
    """Print a result to standard output. Raises GpuprovError if it cannot be written (a full disk).

    in_colour: made with `paint`, of parts that were cleaned before. order: the prefix that makes it a command to a CI
    system, if it is to be one. wrap: long lines break between words on a terminal.
    """
    try:
        _write(_break_lines(text, sys.stdout) if wrap else text, sys.stdout, in_colour=in_colour, order=order)
    except OSError as problem:
        raise GpuprovError(
            f"standard output cannot be written: {problem.strerror}", "send it where there is space"
        ) from problem


def progress(text: str, *, in_colour: bool = False) -> None:
    """Print progress to standard error; dropped if that cannot be written. in_colour: as in `result`."""
    with suppress(OSError):
        _write(text if in_colour else _break_lines(text, sys.stderr), sys.stderr, in_colour=in_colour)


def _break_lines(text: str, stream: TextIO | None) -> str:
    """Break lines longer than the terminal's width between words; elsewhere none, so that each can be searched."""
    space = room(stream)
    return "\n".join("\n".join(hanging(line, space)) if 0 < space < len(line) else line for line in text.split("\n"))


def _write(text: str, stream: TextIO | None, *, in_colour: bool = False, order: str = "") -> None:
    if stream is None:
        return
    clean = painted if in_colour and coloured(stream) else cleaned
    try:
        print(order + clean(text, getattr(stream, "encoding", "") or ""), file=stream, flush=True)
    except BrokenPipeError:
        _discard_output(stream)
    except OSError:
        _discard_output(stream)
        raise


def _discard_output(stream: TextIO) -> None:
    """Discard all further output to the stream, and the bytes in its buffer, which Python flushes at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


def warning(text: str) -> None:
    """Print a warning to standard error."""
    _print_labelled("warning:", YELLOW, text)


def fix(text: str) -> None:
    """Print a fix to standard error."""
    progress(f"fix: {text}")


def error(problem: GpuprovError) -> None:
    """Print an error and its fix to standard error."""
    _print_labelled("error:", RED, problem.message)
    if problem.fix:
        fix(problem.fix)


def _print_labelled(kind: str, colour: str, text: str) -> None:
    with suppress(OSError):
        body = _break_lines(f"{kind} {cleaned(text)}", sys.stderr).removeprefix(kind)
        _write(f"{paint(kind, colour, sys.stderr)}{body}", sys.stderr, in_colour=True)


def crash(kind: type[BaseException], problem: BaseException, trace: TracebackType | None) -> None:
    """Print a traceback to standard error; its message may come from a host. For `sys.excepthook`."""
    from traceback import format_exception

    progress("".join(format_exception(kind, problem, trace)).rstrip())


def confirm(question: str) -> bool:
    """Ask on the terminal; no is the default."""
    import click

    return bool(click.confirm(cleaned(question), default=False, err=True))


def ask(question: str, default: str, judge: Callable[[str], str]) -> str:
    """Ask on the terminal until `judge` returns the answer; it raises GpuprovError for an invalid one."""
    import click

    def judged(answer: str) -> str:
        try:
            return judge(answer.strip())
        except GpuprovError as problem:
            raise click.UsageError(cleaned("; ".join(filter(None, (problem.message, problem.fix))))) from problem

    return str(
        click.prompt(cleaned(question), default=default, value_proc=judged, err=True, show_default=bool(default))
    )


class Progress:
    """The current work on each host: one updating block on a terminal, a line per event elsewhere, and every PULSE the
    hosts still being waited for.

    On a terminal nothing is shown (and rich is not imported) before DELAY seconds, so that quick commands print
    nothing. `quiet` suppresses the lines per event; the live view and the pulse stay. `earlier`: how long it took the
    last time.
    """

    DELAY = 0.5
    PULSE = 60.0
    NAMED = 5
    """Number of hosts named by a pulse."""
    cut_off = ""
    """The work that an interrupt ended last, with its time and how many hosts were done; of the class."""

    def __init__(self, hosts: Sequence[str], doing: str, *, quiet: bool = False, earlier: str = "") -> None:
        self._doing, self._quiet, self._count, self._earlier = doing, quiet, len(hosts), earlier
        self._start = monotonic()
        self._waiting = dict.fromkeys(hosts, (doing, self._start))
        self._act = ""
        self._live: Live | None = None
        self._timer: threading.Timer | None = None
        self._closed: threading.Event | None = None
        self._lock: Any = None
        self._is_live = False

    def __enter__(self) -> Progress:
        import threading

        self._lock, self._closed = threading.Lock(), threading.Event()
        self._is_live = on_terminal(sys.stderr) and os.environ.get("TERM") != "dumb"
        if self._is_live:
            self._timer = threading.Timer(self.DELAY, self._go_live)
            self._timer.daemon = True
            self._timer.start()
        else:
            threading.Thread(target=self._pulse, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, _error: object, _trace: object) -> None:
        if kind and issubclass(kind, KeyboardInterrupt):
            Progress.cut_off = self._headline(monotonic())
        if self._timer:
            self._timer.cancel()
        with self._lock:
            if self._closed:
                self._closed.set()
            if self._live:
                with suppress(OSError):
                    self._live.stop()

    def act(self, text: str) -> None:
        """Show that all hosts are now in this part of the work."""
        self._act = text.partition(" - ")[0].replace(",", "").lower()

    def note(self, host: str, text: str) -> None:
        """Record a new activity of the host, which is shown only while the host is being waited for."""
        self._waiting[host] = (text, monotonic())

    def update(self, host: str, text: str) -> None:
        """Show a new activity of the host."""
        self.note(host, text)
        self._say(host, text)

    def done(self, host: str, text: str = "done") -> None:
        """Show that the host is finished."""
        self._waiting.pop(host, None)
        self._say(host, text)

    def _say(self, host: str, text: str) -> None:
        if not self._is_live and not self._quiet:
            progress(f"{host}: {text}")

    def _go_live(self) -> None:
        from rich.console import Console
        from rich.live import Live

        with self._lock:
            if self._closed and not self._closed.is_set():
                screen = Console(stderr=True, no_color=not coloured(sys.stderr))
                self._live = Live(get_renderable=self._picture, console=screen, transient=True, refresh_per_second=5)
                with suppress(OSError):
                    self._live.start()

    def _pulse(self) -> None:
        while self._closed and not self._closed.wait(self.PULSE):
            now = monotonic()
            waiting = list(self._waiting.items())
            parts = [f"{host}: {text}, for {clock(now - since)}" for host, (text, since) in waiting[: self.NAMED]]
            parts += [f"and {len(waiting) - self.NAMED} more"] if len(waiting) > self.NAMED else []
            progress("; ".join([self._headline(now), *parts]))

    def _headline(self, now: float) -> str:
        many = f"{self._count - len(self._waiting)} of {self._count} hosts done: " if self._count > 1 else ""
        heading = f"{clock(now - self._start)}, {many}{self._act or self._doing}"
        return ", ".join(filter(None, (heading, self._earlier)))

    def lines(self, columns: int, rows: int, now: float) -> list[str]:
        """Return a headline, then the activity of each host and its duration; no line is wider than `columns`."""
        waiting = list(self._waiting.items())
        shown = waiting[: max(rows - 5, 1)]
        words = max((len(text) for _, (text, _) in shown), default=0)
        room = min(max((len(host) for host, _ in shown), default=0), max(columns // 3, columns - 10 - words, 8))
        names = apart([host for host, _ in shown], room)
        output = wrapped(self._headline(now), max(columns, 20))
        output += [
            f"  {name:<{room}} {clock(now - at):>5} {text}" for name, (_, (text, at)) in zip(names, shown, strict=True)
        ]
        if len(waiting) > len(shown):
            output.append(f"  and {len(waiting) - len(shown)} more")
        return [cut_to(cleaned(line.replace("\n", " ")), columns) for line in output]

    def _picture(self) -> Any:
        from shutil import get_terminal_size

        from rich.text import Text

        size = get_terminal_size()
        # Text takes no markup; escape sequences it would pass on, and `lines` has cleaned them.
        room = max(
            size.columns - 3, 20
        )  # a terminal echoes ^C where the block ends: on a new line, the block's first would stay
        return Text("\n".join(self.lines(room, size.lines, monotonic())), no_wrap=True, overflow="ellipsis")


def clock(seconds: float) -> str:
    """Format a duration: `0:05`, `12:30`, `1:02:03`."""
    minutes, rest = divmod(int(max(seconds, 0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
