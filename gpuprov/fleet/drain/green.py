"""Hosts that may go back into service: those that verify has proven to match their specs."""

from collections.abc import Callable

from gpuprov.facts.collect.rounds import Pace
from gpuprov.verify import Result, exit_code
from gpuprov.verify.verify import Pairs, verify


def green(pairs: Pairs, pace: Pace | None, on_done: Callable[[str], None]) -> dict[str, bool]:
    """Return, by host, whether all its checks pass, and at least one was proven."""
    by_host: dict[str, list[Result]] = {raw.name: [] for raw, _ in pairs}
    for result in verify(pairs, pace=pace, on_done=lambda name, _: on_done(name)):
        by_host[result.host].append(result)
    return {name: exit_code(results) == 0 for name, results in by_host.items()}
