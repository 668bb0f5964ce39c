"""Messages between client, workflow and workers: references (digests, ids) and small results, as plain JSON."""

import base64
import zlib
from typing import Any, TypeVar

import msgspec

from gpuprov import __version__
from gpuprov.core import safe_parse
from gpuprov.fleet.drain import Step
from gpuprov.fleet.policy.events import Act, HostEnd
from gpuprov.fleet.policy.planned import Member, Plan, planned
from gpuprov.fleet.policy.policy import Policy
from gpuprov.fleet.policy.windows import Pinned
from gpuprov.rollout.drains import Ask

# The workflows. One workflow of the second kind knows the hosts of all open roll-outs, so that no two share a host.
ROLLOUT, HOSTS = "gpuprov-rollout", "gpuprov-hosts"
# Task queue of the workflows: the version that began a roll-out carries it out.
QUEUE = f"gpuprov-{__version__}"
HOSTS_QUEUE = "gpuprov-hosts"
EVENTS_AT_ONCE = 500
# Maximum size of unpacked data, in bytes.
LARGEST = 256 << 20
# Types of errors: the roll-out may not begin; the command is not permitted now.
REFUSED, SAID = "refused", "said"
T = TypeVar("T")


def workflow_id(rollout: str) -> str:
    """Return the workflow id, which only one open workflow has."""
    return f"gpuprov-rollout-{rollout}"


def queue(site: str) -> str:
    """Return the task queue of a site's worker."""
    return f"{QUEUE}-site-{site or 'default'}"


class Begin(msgspec.Struct, frozen=True, kw_only=True):
    """A roll-out to be carried out."""

    rollout: str
    fleet: str
    policy: str
    by: str
    heartbeat: float = 60.0
    # Earlier events, packed, if a long history was restarted.
    log: str = ""


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a workflow's files."""

    # Packed.
    members: str
    policy: Policy
    # Changes of the time zone, so that it is read once.
    zone: list[tuple[float, int]] = []

    def plan(self) -> Plan:
        """Return the plan, the same wherever it is made."""
        members = unpacked(self.members, list[Member])
        pinned = Pinned(self.zone) if self.zone else None
        return planned(self.policy, members, pinned)


class Refusal(msgspec.Struct, frozen=True):
    """An open roll-out that shares hosts with this one."""

    rollout: str
    hosts: list[str]


class JobAsked(msgspec.Struct, frozen=True, kw_only=True):
    """A job for a site's worker."""

    rollout: str
    fleet: str
    policy: str
    number: int
    act: Act
    hosts: tuple[str, ...]
    repairs: int = 0


class JobEnded(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a job."""

    ends: tuple[HostEnd, ...]
    # From a process that ended without all results.
    message: str = ""


class Questions(msgspec.Struct, frozen=True, kw_only=True):
    """Questions from a site's worker to its scheduler."""

    rollout: str
    fleet: str
    policy: str
    questions: tuple[tuple[Ask, str], ...]


class Answers(msgspec.Struct, frozen=True):
    """Answers in the order of the questions."""

    steps: tuple[Step, ...]


class Site(msgspec.Struct, frozen=True):
    """The current activity of a workflow, for `rollout status`."""

    waits: list[str]
    until: float | None
    hosts: dict[str, str]


def packed(value: object) -> str:
    """Pack data as short text: hundreds of host names differ in a single digit."""
    return base64.b85encode(zlib.compress(msgspec.json.encode(value), 9)).decode()


def unpacked(text: str, kind: type[T]) -> T:
    """Unpack what `packed` returned."""
    data = zlib.decompressobj().decompress(base64.b85decode(text), LARGEST)
    return safe_parse.parse_typed_json(data, kind, largest=LARGEST)


def plain(value: msgspec.Struct) -> dict[str, Any]:
    """Return the value as Temporal's own converter writes it."""
    builtins: dict[str, Any] = msgspec.to_builtins(value)
    return builtins
