"""Draining and returning hosts beside the engine: one call at a time for each host, repeated until the adapter gives a
final answer."""

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Literal

from gpuprov.fleet.drain import Adapter, Step
from gpuprov.fleet.policy import events
from gpuprov.fleet.policy.decide import Return
from gpuprov.fleet.policy.events import Event
from gpuprov.fleet.policy.state import State
from gpuprov.rollout.results import LONGEST

AT_ONCE = 8
Ask = Literal["drain", "drained", "return", "keep"]


def ask_adapter(adapter: Adapter, ask: Ask, host: str, run: str) -> Step:
    """Return the adapter's answer to one question."""
    if ask in ("return", "keep"):
        return adapter.returned(host, run, ask == "return")
    return adapter.drain(host, run) if ask == "drain" else adapter.drained(host, run)


def follows(ask: Ask, host: str, step: Step, now: float) -> Event | None:
    """Return the event to record for an answer; None to ask again, or, once a host is out, to ask whether it is
    free."""
    reason = step.message or step.read
    if ask in ("return", "keep"):
        if step.state not in ("done", "refused"):
            return None
        refused = ask == "return" and step.state == "refused"
        return events.Returned(
            at=now,
            hosts=(host,),
            message=f"not given back: {reason}"[:LONGEST] if refused else "",
            untold=step.untold[:LONGEST] if step.state == "done" else None,
        )
    if step.state == "refused":
        return events.NotDrained(at=now, host=host, message=f"not drained: {reason}"[:LONGEST])
    if (ask, step.state) != ("drained", "done"):
        return None
    return events.Drained(at=now, hosts=(host,), untold=step.untold[:LONGEST])


def waited_for(step: Step) -> str:
    """Describe what holds a host, in one line."""
    return (", ".join(step.waits_for[:5]) or step.message or step.read)[:LONGEST]


@dataclass(slots=True)
class _Host:
    """`question`: the last one; `due`: when to ask again."""

    question: str = ""
    due: float = 0.0
    is_out: bool = False
    call: Future[Step] | None = None


@dataclass(slots=True)
class Drains:
    """The calls to the adapter. Without an adapter every host is free, and nothing has to be given back."""

    adapter: Adapter | None
    run: str
    poll: float
    waits: dict[str, str] = field(default_factory=dict)
    _hosts: dict[str, _Host] = field(default_factory=dict)
    _pool: ThreadPoolExecutor | None = None

    def settle(self, state: State, returns: Iterable[Return], now: float) -> list[Event]:
        """Ask the questions that are due, and return the answers as events."""
        new_events: list[Event] = []
        back = {returned.host: returned.green for returned in returns}
        draining = [name for name, host in state.hosts.items() if host.stage == "draining" and name not in back]
        for name in draining:
            if event := self._draining(name, now):
                new_events.append(event)
        for name, green in back.items():
            if event := self._returned(name, green, now):
                new_events.append(event)
        for name in self._hosts.keys() - {*draining, *back}:
            if (call := self._hosts[name].call) is None or call.done():
                del self._hosts[name]
                self.waits.pop(name, None)
        return new_events

    def _draining(self, name: str, now: float) -> Event | None:
        if self.adapter is None:
            return events.Drained(at=now, hosts=(name,))
        host = self._hosts.setdefault(name, _Host())
        ask: Ask = "drained" if host.is_out else "drain"
        step = self._ask(host, ask, name, now)
        if step is None:
            return None
        if event := follows(ask, name, step, now):
            return event
        if step.state == "done":
            host.is_out, host.due = True, 0.0
        self.waits[name] = waited_for(step)
        return None

    def _returned(self, name: str, green: bool, now: float) -> Event | None:
        if self.adapter is None:
            return events.Returned(at=now, hosts=(name,))
        ask: Ask = "return" if green else "keep"
        step = self._ask(self._hosts.setdefault(name, _Host()), ask, name, now)
        if step is None:
            return None
        if (event := follows(ask, name, step, now)) is None:
            self.waits[name] = waited_for(step)
        return event

    def _ask(self, host: _Host, ask: Ask, name: str, now: float) -> Step | None:
        """Return the answer to this question, once; None until there is an answer. A failed call is repeated."""
        if host.call is not None:
            if not host.call.done():
                return None
            ended, host.call = host.call, None
            if host.question == ask:
                host.due = now + self.poll
                broke = ended.exception()
                if broke is None:
                    return ended.result()
                return Step(host="", node="", state="unknown", message=str(broke))
        if host.question != ask or now >= host.due:
            self._pool = self._pool or ThreadPoolExecutor(AT_ONCE, "drain")
            assert self.adapter is not None
            host.question, host.call = ask, self._pool.submit(ask_adapter, self.adapter, ask, name, self.run)
        return None

    def close(self) -> None:
        """Drop the calls that were not begun."""
        if self._pool:
            self._pool.shutdown(wait=False, cancel_futures=True)
