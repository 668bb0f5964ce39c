"""What client, workflow and workers hand each other: references (digests, ids) and small results, as plain JSON."""

from __future__ import annotations

import base64
import zlib
from typing import Any, TypeVar

import msgspec

from gpuprov import __version__, reading
from gpuprov.drain import Step
from gpuprov.fleet_policy.events import Act, HostEnd
from gpuprov.fleet_policy.planned import Member, Plan, planned
from gpuprov.fleet_policy.policy import Policy
from gpuprov.fleet_policy.windows import Pinned
from gpuprov.rollout.drains import Ask

ROLLOUT, HOSTS = "gpuprov-rollout", "gpuprov-hosts"
"""The workflows. One of the second kind knows the hosts of all that are open, so that no two roll-outs have one in common."""
QUEUE = f"gpuprov-{__version__}"
"""Of the workflows: a roll-out is carried out by the version that began it."""
HOSTS_QUEUE = "gpuprov-hosts"
EVENTS_AT_ONCE = 500
LARGEST = 256 << 20
"""Bytes of what was packed."""
REFUSED, SAID = "refused", "said"
"""Types of errors: the roll-out may not begin; what a person said may not be said now."""
T = TypeVar("T")


def workflow_id(rollout: str) -> str:
    """One open workflow has it."""
    return f"gpuprov-rollout-{rollout}"


def queue(site: str) -> str:
    """Where the jobs of a site wait for its worker."""
    return f"{QUEUE}-site-{site or 'default'}"


class Begin(msgspec.Struct, frozen=True, kw_only=True):
    """A roll-out to be carried out. `log`: what happened before, packed, where a long history was begun anew."""

    rollout: str
    fleet: str
    policy: str
    by: str
    heartbeat: float = 60.0
    log: str = ""


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """What a workflow knows of its files. `members`: packed. `zone`: changes of the time zone, so that it is read once."""

    members: str
    policy: dict[str, Any]
    zone: list[tuple[float, int]] = []

    def plan(self) -> Plan:
        """The same plan, wherever it is made."""
        members = unpacked(self.members, list[Member])
        pinned = Pinned(self.zone) if self.zone else None
        return planned(msgspec.convert(self.policy, Policy), members, pinned)


class Refusal(msgspec.Struct, frozen=True):
    """An open roll-out with hosts of this one."""

    rollout: str
    hosts: list[str]


class JobAsked(msgspec.Struct, frozen=True, kw_only=True):
    """One job of a site's worker."""

    rollout: str
    fleet: str
    policy: str
    number: int
    act: Act
    hosts: tuple[str, ...]


class JobEnded(msgspec.Struct, frozen=True, kw_only=True):
    """What it came to. `message`: of a process that ended without all results."""

    ends: tuple[HostEnd, ...]
    message: str = ""


class Questions(msgspec.Struct, frozen=True, kw_only=True):
    """What a site's worker asks its scheduler."""

    rollout: str
    fleet: str
    policy: str
    asked: tuple[tuple[Ask, str], ...]


class Answers(msgspec.Struct, frozen=True):
    """In the order of the questions."""

    steps: tuple[Step, ...]


class Site(msgspec.Struct, frozen=True):
    """Where a workflow's state stands, for `rollout status`."""

    waits: list[str]
    until: float | None
    hosts: dict[str, str]


def packed(value: object) -> str:
    """As text that takes little room: hundreds of host names that differ in a digit."""
    return base64.b85encode(zlib.compress(msgspec.json.encode(value), 9)).decode()


def unpacked(text: str, kind: type[T]) -> T:
    """What was packed."""
    data = zlib.decompressobj().decompress(base64.b85decode(text), LARGEST)
    return reading.typed_json(data, kind, largest=LARGEST)


def plain(value: object) -> Any:
    """As Temporal's own converter writes it."""
    return msgspec.to_builtins(value)
