"""The options of an apply, and its outcomes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from gpuprov.core.errors import Code, Outcome, choose_code, find_worst
from gpuprov.core.time_limits import ACT_LIMIT, LEASE
from gpuprov.plan.decide import PlanOptions
from gpuprov.plan.model import Item
from gpuprov.verify.evaluate import Result
from gpuprov.verify.verify import verdict

# unchanged: nothing had to be done. blocked: preflight refused, the host was not touched. locked: another run works on
# it. not-started: the run ended before its turn. prepared: the next apply was checked and its files downloaded; nothing
# in service was changed.
State = Literal["unchanged", "changed", "failed", "blocked", "locked", "unreachable", "not-started", "prepared"]
# States of a host whose run was completed.
DONE = frozenset(("changed", "unchanged", "prepared"))
# Outcomes of hosts whose run was not completed.
NOT_DONE: dict[str, Outcome] = {
    "failed": "failed",
    "blocked": "failed",
    "unreachable": "unreachable",
    "locked": "locked",
}
Act = Literal["apply", "prepare", "rollback"]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of apply. serial, canary and max_fail are a number of hosts or a share ("20%"); canary may name hosts.

    act: prepare ends before something in service would be changed. reboot: permission for this run, whatever the spec
    says. full: run every role, even if every check passes. prune: remove what the spec no longer requests; prune_only:
    by host, of these capabilities alone. break_lock: ids of locks to take over. timeout: seconds that one act may take
    on a host. run: the name under which it can be continued elsewhere; default, a new one. lease: seconds that a host
    stays locked for a run that is not heard of any more. checkpoint: keep a checkpoint on hosts that verify finds
    green. asked_at: when the inventory was read, in UTC, if this run has not read it: changes applied to a host since
    then are not undone.
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

    @property
    def of_plan(self) -> PlanOptions:
        return PlanOptions(self.only, self.full, self.reboot, self.prune)

    @classmethod
    def of(cls, given: Mapping[str, Any], only: frozenset[str] | None = None) -> Options:
        """Take these options from the command line's; ignore those that do not belong here."""
        known = {name: given[name] for name in cls.__struct_fields__ if given.get(name) is not None}
        return cls(**known | {"only": only})


# The outcome of a change that the plan lists. not needed: already so at its turn, or nothing had to be done for it.
# unforeseen: done, but not in the plan that was shown. taken back: done, and undone by the rollback of this run.
# unknown: the host was not read after the run.
Became = Literal["done", "not needed", "not done", "unforeseen", "taken back", "unknown"]


class AppliedItem(Item, frozen=True, kw_only=True):
    """A change in the plan, and its outcome. `after`: the new state, if it was done. `why`: the reason why it was not
    done, or differently."""

    state: Became
    why: str = ""


class HostOutcome(msgspec.Struct, kw_only=True):
    """The outcome of a host. results: verify, after the run; message and fix: why it was not done.

    ran, skipped: capabilities with the reason. changed: tasks that changed something. reboot_permitted: by the spec or
    the run. rolled_back: the target and result of a rollback; undone: by `on_failure`, so that a pending reboot is
    obsolete. warnings: problems that stopped nothing. items: the plan's items, and their outcomes; made: changes
    reported by modules. culprit: the capability that failed or was refused; origin: the place in the spec that requests
    it; places: by failing check, the place that requests what it checks. left: what a run that was cut off has left on
    the host. interrupted: a user ended the run while it worked on the host.
    """

    host: str
    state: State = "unchanged"
    ran: dict[str, str] = {}
    skipped: dict[str, str] = {}
    changed: list[str] = []
    task: str = ""
    message: str = ""
    fix: str = ""
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
    places: dict[str, str] = {}
    left: str = ""
    interrupted: bool = False

    @property
    def advice(self) -> str:
        """Return what was left on the host, and the fix, in one text."""
        return "; ".join(filter(None, (self.left, self.fix)))

    @property
    def reboot(self) -> list[str]:
        """Return the reasons why the host must still be rebooted."""
        if self.undone:
            return []
        reasons = (r.reboot for r in self.verified if r.status == "fail" and r.reboot)
        return list(dict.fromkeys(reasons))

    @property
    def failing(self) -> list[Result]:
        """Return the results that verify does not accept: checks that fail, and checks that could not be judged."""
        return [r for r in self.verified if r.status in ("fail", "error")]

    @property
    def wrong(self) -> bool:
        """Return whether the host differs from the state in which the run was to leave it: a host that was only
        prepared still differs from its spec."""
        return bool(self.failing) and self.state != "prepared"

    @property
    def green(self) -> bool:
        """Return whether the host matches its spec, proven by verify."""
        return self.state in ("changed", "unchanged") and verdict(self.verified) == "matches"

    @property
    def verified(self) -> list[Result]:
        """Return the results of verify among those that were read."""
        return [r for r in self.results if r.moment != "preflight"]

    @property
    def unproven(self) -> list[Result]:
        """Return the parts of the spec that verify could not check on this host."""
        return [r for r in self.verified if r.status == "skip"]


# Called with the outcome of a host as soon as it is known, and again when more is known.
Known = Callable[[HostOutcome], None]


class Lap(msgspec.Struct, kw_only=True):
    """An act of the playbook over the hosts of a batch, with its duration. batch: its number, from 1."""

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
        """Return the hosts that differ from their specs or are unknown, except those that only wait for a reboot."""
        wrong = (host.state not in DONE or (host.wrong and not host.reboot) for host in self.hosts)
        return [host.host for host, again in zip(self.hosts, wrong, strict=True) if again]

    @property
    def locked(self) -> list[str]:
        """Return the hosts that another run works on: the same command does them later."""
        return [host.host for host in self.hosts if host.state == "locked"]

    @property
    def outcomes(self) -> dict[str, Outcome]:
        """Return the outcome of each host. What was not started waits for another run's hosts, if there are any."""
        waits: Outcome = "locked" if self.locked else "failed"
        return {host.host: waits if host.state == "not-started" else self._judge(host) for host in self.hosts}

    def _judge(self, host: HostOutcome) -> Outcome:
        if host.state not in DONE:
            return NOT_DONE[host.state]
        if host.wrong:
            return "differs"
        proven = self.act == "prepare" or not host.unproven or verdict(host.verified) != "not proven"
        return "ok" if proven else "not proven"

    @property
    def outcome(self) -> Outcome:
        """Return the outcome of the run."""
        return "interrupted" if self.interrupted else find_worst(self.outcomes.values(), "ok")

    @property
    def exit_code(self) -> Code:
        """Return the exit code of apply."""
        return choose_code([self.outcome])


class Laps:
    """Durations of the acts that have begun, in order (`all`); updated when an act begins."""

    def __init__(self) -> None:
        self.all: list[Lap] = []
        self._since = 0.0

    def begins(self, name: str, batch: int, hosts: int) -> None:
        """Begin an act, and end the previous one."""
        self.end()
        self._since = time.monotonic()
        self.all.append(Lap(name=name, batch=batch, hosts=hosts))

    def end(self) -> None:
        """End the last act."""
        if self._since:
            self.all[-1].seconds = round(time.monotonic() - self._since, 1)
        self._since = 0.0
