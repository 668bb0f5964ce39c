"""Draining and returning hosts beside the engine: one call at a time for a host, asked again until the adapter has said its word."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from gpuprov.drain import Adapter, Step
from gpuprov.rollout import events
from gpuprov.rollout.decide import Return
from gpuprov.rollout.events import Event
from gpuprov.rollout.results import LONGEST
from gpuprov.rollout.state import State

AT_ONCE = 8


@dataclass(slots=True)
class _Host:
    """`asked`: what was asked last; `due`: when to ask again."""

    asked: str = ""
    due: float = 0.0
    is_out: bool = False
    call: Future[Step] | None = None


@dataclass(slots=True)
class Drains:
    """The adapter's calls. Without an adapter every host is free, and nothing is to be given back."""

    adapter: Adapter | None
    run: str
    poll: float
    waits: dict[str, str] = field(default_factory=dict)
    _hosts: dict[str, _Host] = field(default_factory=dict)
    _pool: ThreadPoolExecutor | None = None

    def settle(self, state: State, returns: Iterable[Return], now: float) -> list[Event]:
        """Ask what is due, and tell what was answered."""
        found: list[Event] = []
        back = {one.host: one.green for one in returns}
        draining = [name for name, host in state.hosts.items() if host.stage == "draining" and name not in back]
        for name in draining:
            if event := self._draining(name, now):
                found.append(event)
        for name, green in back.items():
            if event := self._returned(name, green, now):
                found.append(event)
        for name in self._hosts.keys() - {*draining, *back}:
            if (call := self._hosts[name].call) is None or call.done():
                del self._hosts[name]
                self.waits.pop(name, None)
        return found

    def _draining(self, name: str, now: float) -> Event | None:
        if self.adapter is None:
            return events.Drained(at=now, hosts=(name,))
        host = self._hosts.setdefault(name, _Host())
        asked = "drained" if host.is_out else "drain"
        call = self.adapter.drained if host.is_out else self.adapter.drain
        step = self._ask(host, asked, lambda: call(name, self.run), now)
        if step is None:
            return None
        if step.state == "refused":
            return events.NotDrained(at=now, host=name, message=f"not drained: {step.message or step.read}"[:LONGEST])
        if step.state == "done" and asked == "drained":
            return events.Drained(at=now, hosts=(name,))
        if step.state == "done":
            host.is_out, host.due = True, 0.0
        self._waits(name, step)
        return None

    def _returned(self, name: str, green: bool, now: float) -> Event | None:
        if self.adapter is None:
            return events.Returned(at=now, hosts=(name,))
        adapter, host = self.adapter, self._hosts.setdefault(name, _Host())
        step = self._ask(host, f"returned {green}", lambda: adapter.returned(name, self.run, green), now)
        if step is None:
            return None
        if step.state in ("done", "refused"):
            told = f"not given back: {step.message or step.read}"[:LONGEST] if green and step.state == "refused" else ""
            return events.Returned(at=now, hosts=(name,), message=told)
        self._waits(name, step)
        return None

    def _waits(self, name: str, step: Step) -> None:
        self.waits[name] = (", ".join(step.waits_for[:5]) or step.message or step.read)[:LONGEST]

    def _ask(self, host: _Host, asked: str, call: Callable[[], Step], now: float) -> Step | None:
        """The answer to this question, once; None while there is none. A call that broke is asked again."""
        if host.call is not None:
            if not host.call.done():
                return None
            ended, host.call = host.call, None
            if host.asked == asked:
                host.due = now + self.poll
                broke = ended.exception()
                if broke is None:
                    return ended.result()
                return Step(host="", node="", state="unknown", message=str(broke))
        if host.asked != asked or now >= host.due:
            self._pool = self._pool or ThreadPoolExecutor(AT_ONCE, "drain")
            host.asked, host.call = asked, self._pool.submit(call)
        return None

    def close(self) -> None:
        """Calls that were not begun are left."""
        if self._pool:
            self._pool.shutdown(wait=False, cancel_futures=True)
