"""SIGINT, SIGTERM and SIGHUP while Ansible runs: Ansible gets SIGINT, then SIGTERM, then is killed with its
children."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from gpuprov.core.signals import ENDING, handled
from gpuprov.host_code.process import read_start_time, read_stat

# Seconds for Ansible to end its workers after SIGINT, then again after SIGTERM.
GRACE = 15.0


class Interrupt:
    """Interruption of one Ansible run. `requested` is true once it was requested."""

    def __init__(self, pid_file: Path, grace: float = GRACE, on_request: Callable[[], None] | None = None) -> None:
        self._pid_file, self._on_request = pid_file, on_request
        self._grace = grace
        self._over = threading.Event()
        self._family: dict[int, str] = {}
        self._thread: threading.Thread | None = None
        self.requested = False

    def handle(self, _signal: int, _frame: FrameType | None) -> None:
        """Request the end of Ansible at the first signal; do not wait for it at further ones."""
        if self.requested:
            self._grace = 0.0
            self._over.set()
        self.requested = True
        if self._thread is None:
            self._thread = threading.Thread(target=self._end, daemon=True)
            self._thread.start()

    def finish(self) -> None:
        """Kill what Ansible left running after it ended, if it was interrupted."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        for pid, born in self._family.items():
            if read_start_time(pid) == born:
                _send(pid, signal.SIGKILL)

    def _end(self) -> None:
        if self._on_request:
            with suppress(Exception):  # what is said must not keep Ansible running
                self._on_request()
        pid = self._child()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            if pid is None:
                return
            self._family |= descendants(pid)
            _send(pid, number)
            if self._over.wait(self._grace) and self._grace:
                return

    def _child(self) -> int | None:
        """Return the process id of Ansible, waiting for it while it starts."""
        while not self._pid_file.exists():
            if self._over.wait(0.05):
                break
        with suppress(OSError, ValueError):
            return int(self._pid_file.read_text())
        return None


@contextmanager
def interruptible(
    pid_file: Path, grace: float = GRACE, on_request: Callable[[], None] | None = None
) -> Iterator[Interrupt]:
    """Direct signals to the Ansible run named by `pid_file` while inside.

    on_request: called at once at the first signal, from another thread.
    """
    interrupt = Interrupt(pid_file, grace, on_request)
    with handled(ENDING, interrupt.handle):
        try:
            yield interrupt
        finally:
            interrupt.finish()


def descendants(pid: int) -> dict[int, str]:
    """Return every process below `pid`, with its start time; empty if there is no /proc."""
    children: dict[int, list[int]] = {}
    births: dict[int, str] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        fields = read_stat(int(entry.parent.name))
        if fields:
            children.setdefault(int(fields[1]), []).append(int(entry.parent.name))
            births[int(entry.parent.name)] = fields[19]
    descended: dict[int, str] = {}
    waiting = [pid]
    while waiting:
        for child in children.get(waiting.pop(), []):
            descended[child] = births[child]
            waiting.append(child)
    return descended


def _send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
