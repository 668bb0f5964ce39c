"""Several hosts at a time: drained and waited for, or given back. No host is held up by another."""

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

import msgspec

from gpuprov import __version__
from gpuprov.core.errors import Code, Outcome, choose_code
from gpuprov.core.safe_parse import format_document
from gpuprov.fleet.drain.base import Adapter, State, Step

# Questions to a scheduler at a time.
AT_ONCE = 8
# Seconds between two looks at a host, where the command does not say another time.
POLL = 10.0
# Seconds in which a node that was given back should answer its scheduler.
SETTLING = 60.0
# waiting: jobs are still running. unknown: a scheduler did not answer.
OUTCOMES: dict[State, Outcome] = {"done": "ok", "waiting": "differs", "refused": "failed", "unknown": "unreachable"}


class Drained(msgspec.Struct, kw_only=True):
    """The document of --json, of drain and undrain."""

    gpuprov_drain: Annotated[int, msgspec.Meta(description="Version of this format")] = 1
    gpuprov: str = __version__
    exit_code: Code
    run: str
    hosts: tuple[Step, ...]


Tell = Callable[[Step], None]
Ask = Callable[[str], Step]


def take_out(
    adapter: Adapter, hosts: Iterable[str], run: str, *, wait: float | None, poll: float | None, tell: Tell
) -> list[Step]:
    """Drain the hosts and wait for their last jobs, for `wait` seconds at most (None: without an end), with `poll`
    seconds (None: POLL) between two looks. `tell` gets each answer."""

    def ask(host: str) -> Step:
        step = adapter.drain(host, run)
        return adapter.drained(host, run) if step.state == "done" else step

    return _poll(hosts, ask, wait, poll, tell)


def give_back(
    adapter: Adapter, green: Mapping[str, bool], run: str, *, poll: float | None, tell: Tell, wait: float = SETTLING
) -> list[Step]:
    """Give back the hosts that are green, and report that the others stay out."""
    return _poll(green, lambda host: adapter.returned(host, run, green[host]), wait, poll, tell)


def _poll(hosts: Iterable[str], ask: Ask, wait: float | None, poll: float | None, tell: Tell) -> list[Step]:
    poll = POLL if poll is None else poll
    steps: dict[str, Step] = {}
    left = list(hosts)
    order = list(left)
    end = None if wait is None else time.monotonic() + wait
    with ThreadPoolExecutor(AT_ONCE) as pool:
        while left:
            for step in pool.map(ask, left):
                steps[step.host] = step
                tell(step)
            left = [host for host in left if steps[host].state in ("waiting", "unknown")]
            if left and end is not None and time.monotonic() + poll > end:
                break
            if left:
                time.sleep(poll)
    return [steps[host] for host in order]


def exit_code(steps: Iterable[Step]) -> Code:
    """Return the exit code of drain and undrain."""
    return choose_code((OUTCOMES[step.state] for step in steps), "ok")


def as_text(steps: Iterable[Step], done: str) -> str:
    """Format a line for each host, and below it what it waits for. `done`: the word for success."""
    lines = []
    for step in steps:
        node = f" (node {step.node})" if step.node != step.host else ""
        words = done if step.state == "done" else step.state
        text = "; ".join(part for part in (step.message, step.read) if part)
        lines.append(f"{step.host}{node}: {words}{': ' if text else ''}{text}")
        lines += [f"  {reason}" for reason in step.waits_for]
        lines += [f"  fix: {step.fix}"] if step.fix else []
    return "\n".join(lines)


def as_json(steps: Iterable[Step], run: str) -> str:
    """Format the same as JSON."""
    hosts = tuple(steps)
    return format_document(Drained(exit_code=exit_code(hosts), run=run, hosts=hosts))
