"""Repair of a job's unfit hosts before they are changed, of as many as the job may repair.

A host is repaired once in a run: its own record of acts says so, also after a worker was killed.
"""

from collections.abc import Sequence
from typing import NamedTuple

from gpuprov.apply.model import HostOutcome
from gpuprov.core.errors import GpuprovError
from gpuprov.facts.probes.host.checkpoints import REPAIRS
from gpuprov.fleet.policy.events import Repair
from gpuprov.repair import command
from gpuprov.repair.hosts import Hosts, Judged, ReachedHosts
from gpuprov.repair.model import HostPlan, HostRepair, Options, Repaired
from gpuprov.repair.ticket import write_tickets
from gpuprov.verify.verify import Pairs

TASK = "repair"
BY_HAND = "gpuprov health HOST says what it needs; gpuprov repair repairs it"


class RecordedHosts(ReachedHosts):
    """Hosts that are known to have been repaired by this run when they were last read."""

    def __init__(self, pairs: Pairs, options: Options) -> None:
        super().__init__(pairs, options)
        self._run = options.run
        self.repaired: set[str] = set()

    def judge(self, names: Sequence[str]) -> dict[str, Judged]:
        """Read the hosts."""
        judged = super().judge(names)
        for name, (_, facts) in judged.items():
            if facts and any(act.run == self._run for act in facts.known(REPAIRS) or ()):
                self.repaired.add(name)
        return judged


class Repairs(NamedTuple):
    """What came of it."""

    # Hosts on which the run has begun a reset or a reboot.
    repaired: frozenset[str]
    # Hosts that are still unfit and stay as they are.
    refused: dict[str, HostOutcome]
    interrupted: bool = False

    def describe(self, host: str) -> Repair:
        """Return what a result says of it."""
        if host in self.repaired:
            return "done"
        return "none left" if host in self.refused and self.refused[host].state == "blocked" else ""


def repair_hosts(pairs: Pairs, options: Options, most: int) -> Repairs:
    """Repair at most so many of the hosts that a reset or a reboot makes fit."""
    return repair_first(pairs, RecordedHosts(pairs, options), options, most)


def repair_first(pairs: Pairs, hosts: RecordedHosts, options: Options, most: int) -> Repairs:
    """Repair the first of them, in the order of the job."""
    plans = command.make_plans(pairs, hosts, options)
    before = frozenset(hosts.repaired)
    unfit = [name for name, plan in plans.items() if plan.step in command.ACTING]
    chosen = [name for name in unfit if name not in before][: max(0, most - len(before))]
    ended = _repair([pair for pair in pairs if pair[0].name in chosen], hosts, options) if chosen else None
    outcomes = {host.host: host for host in ended.hosts} if ended else {}
    refused = {name: _refuse(plans[name], name in before) for name in unfit if name not in chosen}
    refused |= {name: _give_up(host) for name, host in outcomes.items() if host.state == "given up"}
    begun = {name for name, host in outcomes.items() if host.is_begun}
    return Repairs(before | begun, refused, bool(ended and ended.interrupted))


def _repair(pairs: Pairs, hosts: Hosts, options: Options) -> Repaired:
    """Repair these hosts, and write the tickets of those that were given up, on this machine."""
    ended = command.run(pairs, hosts, options, lambda _plan: None)
    try:
        write_tickets(pairs, ended, None)
        for host in ended.hosts:
            host.fix = f"the ticket says what was found and tried: {host.ticket[0]}" if host.ticket else host.fix
    except GpuprovError as error:  # the repairs count all the same
        for host in ended.hosts:
            host.fix = f"no ticket was written: {error.message}" if host.state == "given up" else host.fix
    return ended


def _refuse(plan: HostPlan, again: bool) -> HostOutcome:
    """Return the outcome of a host that is not repaired."""
    why = "this run has repaired it already" if again else "no repair is left for it"
    return HostOutcome(
        host=plan.host,
        state="blocked",
        task=TASK,
        message=f"{plan.sentence}, and {why}",
        fix=BY_HAND,
    )


def _give_up(host: HostRepair) -> HostOutcome:
    return HostOutcome(host=host.host, state="failed", task=TASK, message=host.message, fix=host.fix)
