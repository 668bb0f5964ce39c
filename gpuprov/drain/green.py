"""Which hosts may go back into service: those of which verify has proven that they are as they should be."""

from __future__ import annotations

from collections.abc import Callable

from gpuprov.gather.pace import Pace
from gpuprov.verify import Result, exit_code
from gpuprov.verify.verify import Pairs, verify


def green(pairs: Pairs, pace: Pace | None, on_done: Callable[[str], None]) -> dict[str, bool]:
    """By host: whether all its checks pass, and something was proven."""
    found: dict[str, list[Result]] = {raw.name: [] for raw, _ in pairs}
    for one in verify(pairs, pace=pace, on_done=lambda name, _: on_done(name)):
        found[one.host].append(one)
    return {name: exit_code(results) == 0 for name, results in found.items()}
