"""The heartbeat of a worker: lines of JSON on standard output, at each change and at least every ten seconds."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import msgspec

from gpuprov.core import terminal
from gpuprov.core.errors import CODES, GpuprovError
from gpuprov.jobs.model import Beat, HostResult
from gpuprov.jobs.outcome import now
from gpuprov.plan.events import Step
from gpuprov.plan.show import Show

# Maximum number of seconds between two lines.
EVERY = 10.0


class Pulse(Show):
    """Reports work in progress. `say` gets each line; if nobody reads it any more, the work continues."""

    def __init__(self, say: Callable[[str], None] = terminal.result, every: float = EVERY) -> None:
        self._say, self._every = say, every
        self._lock, self._over = threading.Lock(), threading.Event()
        self._done = self._of = 0
        self._state = "working"

    @contextmanager
    def going(self, done: int, of: int) -> Iterator[None]:
        """Do the work inside; `done` of its hosts are finished already."""
        self._done, self._of = done, of
        thread = threading.Thread(target=self._beat, daemon=True)
        self._tell("started")
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def ended(self, result: HostResult, done: int) -> None:
        """Report a host's result, and the number of hosts done."""
        self._done = done
        self._tell(result.state, host=result.host, verdict=result.verdict, message=result.message)

    def over(self, exit_code: int) -> None:
        """Report that the work has ended."""
        self._tell("interrupted" if exit_code == CODES["interrupted"] else "ended")

    @contextmanager
    def reading(self, hosts: Sequence[str], doing: str) -> Iterator[Callable[[str], None]]:
        """Read hosts inside."""
        self._tell(doing)
        yield lambda _host: None

    @contextmanager
    def applying(self, hosts: Sequence[str], doing: str, earlier: str = "") -> Iterator[Callable[[Step], None]]:
        """Run Ansible inside: each act is a change."""

        def step(event: Step) -> None:
            if event.kind == "act":
                self._tell(doing, message=event.text)
            elif event.kind in ("failed", "unreachable"):
                self._tell(doing, host=event.host, message=f"{event.kind}: {event.text}")

        self._tell(doing)
        yield step

    def say(self, text: str) -> None:
        """Print a line about the whole, for people."""
        terminal.progress(text)

    def _beat(self) -> None:
        while not self._over.wait(self._every):
            self._tell(self._state)

    def _tell(self, state: str, host: str = "", verdict: str = "", message: str = "") -> None:
        with self._lock:
            if not host and state not in ("started", "ended", "interrupted"):
                self._state = state
            beat = Beat(
                at=now(), state=state, done=self._done, of=self._of, host=host, verdict=verdict, message=message
            )
            with suppress(GpuprovError):
                self._say(msgspec.json.encode(beat).decode())
