"""What an apply is asked, and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from gpuprov.limits import ACT_LIMIT, LEASE
from gpuprov.plan.model import Item
from gpuprov.verify.evaluate import Result
from gpuprov.verify.verify import verdict

State = Literal["unchanged", "changed", "failed", "blocked", "locked", "unreachable", "not-started", "prepared"]
"""unchanged: nothing had to be done. blocked: preflight refused, the host was not touched. locked: another run works on
it. not-started: the run ended before its turn. prepared: what the next apply does was judged and downloaded; nothing in service was
changed."""
DONE = frozenset(("changed", "unchanged", "prepared"))
"""What a host is that was brought to the end of its run."""
Act = Literal["apply", "prepare", "rollback"]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How to apply. serial, canary and max_fail are a number of hosts or a share ("20%"); canary may name hosts.

    act: prepare ends where something in service would be changed. reboot: permission for this run, whatever the spec says. full:
    run every role, also where every check passes. prune: take away what the spec asks for no longer; prune_only: by host, of these
    capabilities alone. break_lock: ids of locks that are taken over. timeout: seconds that one act may take on a host. run: its
    name, by which it goes on elsewhere; default, a new one. lease: seconds that a host stays locked for a run that is not heard of
    any more. checkpoint: keep, on hosts that verify calls green, what they can be brought back to. asked_at: when the inventory
    was read, in UTC, where this run has not read it: what a host was brought to since is not undone.
    """

    act: Act = "apply"
    full: bool = False
    prune: bool = False
    prune_only: dict[str, tuple[str, ...]] = {}
    reboot: bool = False
    yes: bool = False
    break_lock: tuple[str, ...] = ()
    timeout: float = ACT_LIMIT
    run: str = ""
    lease: float = LEASE
    serial: str = ""
    canary: str = ""
    max_fail: str = "0"
    drain: str | None = None
    only: frozenset[str] | None = None
    log_dir: Path | None = None
    forks: int = 0
    verbose: bool = False
    as_json: bool = False
    checkpoint: bool = True
    asked_at: str = ""

    @classmethod
    def of(cls, given: Mapping[str, Any], only: frozenset[str] | None = None) -> Options:
        """From the command line's options; those that do not belong here are left aside."""
        known = {name: given[name] for name in cls.__struct_fields__ if given.get(name) is not None}
        return cls(**known | {"only": only})


Became = Literal["done", "not needed", "not done", "unforeseen", "taken back", "unknown"]
"""What became of a change that the plan lists. not needed: it was so when its turn came, or nothing had to be done for it. unforeseen:
it was done, and the plan did not list it. taken back: it was done, and the rollback of this run has undone it. unknown: the host was
not read after the run."""


class AppliedItem(Item, frozen=True, kw_only=True):
    """A change of the plan, and what became of it. `after`: what is there now, where it was done. `why`: it was not done,
    or otherwise."""

    state: Became
    why: str = ""


class HostOutcome(msgspec.Struct, kw_only=True):
    """What became of one host. results: verify, after; message and hint: why it was not done.

    ran, skipped: capabilities with the reason. changed: tasks that changed something. reboot_permitted: by the spec or the run.
    rolled_back: where a rollback brought it, and how that ended; undone: by `on_failure`, so that what it waited for is past.
    warnings: what was found on the way and stopped nothing. items: what the plan listed, and what became of it; made: what modules say
    that they made. culprit: the capability that failed or was refused; origin: the place in the spec that asks for it.
    """

    host: str
    state: State = "unchanged"
    ran: dict[str, str] = {}
    skipped: dict[str, str] = {}
    changed: list[str] = []
    task: str = ""
    message: str = ""
    hint: str = ""
    results: list[Result] = []
    seconds: float = 0.0
    reboot_permitted: bool = False
    rolled_back: str = ""
    undone: bool = False
    warnings: list[str] = []
    items: list[AppliedItem] = []
    made: list[Item] = []
    culprit: str = ""
    origin: str = ""

    @property
    def reboot(self) -> list[str]:
        """Why the host must still be rebooted."""
        if self.undone:
            return []
        reasons = (r.reboot for r in self.verified if r.status == "fail" and r.reboot)
        return list(dict.fromkeys(reasons))

    @property
    def failing(self) -> list[Result]:
        """What verify does not accept: checks that fail, and checks that could not be judged."""
        return [r for r in self.verified if r.status in ("fail", "error")]

    @property
    def wrong(self) -> bool:
        """Whether the host is not as the run was to leave it: one that was only prepared still differs from its spec."""
        return bool(self.failing) and self.state != "prepared"

    @property
    def green(self) -> bool:
        """Whether the host is as its spec says, and that was proven."""
        return self.state in ("changed", "unchanged") and verdict(self.verified) == "as wanted"

    @property
    def verified(self) -> list[Result]:
        """The results of verify among those that were read."""
        return [r for r in self.results if r.moment != "preflight"]

    @property
    def unproven(self) -> list[Result]:
        """What the spec asks for and verify could not ask on this host."""
        return [r for r in self.verified if r.status == "skip"]


Known = Callable[[HostOutcome], None]
"""Told what became of a host, as soon as that is known; again, where more is known later."""


class Lap(msgspec.Struct, kw_only=True):
    """An act of the playbook over the hosts of a batch: how long it took. batch: its number, from 1."""

    name: str
    batch: int = 1
    hosts: int = 0
    seconds: float = 0.0


class ApplyRun(msgspec.Struct, kw_only=True):
    """A whole run. stopped: why batches were left out. log: Ansible's output, if Ansible ran. acts: in their order."""

    run: str
    hosts: list[HostOutcome]
    act: Act = "apply"
    interrupted: bool = False
    stopped: str = ""
    log: Path | None = None
    seconds: float = 0.0
    acts: list[Lap] = []

    @property
    def again(self) -> list[str]:
        """The hosts that are not as their specs want them, or of which nobody knows, save those that only wait for a reboot."""
        wrong = (host.state not in DONE or (host.wrong and not host.reboot) for host in self.hosts)
        return [host.host for host, again in zip(self.hosts, wrong, strict=True) if again]

    @property
    def locked(self) -> list[str]:
        """The hosts that another run works on: the same command does them later."""
        return [host.host for host in self.hosts if host.state == "locked"]

    @property
    def exit_code(self) -> Literal[0, 1, 3, 4, 5, 130]:
        """130 interrupted; 3 apply did not succeed on a host; 4 one was not reached; 5 another run works on one, which is all that
        keeps others from being started; 1 verify is not green, or proved nothing; 0."""
        states = {host.state for host in self.hosts}
        if self.interrupted:
            return 130
        if states & {"failed", "blocked"} or ("not-started" in states and "locked" not in states):
            return 3
        if "unreachable" in states:
            return 4
        if "locked" in states:
            return 5
        if any(host.wrong for host in self.hosts):
            return 1
        proved = self.act == "prepare" or not any(
            host.unproven and verdict(host.verified) == "not proven" for host in self.hosts
        )
        return 0 if proved else 1
