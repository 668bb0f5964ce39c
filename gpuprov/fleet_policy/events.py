"""What has happened in a roll-out: recorded one after another and never changed. All that is known of it follows from these."""

from __future__ import annotations

from typing import Literal

import msgspec

Act = Literal["prepare", "apply", "verify"]
Verdict = Literal["green", "waits", "failed", "again"]
"""green: as wanted. waits: for a reboot that is not permitted. failed. again: locked, not reached or without a result; tried again."""
LATER = frozenset({"locked", "unreachable", "not-started"})
"""States of hosts that may well succeed at another time."""
ENDED = frozenset({"verified", "unchanged", "changed"})
"""States of hosts on which an act came to its end."""


def verdict_of(state: str, *, green: bool, reboot: bool) -> Verdict:
    """The verdict on a host in this state. `green`: as wanted, and proven. `reboot`: it must still be rebooted."""
    if green:
        return "green"
    if state in LATER:
        return "again"
    return "waits" if reboot and state in ENDED else "failed"


class _Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", omit_defaults=True):
    """`at`: seconds since 1970, UTC."""

    at: float


class Started(_Event, frozen=True, tag="started"):
    by: str


class Approved(_Event, frozen=True, tag="approved"):
    """`step`: "canary", "batches" or "batch 3"."""

    step: str
    by: str


class Paused(_Event, frozen=True, tag="paused"):
    by: str
    why: str = ""


class Resumed(_Event, frozen=True, tag="resumed"):
    """`retry`: hosts that failed, or wait, are done again. `forgive`: those that failed until now count no more."""

    by: str
    retry: bool = False
    forgive: bool = False


class Aborted(_Event, frozen=True, tag="aborted"):
    by: str
    why: str = ""


class Stopped(_Event, frozen=True, tag="stopped"):
    """By the policy: a budget, or the canary."""

    why: str


class Draining(_Event, frozen=True, tag="draining"):
    hosts: tuple[str, ...]


class Drained(_Event, frozen=True, tag="drained"):
    """`untold`: why a host itself does not know that it is out."""

    hosts: tuple[str, ...]
    untold: str = ""


class NotDrained(_Event, frozen=True, tag="not-drained"):
    host: str
    message: str


class Working(_Event, frozen=True, tag="working"):
    """A job begins; recorded before its process starts, so that a job that is not over is done again, or waited for."""

    job: int
    act: Act
    hosts: tuple[str, ...]


class HostEnd(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a job's result says of one host."""

    host: str
    verdict: Verdict
    state: str = ""
    message: str = ""


class Done(_Event, frozen=True, tag="done"):
    job: int
    hosts: tuple[HostEnd, ...]


class JobOver(_Event, frozen=True, tag="job-over"):
    """The job's process has ended; a host without a result until now gets none from it."""

    job: int
    message: str = ""


class Returned(_Event, frozen=True, tag="returned"):
    """The adapter has said its last word on these hosts: given back where they were green or untouched, else kept out. `untold`: why
    a host that is in service does not know it; None where it is out, and knows what it knew."""

    hosts: tuple[str, ...]
    message: str = ""
    untold: str | None = None


class BatchOver(_Event, frozen=True, tag="batch-over"):
    batch: int


class Finished(_Event, frozen=True, tag="finished"):
    """Nothing more will happen in this roll-out."""


Event = (
    Started
    | Approved
    | Paused
    | Resumed
    | Aborted
    | Stopped
    | Draining
    | Drained
    | NotDrained
    | Working
    | Done
    | JobOver
    | Returned
    | BatchOver
    | Finished
)
