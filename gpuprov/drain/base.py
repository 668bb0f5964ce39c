"""Taking a host out of its scheduler and giving it back: one interface, whatever the scheduler is.

Each step can be done again: whoever was killed calls it once more, and a step that finds its work done says so. What a step
says was read back from the scheduler after it changed something. What is somebody else's stays as it is, to the byte.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, Protocol

import msgspec

from gpuprov.errors import GpuprovError

State = Literal["done", "waiting", "refused", "unknown"]
"""done: as asked, and read back. waiting: ask again, `waits_for` says what holds it. refused: a person decides; asking again
changes nothing by itself. unknown: the scheduler could not be asked, or its answer not be read; ask again."""

Holds = Literal["", "jobs", "a person"]
"""What a host waits for. jobs: they may take days. a person: nothing else lets it go on. Nothing: what ends within minutes."""

MARK = "gpuprov"
RUN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
"""What a run may be called: also a label's value in Kubernetes, and one word of a reason in Slurm."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one step. `read`: what the scheduler said of the node after it, in its own words; data, never cleaned here.
    `untold`: why the host itself does not know that it is out, or in service again (`noted`)."""

    host: str
    node: str
    state: State
    read: str = ""
    waits_for: tuple[str, ...] = ()
    holds: Holds = ""
    message: str = ""
    hint: str = ""
    untold: str = ""


class Adapter(Protocol):
    """One scheduler. `host` is the inventory's name, `run` the id of the run, by which is known what is ours."""

    @property
    def name(self) -> str:
        """As it is written in a policy and after --by."""
        ...

    def drain(self, host: str, run: str) -> Step:
        """Take the host out: nothing new starts on it. Ends no job. Done: no new work comes; `drained` says when the last has left."""
        ...

    def drained(self, host: str, run: str) -> Step:
        """Whether the last job has left. In Kubernetes it asks once more for the eviction of what is still there."""
        ...

    def returned(self, host: str, run: str, green: bool) -> Step:
        """Give the host back if it is `green`, and out by this run. Without `green` it stays out: refused, with what was read."""
        ...


def checked_run(run: str) -> str:
    """The run's id. Raises GpuprovError where it cannot stand in a reason, an annotation or a label."""
    if not RUN.fullmatch(run):
        raise GpuprovError(
            f"the run {run[:80]!r} cannot be named in a scheduler",
            "allowed: at most 63 letters, digits, dots, - and _, with a letter or digit at both ends",
        )
    return run


def node_of(host: str, names: Mapping[str, str]) -> str:
    """What the scheduler calls this host: what `names` has for it, else the inventory's name."""
    return names.get(host) or host
