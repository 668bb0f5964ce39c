"""The embedded engine: this machine carries out what `decide` returns. It may be killed at any moment; another process
continues.

An action is recorded before it is carried out. If a process finds an action that is recorded and not over, it repeats
the action or waits for it. A job's process outlives the engine: the next engine waits for it and never starts a second
one.
"""

import fcntl
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Literal

import msgspec

from gpuprov.core.errors import GpuprovError
from gpuprov.core.signals import handled
from gpuprov.fleet.policy import decide, events
from gpuprov.fleet.policy.events import Event
from gpuprov.fleet.policy.policy import seconds
from gpuprov.fleet.policy.state import State, folded
from gpuprov.rollout.base import Now
from gpuprov.rollout.drains import Drains
from gpuprov.rollout.jobs import Worker
from gpuprov.rollout.locks import is_held, opened
from gpuprov.rollout.project import Project
from gpuprov.rollout.store import Store
from gpuprov.rollout.text import awaited, line

# Seconds between two checks of results, drains, and events recorded by other processes.
TICK = 0.5
LOCK, NOW = "engine.lock", "now.json"
# The reason for a pause after an interrupt of its own process.
INTERRUPTED = "Ctrl-C"


class Engine:
    """A roll-out, carried out by one process at a time."""

    def __init__(
        self,
        store: Store,
        project: Project,
        *,
        tell: Callable[[str], None] = lambda _text: None,
        clock: Callable[[], float] = time.time,
        tick: float = TICK,
    ) -> None:
        self.store, self.project, self.state = store, project, State(project.plan)
        self._tell, self._clock, self._tick = tell, clock, tick
        self._place = store.place(project.id)
        self._workers: dict[int, Worker] = {}
        drain = project.plan.policy.drain
        self._drains = Drains(project.adapter, project.id, seconds(drain.poll) if drain else 0.0)
        self._reported: list[str] = []
        self._interrupts_seen = 0

    def run(self) -> State:
        """Run until the roll-out is over, or stopped with nothing under way. Ctrl-C pauses it, and waits for what is
        under way."""
        with alone(self._place, self.project.id), self._interrupts():
            self.state = folded(self.project.plan, self.store.events(self.project.id))
            paused = False
            try:
                while (went := self._step()) != "over":
                    if self._interrupts_seen and not paused:
                        paused = True
                        self._pause()
                    elif went == "idle":
                        time.sleep(self._tick)
            except KeyboardInterrupt:
                self._tell(f"jobs that run go on by themselves; gpuprov rollout resume {self.project.id} finds them")
                raise
            self._drains.close()
            (self._place / NOW).unlink(missing_ok=True)
        if self._interrupts_seen and not self.state.finished:
            raise KeyboardInterrupt
        return self.state

    @contextmanager
    def _interrupts(self) -> Iterator[None]:
        """Count the first Ctrl-C in this context: an exception could be lost, for example in a finalizer. The second
        Ctrl-C raises one."""

        def count_interrupt(_signal: int, _frame: FrameType | None) -> None:
            self._interrupts_seen += 1
            if self._interrupts_seen > 1:
                raise KeyboardInterrupt

        with handled((signal.SIGINT,), count_interrupt):
            yield

    def _step(self) -> Literal["on", "idle", "over"]:
        """Check once for news, and act on it."""
        self._catch_up()
        if self.state.finished:
            return "over"
        now = self._clock()
        actions = decide.following(self.state, now)
        returns = [action for action in actions if isinstance(action, decide.Return)]
        if new_events := [*self._results(now), *self._drains.settle(self.state, returns, now)]:
            if not self._record(new_events):
                for worker in self._workers.values():
                    worker.forget()
            return "on"
        if recorded := decide.record(actions, self.state, now):
            if not self._record(recorded, seen=self.state.seen - len(recorded)):
                self.state = folded(self.project.plan, self.store.events(self.project.id))
            return "on"
        self._note([action for action in actions if isinstance(action, decide.Wait)], now)
        ends = self.state.stopped or (self._interrupts_seen and self.state.paused)
        return "over" if ends and not self.state.busy else "idle"

    def _catch_up(self) -> None:
        """Add the events that other processes have recorded."""
        for event in self.store.events(self.project.id, self.state.seen):
            self.state.add(event)
            self._say(event)

    def _record(self, new_events: Sequence[Event], seen: int | None = None) -> bool:
        """Record an event, or an action that is about to begin, which the state already has. False: another process
        recorded something first, and nothing was recorded."""
        over = any(isinstance(event, events.Finished) for event in new_events)
        if not self.store.record(self.project.id, self.state.seen if seen is None else seen, new_events, over=over):
            return False
        for event in new_events:
            if seen is None:
                self.state.add(event)
            self._say(event)
        return True

    def _worker(self, number: int) -> Worker:
        job = self.state.jobs[number]
        return Worker(self._place, self.project.id, job, self.project.words)

    def _results(self, now: float) -> Iterator[Event]:
        """Yield the results of the jobs. A job whose process is gone is over, or is started (again) if this engine has
        not seen it run."""
        self._workers = {number: worker for number, worker in self._workers.items() if number in self.state.jobs}
        for number, job in self.state.jobs.items():
            known = self._workers.get(number)
            worker = known or self._worker(number)
            lives = worker.lives()  # before its results are read: what it wrote last is among them then
            if ends := tuple(worker.new()):
                yield events.Done(at=now, job=number, hosts=ends)
            if not lives and job.left <= {end.host for end in ends}:
                yield events.JobOver(at=now, job=number)
            elif not lives and known:
                yield events.JobOver(at=now, job=number, message=worker.last_words())
            elif not known and not lives and not ends:
                worker.start(self.project.fleet)
            if known or lives or not ends:
                self._workers[number] = worker

    def _pause(self) -> None:
        by = self.project.user
        while not (self.state.paused or self.state.stopped or self.state.aborted or self.state.finished):
            if not self._record([events.Paused(at=self._clock(), by=by, why=INTERRUPTED)]):
                self._catch_up()
        self._tell(
            "interrupted: nothing new is started, what is under way is waited for; Ctrl-C again does not wait. "
            f"gpuprov rollout resume {self.project.id} continues"
        )

    def _say(self, event: Event) -> None:
        if text := line(event, self.state):
            self._tell(text)

    def _note(self, waits: Sequence[decide.Wait], now: float) -> None:
        reasons = (
            [] if self.state.paused or self.state.stopped else [wait.why for wait in waits]
        )  # that was said as it happened
        for why in reasons:
            if why not in self._reported:
                self._tell(why)
                if step := awaited(why):
                    self._tell(f'fix: gpuprov rollout approve {self.project.id} "{step}"')
        self._reported = reasons
        until = min((wait.until for wait in waits if wait.until is not None), default=None)
        noted = Now(at=now, pid=os.getpid(), waits=reasons, until=until, hosts=self._drains.waits)
        with suppress(OSError):
            part = self._place / f".{NOW}"
            part.write_bytes(msgspec.json.encode(noted))
            os.replace(part, self._place / NOW)


@contextmanager
def alone(place: Path, rollout: str) -> Iterator[None]:
    """Exclude other processes from carrying out this roll-out. Raises GpuprovError if another process does."""
    handle = opened(place / LOCK, os.O_RDWR | os.O_CREAT)
    try:
        for left in range(TRIES, -1, -1):
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not left:
                    fix = f"gpuprov rollout watch {rollout} shows it"
                    message = f"the roll-out {rollout} is being carried out by another process"
                    raise GpuprovError(message, fix) from None
            time.sleep(0.1)
        yield
    finally:
        os.close(handle)


# Attempts to get the lock: a process that only checks whether an engine is running also holds it for a moment.
TRIES = 10


def is_carried_out(place: Path) -> bool:
    """Return whether an engine is working on it."""
    return is_held(place / LOCK, fcntl.LOCK_SH)
