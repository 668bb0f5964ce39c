"""Makes the plans of hosts. Changes nothing on any host."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from gpuprov.core.errors import UnreachableError
from gpuprov.core.signals import ended_politely
from gpuprov.core.time_limits import ACT_LIMIT
from gpuprov.facts.collect.rounds import Pace
from gpuprov.facts.collect.unreached import Unreached
from gpuprov.facts.probes.host import house
from gpuprov.fleet.specs import locate_request
from gpuprov.host_code import machine
from gpuprov.plan.ahead import read_ahead
from gpuprov.plan.collect import host_plan
from gpuprov.plan.decide import DEFAULT, PlanOptions, decide
from gpuprov.plan.exact import complete
from gpuprov.plan.foresee import Foreseen, Keys, with_keys
from gpuprov.plan.model import HostPlan
from gpuprov.plan.read import Pair, Reading, read
from gpuprov.plan.settings_back import compare_settings
from gpuprov.plan.show import Show
from gpuprov.spec.model import RawHost
from gpuprov.verify.evaluate import Result, broken
from gpuprov.verify.unmanaged import in_words


def plan(
    pairs: Sequence[Pair],
    options: PlanOptions = DEFAULT,
    *,
    pace: Pace | None = None,
    timeout: float = ACT_LIMIT,
    show: Show | None = None,
    on_read: Callable[[dict[str, Reading]], None] | None = None,
) -> list[HostPlan]:
    """Return what apply would do on each host. One gather decides it; unless `options.exact` is off, hosts that would
    change are contacted again, for the transactions of their package managers and the differences of files, and before
    that, if a package source is to be added, for what its index decides.

    timeout: seconds for each of these answers. on_read: called with the readings that the plans are based on.
    """
    show, pace = show or Show(), pace or Pace()
    planner = Planner(pairs, options)
    with ended_politely():
        with show.reading([raw.name for raw, _ in pairs], "reading") as done:
            readings = read(pairs, only=options.only, pace=pace, on_done=done, each=planner.note, keep=bool(on_read))
        if on_read:
            on_read(readings)
        return planner.plans(timeout, pace, show)


class Planner:
    """Plans hosts as they are read: `note` takes each reading, `plans` completes the plans from further answers of the
    hosts."""

    def __init__(self, pairs: Sequence[Pair], options: PlanOptions = DEFAULT) -> None:
        self._pairs = {pair[0].name: pair for pair in pairs}
        self._options = options
        self._plans: dict[str, HostPlan] = {}
        self._foreseen: dict[str, tuple[RawHost, Foreseen]] = {}
        self._waiting: dict[str, Reading] = {}
        self._keys: Keys = {}
        self._machines = dict.fromkeys(self._pairs, "")

    def note(self, name: str, reading: Reading, first: Reading | None = None) -> None:
        """Plan a host by its checks, and keep what its roles would do. first: the reading that decides which roles run,
        if another."""
        pair = self._pairs[name]
        (plan,) = plans_of([pair], {name: reading}, self._options, first={name: first} if first else {})
        if self._options.exact and reading.foreseen and plan.run and not plan.blocked:
            foreseen = reading.foreseen.only(plan.run)
            self._foreseen[name] = pair[0], foreseen
            if foreseen.waits and foreseen.sources:
                self._waiting[name] = reading
        self._plans[name] = plan
        self._machines[name] = reading.facts.known(house.MACHINE) or ""

    def plans(self, timeout: float, pace: Pace, show: Show) -> list[HostPlan]:
        """Return the plans of all hosts. timeout: seconds for each further answer of a host."""
        others = machine.find_duplicates(self._machines)
        self._decide_ahead([name for name in self._waiting if name not in others], timeout, pace, show)
        made = self._plans | {name: _plan_duplicate(name, other) for name, other in others.items()}
        host_plans = [made[name] for name in self._pairs]
        if self._foreseen:
            with show.reading(list(self._foreseen), "asking package managers") as done:
                host_plans = complete(
                    host_plans, self._foreseen, limit=timeout, keys=self._keys, pace=pace, on_done=done
                )
            host_plans = compare_settings(host_plans, self._foreseen, limit=timeout, pace=pace)
        return [plan if plan.host in others else self._with_places(plan) for plan in host_plans]

    def _with_places(self, plan: HostPlan) -> HostPlan:
        """Return the plan with the places in the spec that ask for what is refused."""
        spec = self._pairs[plan.host][1]
        places = {r.check: place for r in plan.blocked if (place := locate_request(spec, r.capability, r.fields))}
        return msgspec.structs.replace(plan, places=places) if places else plan

    def _decide_ahead(self, names: Sequence[str], timeout: float, pace: Pace, show: Show) -> None:
        """Plan again what waits for package sources that these hosts can use."""
        waiting = {name: with_keys(self._foreseen[name][1], self._keys) for name in names}
        requests = {n: (self._pairs[n], self._waiting[n], entry) for n, entry in waiting.items() if entry.sources}
        if not requests:
            return
        with show.reading(list(requests), "trying package sources") as done:
            readings = read_ahead(requests, self._options.only, limit=timeout, pace=pace, on_done=done)
        for name, reading in readings.items():
            self._foreseen.pop(name)
            self.note(name, reading, self._waiting[name])
        self._waiting.clear()


def plans_of(
    pairs: Sequence[Pair],
    readings: dict[str, Reading],
    options: PlanOptions = DEFAULT,
    *,
    first: Mapping[str, Reading] = {},
) -> list[HostPlan]:
    """Return the plans that the checks alone decide. first: the readings with which apply will have chosen the
    capabilities to run, if the plan uses later ones."""
    now, plans = datetime.now(UTC), []
    for pair in pairs:
        reading = readings[pair[0].name]
        if reading.lost:
            plans.append(_plan_unreachable(pair[0].name, reading.lost))
            continue
        decides = first.get(pair[0].name, reading)
        try:
            decision = decide(
                pair,
                decides.results,
                decides.facts,
                options,
                foreseen=decides.differing,
                prune=in_words(decides.prune),
            )
            left = reading.foreseen.unmanaged if reading.foreseen else ()
            plans.append(
                host_plan(pair[1], reading.results, reading.facts, decision, now, reboot=options.reboot, unmanaged=left)
            )
        except Exception as error:
            failure = broken(pair[0].name, "the plan", error, "preflight")
            plans.append(HostPlan(host=pair[0].name, blocked=(failure,), differs=True))
    return plans


def _plan_duplicate(host: str, other: str) -> HostPlan:
    """Return the plan of a host that is the same machine as another host of the run: apply leaves it alone."""
    message, fix = machine.explain_refusal(other)
    failure = Result(
        host=host, capability="host", check="host.machine", status="fail", found=message, fix=fix, moment="preflight"
    )
    return HostPlan(host=host, blocked=(failure,), differs=True)


def _plan_unreachable(host: str, lost: UnreachableError) -> HostPlan:
    """Return the plan of an unreachable host. Its reason omits the host's name, so that an outage of many hosts is
    reported once."""
    reason = lost.reason if isinstance(lost, Unreached) else lost.message.removeprefix(f"{host}: ")
    return HostPlan(host=host, unreachable=reason, unreachable_fix=lost.fix)
