"""Events of a roll-out: recorded one after another and never changed. All its state follows from these."""

from typing import Literal

import msgspec

Act = Literal["prepare", "apply", "verify"]
# green: matches its spec. waits: for a reboot that is not permitted. failed. again: locked, not reached or without a
# result; tried again.
Verdict = Literal["green", "waits", "failed", "again"]
# done: this roll-out has reset or rebooted the host to repair it, whatever came of it. none left: it is unfit, and was
# left alone, since the job had no repair for it.
Repair = Literal["", "done", "none left"]
# States of hosts that may succeed at another time.
LATER = frozenset({"locked", "unreachable", "not-started"})
# States of hosts on which an act was completed.
ENDED = frozenset({"verified", "unchanged", "changed"})


def verdict_of(state: str, *, green: bool, reboot: bool) -> Verdict:
    """Return the verdict on a host in this state. `green`: it matches its spec, proven by verify. `reboot`: it must
    still be rebooted."""
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
    """`retry`: hosts that failed, or wait, are done again. `forgive`: failures until now no longer count."""

    by: str
    retry: bool = False
    forgive: bool = False


class Aborted(_Event, frozen=True, tag="aborted"):
    by: str
    why: str = ""


class Stopped(_Event, frozen=True, tag="stopped"):
    """The policy has stopped the roll-out: a budget, or the canary."""

    why: str


class Draining(_Event, frozen=True, tag="draining"):
    hosts: tuple[str, ...]


class Drained(_Event, frozen=True, tag="drained"):
    """`untold`: the reason why the host itself does not know that it is out."""

    hosts: tuple[str, ...]
    untold: str = ""


class NotDrained(_Event, frozen=True, tag="not-drained"):
    host: str
    message: str


class Working(_Event, frozen=True, tag="working"):
    """A job begins; recorded before its process starts, so that an unfinished job is repeated, or waited for."""

    job: int
    act: Act
    hosts: tuple[str, ...]
    # How many of its hosts it may repair.
    repairs: int = 0


class HostEnd(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one host, from a job's result."""

    host: str
    verdict: Verdict
    state: str = ""
    message: str = ""
    repair: Repair = ""


class Done(_Event, frozen=True, tag="done"):
    job: int
    hosts: tuple[HostEnd, ...]


class JobOver(_Event, frozen=True, tag="job-over"):
    """The job's process has ended; hosts without a result until now get none from it."""

    job: int
    message: str = ""


class Returned(_Event, frozen=True, tag="returned"):
    """The adapter has given its final answer on these hosts: given back if they were green or untouched, else kept out.
    `untold`: the reason why a host in service does not know that; None if it is out, and its own note is unchanged."""

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
