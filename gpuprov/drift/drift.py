"""Drift of each host of a fleet. Hosts are read once, with the checks of verify; nothing is changed on them."""

from collections.abc import Callable, Collection
from datetime import datetime

from gpuprov.core.errors import UnreachableError, defect
from gpuprov.core.time_limits import HOST_LIMIT
from gpuprov.drift.judge import PROBES, judge
from gpuprov.drift.model import HostDrift
from gpuprov.facts.collect.rounds import Pace
from gpuprov.facts.probes.base import Facts
from gpuprov.verify.evaluate import Result
from gpuprov.verify.verify import Pairs, verify_each


def drift(
    fleet: Pairs,
    *,
    only: Collection[str] | None = None,
    since: datetime | None = None,
    pace: Pace | None = None,
    timeout: float = HOST_LIMIT,
    on_done: Callable[[str], None] | None = None,
) -> list[HostDrift]:
    """Find the drift of each host, in the order of the fleet. `since`: only actions of package managers after this time
    count as a cause, instead of those after the last apply."""
    specs = {raw.name: spec for raw, spec in fleet}
    judged: dict[str, HostDrift] = {}

    def note(name: str, results: list[Result], facts: Facts | UnreachableError) -> None:
        if isinstance(facts, UnreachableError):
            judged[name] = HostDrift(host=name, state="unreachable", why=results[0].found)
        else:
            try:
                judged[name] = judge(specs[name], results, facts, only=only, since=since)
            except Exception as error:
                message, fix = defect("the search for drift", error)
                judged[name] = HostDrift(host=name, state="unknown", why=f"{message}; {fix}")
        if on_done:
            on_done(name)

    verify_each(fleet, note, only=only, pace=pace, timeout=timeout, also=PROBES)
    return [judged[raw.name] for raw, _ in fleet]
