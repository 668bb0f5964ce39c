"""The lists of a run: the items in each host's plan, and their outcomes."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from gpuprov.apply.items import After, applied
from gpuprov.apply.model import AppliedItem, HostOutcome, Options
from gpuprov.core.errors import defect
from gpuprov.facts.collect.rounds import Pace
from gpuprov.fleet.specs import locate_request
from gpuprov.plan.collect import host_plan
from gpuprov.plan.decide import Decision
from gpuprov.plan.exact import Answer, with_answer
from gpuprov.plan.foresee import Foreseen
from gpuprov.plan.items import Key, items, key
from gpuprov.plan.model import HostPlan, Item
from gpuprov.plan.planning import Planner, plans_of
from gpuprov.plan.read import Pair, Reading
from gpuprov.plan.show import Show
from gpuprov.verify.evaluate import MOMENTS


class Lists:
    """The plans of a run's hosts. They are exact if a person has to confirm them, or has approved a saved plan;
    otherwise they follow from the reading, without another login."""

    def __init__(self, pairs: Sequence[Pair], options: Options) -> None:
        self._pairs = {pair[0].name: pair for pair in pairs}
        self._options = options
        self._planner = Planner(pairs, options.of_plan)
        self._plans: dict[str, HostPlan] = {}

    def note(self, name: str, reading: Reading) -> None:
        """Plan a host as soon as it is read, if the plans have to be confirmed."""
        if not self._options.yes:
            self._planner.note(name, reading)

    def confirmed(self, pace: Pace, show: Show) -> list[HostPlan]:
        """Return the plans of this run, as `gpuprov plan` makes them."""
        plans = self._planner.plans(self._options.timeout, pace, show)
        self.approve({plan.host: plan for plan in plans})
        return plans

    def approve(self, plans: Mapping[str, HostPlan]) -> None:
        """Use these plans as those of the run."""
        self._plans.update(plans)

    def settle(self, outcome: HostOutcome, before: Reading | None, after: Reading | None = None) -> None:
        """Add the outcomes of the host's items. after: the host as it was read after the run; None if it was not."""
        spec, roots = self._pairs[outcome.host][1], [result for result in outcome.failing if not result.follows]
        outcome.places = {
            result.check: place for result in roots if (place := locate_request(spec, result.capability, result.fields))
        }
        if outcome.culprit and not outcome.origin:
            fields = next(
                (result.fields for result in roots if result.capability == outcome.culprit and result.fields), ()
            )
            outcome.origin = locate_request(spec, outcome.culprit, fields)
        if before is None or before.lost or (outcome.state == "unchanged" and not outcome.ran):
            return
        try:
            outcome.items = self._applied(outcome, before, after)
        except Exception as error:
            outcome.warnings = [*outcome.warnings, "; ".join(defect("the list of what was applied", error))]

    def settle_rest(self, outcomes: Mapping[str, HostOutcome], readings: Mapping[str, Reading]) -> None:
        """Do the same for hosts that were not read after the run."""
        for name, outcome in outcomes.items():
            if not outcome.items:
                self.settle(outcome, readings.get(name))

    def _applied(self, outcome: HostOutcome, before: Reading, after: Reading | None) -> list[AppliedItem]:
        pair = self._pairs[outcome.host]
        plan = self._plan(pair, before)
        if plan.idle or plan.unreachable:
            return []
        now = None
        if after and not after.lost:
            foreseen = after.foreseen or Foreseen()
            now = After(
                left=frozenset(map(key, _list_items(pair, plan, after))),
                waiting=frozenset((*(name for name, each in foreseen.packages.items() if each), *foreseen.waits)),
                unread=frozenset((*foreseen.unknown, *(r.capability for r in after.results if r.status == "error"))),
                results=after.results,
            )
        comparable: frozenset[Key] = frozenset(map(key, _list_items(pair, plan, before)))
        return applied(items(plan), comparable, outcome, now, shown=outcome.host in self._plans)

    def _plan(self, pair: Pair, before: Reading) -> HostPlan:
        name = pair[0].name
        if name in self._plans:
            return self._plans[name]
        (plan,) = plans_of([pair], {name: before}, self._options.of_plan)
        return _add_files(plan, before)


def _list_items(pair: Pair, plan: HostPlan, reading: Reading) -> tuple[Item, ...]:
    """Return the list for the capabilities of a plan, from the checks that verify runs and the differences."""
    results = [result for result in reading.results if result.moment in MOMENTS]
    unmanaged = reading.foreseen.unmanaged if reading.foreseen else ()
    derived_plan = host_plan(
        pair[1], results, reading.facts, Decision(plan.run, {}), datetime.now(UTC), unmanaged=unmanaged
    )
    return items(_add_files(derived_plan, reading))


def _add_files(plan: HostPlan, reading: Reading) -> HostPlan:
    """Return the plan with the files that differ, if the host is not asked for their texts."""
    if not reading.foreseen or plan.unreachable:
        return plan
    foreseen = reading.foreseen.only(plan.run)
    differing = {name: tuple(change for change in each if change.before) for name, each in foreseen.texts.items()}
    return with_answer(plan, msgspec.structs.replace(foreseen, texts=differing), Answer())
