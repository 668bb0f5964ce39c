"""The interface between engines and commands: an engine stores events, takes what people say, and carries out what
`decide` returns."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from gpuprov.fleet.policy.events import Event
from gpuprov.fleet.policy.planned import Plan
from gpuprov.rollout.approvals import Said
from gpuprov.rollout.kept import Kept
from gpuprov.rollout.project import Project

Tell = Callable[[str], None]


class Now(msgspec.Struct, kw_only=True):
    """The current activity of an engine, for `rollout status`: no decision depends on it."""

    at: float = 0.0
    pid: int = 0
    waits: list[str] = []
    until: float | None = None
    hosts: dict[str, str] = {}


class Engine(Protocol):
    """An engine with its roll-outs. An unknown roll-out raises GpuprovError."""

    def all(self) -> list[Kept]:
        """Return every roll-out, the newest last."""
        ...

    def get(self, rollout: str = "") -> Kept:
        """Return the roll-out with this id; without an id, the only open one."""
        ...

    def plan(self, rollout: str) -> Plan:
        """Return its policy and hosts."""
        ...

    def policy(self, rollout: str) -> str:
        """Return the SHA-256 of the policy's text."""
        ...

    def events(self, rollout: str, seen: int = 0) -> list[Event]:
        """List the events recorded after the first `seen`."""
        ...

    def now(self, rollout: str) -> Now | None:
        """Return what the engine is waiting for; None if no process carries out the roll-out."""
        ...

    def results(self, rollout: str) -> str:
        """Return the folder with the folders of results; "" if they are not on this machine."""
        ...

    def check(self, made: Project) -> None:
        """Raise GpuprovError if the roll-out could not be carried out."""
        ...

    def begin(self, made: Project, policy_text: bytes) -> None:
        """Store a new roll-out. Raises GpuprovError if the id was used before, or if an open roll-out has one of the
        hosts."""
        ...

    def say(self, rollout: str, request: Said) -> Event | None:
        """Record what a person says, and return the recorded event."""
        ...

    def carry_out(self, rollout: str, tell: Tell) -> bool:
        """Carry out the roll-out until it is over or stopped. False: other processes do, and nobody needs to wait for
        them."""
        ...
