"""What an engine is to the commands: it keeps what has happened, takes what people say, and carries out what `decide` says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from gpuprov.fleet_policy.events import Event
from gpuprov.fleet_policy.planned import Plan
from gpuprov.rollout.kept import Kept
from gpuprov.rollout.project import Project
from gpuprov.rollout.said import Said

Tell = Callable[[str], None]


class Now(msgspec.Struct, kw_only=True):
    """What an engine is at, for `rollout status`: nothing is decided by it."""

    at: float = 0.0
    pid: int = 0
    waits: list[str] = []
    until: float | None = None
    hosts: dict[str, str] = {}


class Engine(Protocol):
    """One engine with its roll-outs. A roll-out that it does not know raises GpuprovError."""

    def all(self) -> list[Kept]:
        """Every roll-out, the newest last."""
        ...

    def one(self, rollout: str = "") -> Kept:
        """The roll-out of this id; without one, the only one that is open."""
        ...

    def plan(self, rollout: str) -> Plan:
        """Its policy over its hosts."""
        ...

    def policy(self, rollout: str) -> str:
        """SHA-256 of the policy's text."""
        ...

    def events(self, rollout: str, seen: int = 0) -> list[Event]:
        """What was recorded after the first `seen`."""
        ...

    def now(self, rollout: str) -> Now | None:
        """What is waited for; None where nobody carries it out."""
        ...

    def results(self, rollout: str) -> str:
        """The folder with the folders of results; empty where they are not on this machine."""
        ...

    def check(self, made: Project) -> None:
        """Raise GpuprovError where it could not be carried out."""
        ...

    def begin(self, made: Project, policy_text: bytes) -> None:
        """Keep a new roll-out. Raises GpuprovError for an id that was used, and where an open roll-out has one of the hosts."""
        ...

    def say(self, rollout: str, said: Said) -> Event | None:
        """Record what a person says, and return what was recorded."""
        ...

    def carry_out(self, rollout: str, tell: Tell) -> bool:
        """Until it is over or stopped. False: others do, and need nobody who waits for them."""
        ...
