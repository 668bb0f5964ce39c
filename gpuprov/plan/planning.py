"""From hosts to their plans. Nothing is changed on any host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from gpuprov.errors import UnreachableError
from gpuprov.gather.pace import Pace
from gpuprov.gather.unreached import Unreached
from gpuprov.limits import ACT_LIMIT
from gpuprov.onhost import machine
from gpuprov.plan.collect import host_plan
from gpuprov.plan.decide import decide
from gpuprov.plan.model import HostPlan
from gpuprov.plan.read import Pair, Reading, for_ansible, read
from gpuprov.plan.show import Show
from gpuprov.probe.host import house
from gpuprov.shared.signals import ended_politely
from gpuprov.verify.evaluate import Result, broken


def plan(
    pairs: Sequence[Pair],
    *,
    ansible: bool = True,
    capabilities: frozenset[str] | None = None,
    full: bool = False,
    reboot: bool = False,
    pace: Pace | None = None,
    timeout: float = ACT_LIMIT,
    show: Show | None = None,
    on_read: Callable[[dict[str, Reading]], None] | None = None,
) -> list[HostPlan]:
    """What apply would do on each host, from one gather and, unless `ansible` is off, Ansible's check mode.

    capabilities: only these. full, reboot: as the same options of apply would have it. timeout: seconds for an act of check mode.
    on_read: told what every host was read as, by which the plans were made.
    """
    show, pace = show or Show(), pace or Pace()
    with ended_politely():
        pair_of, made = {pair[0].name: pair for pair in pairs}, dict[str, HostPlan]()
        machines = dict.fromkeys(pair_of, "")

        def planned(name: str, reading: Reading) -> None:
            [made[name]] = plans_of(
                [pair_of[name]], {name: reading}, capabilities=capabilities, full=full, reboot=reboot
            )

            machines[name] = reading.facts.known(house.MACHINE) or ""

        with show.reading(list(pair_of), "reading") as done:
            kept = bool(ansible or on_read)
            readings = read(pairs, only=capabilities, pace=pace, on_done=done, each=planned, keep=kept)
        if on_read:
            on_read(readings)
        made |= {name: _duplicate(name, other) for name, other in machine.duplicates(machines).items()}
        plans = [made[name] for name in pair_of]
        if not ansible:
            return plans
        from gpuprov.plan.predict import predict

        asked = {one.host for one in plans if one.run and not one.blocked}
        if asked:
            show.say(f"asking Ansible (--check --diff) about {len(asked)} host{'s' if len(asked) != 1 else ''}")
        known = [for_ansible(pair, readings[pair[0].name]) if pair[0].name in asked else pair for pair in pairs]
        return predict(known, plans, reboot=reboot, forks=pace.forks, timeout=timeout, show=show)


def plans_of(
    pairs: Sequence[Pair],
    readings: dict[str, Reading],
    *,
    capabilities: frozenset[str] | None = None,
    full: bool = False,
    reboot: bool = False,
) -> list[HostPlan]:
    """The plans as far as the checks can tell."""
    now, plans = datetime.now(UTC), []
    for pair in pairs:
        reading = readings[pair[0].name]
        if reading.lost:
            plans.append(_away(pair[0].name, reading.lost))
            continue
        try:
            decision = decide(pair, reading.results, reading.facts, full=full, reboot=reboot, only=capabilities)
            plans.append(host_plan(pair[1], reading.results, reading.facts, decision, now, reboot=reboot))
        except Exception as error:
            told = broken(pair[0].name, "the plan", error, "preflight")
            plans.append(HostPlan(host=pair[0].name, blocked=(told,), differs=True))
    return plans


def _duplicate(host: str, other: str) -> HostPlan:
    """Of a host that is another one of the run: apply leaves it alone."""
    found, hint = machine.refusal(other)
    told = Result(
        host=host, capability="host", check="host.machine", status="fail", found=found, hint=hint, moment="preflight"
    )
    return HostPlan(host=host, blocked=(told,), differs=True)


def _away(host: str, lost: UnreachableError) -> HostPlan:
    """The reason without the host's name, which stands before it; so that an outage of many is told once."""
    reason = lost.reason if isinstance(lost, Unreached) else lost.message.removeprefix(f"{host}: ")
    return HostPlan(host=host, unreachable=reason, unreachable_fix=lost.hint)
